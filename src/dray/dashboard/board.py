"""Everything the page shows, kept as encoded rows: a change costs its own rows, a new reader costs joining them."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.allocator.pools import PoolView
from dray.dashboard.cluster import Changes, Cluster
from dray.dashboard.devices import pool_row, shape_row
from dray.dashboard.rows import claim_row, is_waiting, node_row, pending_row

Rows = dict[str, msgspec.Raw]
GONE = msgspec.Raw(b"null")
TABLES = ("shapes", "nodes", "pools", "claims", "pending")
POOLS_AT_ONCE = 20
_encoder = msgspec.json.Encoder()


class Board:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tables: dict[str, Rows] = {name: {} for name in TABLES}
        self._shape_ids: dict[bytes, str] = {}

    def snapshot(self) -> bytes:
        return _encoder.encode(self._tables)

    def refresh(self) -> bytes | None:
        """Brings the rows up to date; the answer holds those that differ, null for gone ones; None if none does."""
        changes = self._cluster.take_changes(POOLS_AT_ONCE)
        found: dict[str, Rows] = {name: {} for name in TABLES}
        self._look_at_pools(changes, found)
        self._look_at_others(changes, found)
        delta = {name: rows for name, rows in found.items() if rows}
        return _encoder.encode(delta) if delta else None

    def _look_at_pools(self, changes: Changes, found: dict[str, Rows]) -> None:
        for pool_id in changes.pools:
            view = self._cluster.inventory.whole_pool(pool_id)
            row = None
            if view is not None:
                shape = self._shape_id(view, found)
                row = pool_row(view, self._cluster.taken, self._cluster.health, shape)
            self._set("pools", "/".join(pool_id), row, found)

    def _shape_id(self, view: PoolView, found: dict[str, Rows]) -> str:
        row = shape_row(view)
        encoded = _encoder.encode(row)
        known = self._shape_ids.get(encoded)
        if known is None:
            known = self._shape_ids[encoded] = str(len(self._shape_ids))
            self._set("shapes", known, row, found)
        return known

    def _look_at_others(self, changes: Changes, found: dict[str, Rows]) -> None:
        cluster = self._cluster
        for name in changes.nodes:
            node = cluster.nodes.get(name)
            row = node_row(node, cluster.ledgers.nodes.get(name)) if node is not None else None
            self._set("nodes", name, row, found)
        for key in changes.claims:
            claim = cluster.claims.get(key)
            self._set("claims", key, claim_row(claim, cluster.users_of(claim)) if claim is not None else None, found)
        for key in changes.pods:
            pod = cluster.pods.get(key)
            self._set("pending", key, pending_row(pod) if pod is not None and is_waiting(pod) else None, found)

    def _set(self, table: str, key: str, row: dict[str, Any] | None, found: dict[str, Rows]) -> None:
        rows = self._tables[table]
        if row is None:
            if rows.pop(key, None) is not None:
                found[table][key] = GONE
            return
        encoded = msgspec.Raw(_encoder.encode(row))
        if rows.get(key) != encoded:
            rows[key] = found[table][key] = encoded
