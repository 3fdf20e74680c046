"""The tables of the page as encoded rows: a change encodes only its own rows, and a new page gets them all at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dray.allocator.pools import PoolView
from dray.api.dra.device_use import NONE_COUNTED, UseCounts
from dray.api.dra.pod_phase import is_waiting_for_node
from dray.api.dra.pools import PoolID
from dray.dashboard.device_rows import (
    occupancy_of,
    pool_row,
    shape_row,
)
from dray.dashboard.object_rows import (
    claim_row,
    event_row,
    event_time,
    node_row,
    pending_row,
    pod_row,
)
from dray.dashboard.use_history import UseHistory, UseSample
from dray.dashboard.watched_cluster import (
    TableChanges,
    WatchedCluster,
)
from dray.explain.verdicts import PodVerdict

log = logging.getLogger(__name__)

Row = dict[str, Any]
Rows = dict[str, msgspec.Raw]
GONE = msgspec.Raw(b"null")
TABLES = ("shapes", "nodes", "pools", "claims", "pods", "pending", "events", "history")
POOLS_AT_ONCE = 20
# The newest events; the page holds no more.
MOST_EVENTS = 300
_encoder = msgspec.json.Encoder()


class Tables:
    """`explained` has the verdicts of waiting pods by namespace/name, as far as they are known."""

    def __init__(
        self, cluster: WatchedCluster, explained: Callable[[str], PodVerdict | None], history: UseHistory
    ) -> None:
        self._cluster = cluster
        self._explained = explained
        self._history = history
        self._tables: dict[str, Rows] = {name: {} for name in TABLES}
        self._tables["history"] = {each.key: _raw(each.document()) for each in history.samples}
        self._shape_ids: dict[bytes, str] = {}
        self._counts: dict[PoolID, UseCounts] = {}
        self._event_times: dict[str, str] = {}

    def snapshot(self) -> bytes:
        return _encoder.encode(self._tables)

    def refresh(self) -> bytes | None:
        """Brings the rows up to date; the answer holds those that differ, null for gone ones; None if none does."""
        changes = self._cluster.take_changes(POOLS_AT_ONCE)
        found: dict[str, Rows] = {name: {} for name in TABLES}
        self._refresh_pools(changes, found)
        self._refresh_others(changes, found)
        delta = {name: rows for name, rows in found.items() if rows}
        return _encoder.encode(delta) if delta else None

    def take_sample(self, now: datetime) -> bytes | None:
        """Adds to the history if it is time to; the answer holds the rows that differ."""
        if not self._history.is_due(now):
            return None
        counts = sum(self._counts.values(), NONE_COUNTED)
        sample = UseSample(now, counts, len(self._tables["pending"]))
        gone = self._history.add(sample)
        found = {sample.key: _raw(sample.document())}
        self._tables["history"] |= found
        if gone is not None:
            del self._tables["history"][gone.key]
            found[gone.key] = GONE
        return _encoder.encode({"history": found})

    def _refresh_pools(self, changes: TableChanges, found: dict[str, Rows]) -> None:
        for pool_id in changes.pools:
            self._set("pools", "/".join(pool_id), partial(self._pool_row, pool_id, found), found)

    def _pool_row(self, pool_id: PoolID, found: dict[str, Rows]) -> Row | None:
        view = self._cluster.inventory.whole_pool(pool_id)
        self._counts.pop(pool_id, None)
        if view is None:
            return None
        occupancy = occupancy_of(view, self._cluster.taken)
        self._counts[pool_id] = occupancy.counts
        return pool_row(view, occupancy, self._cluster.taken, self._cluster.health, self._shape_id(view, found))

    def _shape_id(self, view: PoolView, found: dict[str, Rows]) -> str:
        row = shape_row(view)
        encoded = _encoder.encode(row)
        known = self._shape_ids.get(encoded)
        if known is None:
            known = self._shape_ids[encoded] = str(len(self._shape_ids))
            self._set("shapes", known, lambda: row, found)
        return known

    def _refresh_others(self, changes: TableChanges, found: dict[str, Rows]) -> None:
        for name in changes.nodes:
            self._set("nodes", name, partial(self._node_row, name), found)
        for key in changes.claims:
            self._set("claims", key, partial(self._claim_row, key), found)
        for key in changes.pods:
            self._set("pods", key, partial(self._pod_row, key), found)
            self._set("pending", key, partial(self._pending_row, key), found)
        if changes.events:
            self._refresh_events(changes.events, found)

    def _refresh_events(self, changed: set[str], found: dict[str, Rows]) -> None:
        times = self._event_times
        for key in changed:
            event = self._cluster.events.get(key)
            times.pop(key, None)
            if event is not None:
                times[key] = event_time(event)
            else:
                self._set("events", key, lambda: None, found)
        newest = sorted(times, key=times.__getitem__, reverse=True)[:MOST_EVENTS]
        for key in self._tables["events"].keys() - newest:
            self._set("events", key, lambda: None, found)
        # Of those that were left out before, one may be among the newest now.
        for key in newest:
            if key in changed or key not in self._tables["events"]:
                self._set("events", key, partial(self._event_row, key), found)

    def _event_row(self, key: str) -> Row | None:
        event = self._cluster.events.get(key)
        return event_row(event) if event is not None else None

    def _pod_row(self, key: str) -> Row | None:
        pod = self._cluster.pods.get(key)
        return pod_row(pod) if pod is not None else None

    def _node_row(self, name: str) -> Row | None:
        node = self._cluster.nodes.get(name)
        return node_row(node, self._cluster.ledgers.nodes.get(name)) if node is not None else None

    def _claim_row(self, key: str) -> Row | None:
        claim = self._cluster.claims.get(key)
        return claim_row(claim, self._cluster.users_of(claim)) if claim is not None else None

    def _pending_row(self, key: str) -> Row | None:
        pod = self._cluster.pods.get(key)
        return pending_row(pod, self._explained(key)) if pod is not None and is_waiting_for_node(pod) else None

    def _set(self, table: str, key: str, make: Callable[[], Row | None], found: dict[str, Rows]) -> None:
        rows = self._tables[table]
        try:
            row = make()
        except Exception:
            # One odd object must not freeze the page for all the others.
            log.exception("dashboard: no row for %s %s", table, key)
            row = None
        if row is None:
            if rows.pop(key, None) is not None:
                found[table][key] = GONE
            return
        encoded = _raw(row)
        if rows.get(key) != encoded:
            rows[key] = found[table][key] = encoded


def _raw(row: Row) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(row))
