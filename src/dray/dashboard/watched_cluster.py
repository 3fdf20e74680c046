"""The cluster as the page knows it: local copies by watch, the two ledgers over them, and notes of what changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from dray import accounting
from dray.accounting import AccountingError, ClusterLedger, DeviceIndex, PodRef, pod_demand
from dray.accounting.device_charges import charges_of_placed
from dray.allocator import Features, Inventory, Ledger
from dray.api.core import Event, Node, Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import claim_names_by_entry
from dray.api.dra.pod_phase import is_on_node
from dray.api.dra.pools import PoolID
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client import (
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Client,
    Handler,
    Informer,
    Informers,
    Kind,
)
from dray.dashboard.device_health import (
    DeviceHealthReports,
    reported_by,
)
from dray.explain.cluster_objects import ClusterObjects
from dray.features import FeatureGates

T = TypeVar("T", bound=Any)
BY_CLAIM = "claim"
BY_POOL = "pool"
OPTIONAL_KINDS_S = 2.0


@dataclass(slots=True)
class TableChanges:
    """Keys of rows to look at again."""

    nodes: set[str] = field(default_factory=set)
    pools: set[PoolID] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.pools or self.claims or self.pods or self.events)


def key_of(obj: Any) -> str:
    namespace = obj.metadata.namespace
    return f"{namespace}/{obj.metadata.name}" if namespace else str(obj.metadata.name)


class WatchedCluster:
    """`start()`, `await synced()`; `changed` is called after each event, `take_changes()` says what it touched."""

    def __init__(self, client: Client, gates: FeatureGates, changed: Callable[[], None]) -> None:
        self._informers = Informers(client)
        self._changed = changed
        self._changes = TableChanges()
        features = Features.from_gates(gates)
        self.inventory = Inventory(features)
        self.taken = Ledger(features)
        self.ledgers = ClusterLedger()
        self.oddities: dict[str, str] = {}
        self.health = DeviceHealthReports()
        self._published = DeviceIndex()
        self._classes: dict[str, DeviceClass] = {}
        self._account = accounting.DeviceLookup(self._published, self._classes)
        # Classes, slices and rules come first: what follows is counted by them.
        follow = self._follow
        self.classes = follow(DEVICE_CLASSES, self._put_class, self._drop_class)
        self.rules = follow(TAINT_RULES, self._put_rule, self._drop_rule)
        self.slices = follow(SLICES, self._put_slice, self._drop_slice)
        self.nodes = follow(NODES, self._put_node, self._drop_node)
        self.claims = follow(CLAIMS, self._put_claim, self._drop_claim)
        self.pods = follow(PODS, self._put_pod, self._drop_pod)
        self.events = follow(EVENTS, self._touch_event, self._touch_event)
        others: tuple[Kind[Any], ...] = (TEMPLATES, NAMESPACES, PRIORITY_CLASSES, QUOTAS)
        self._others = [self._informers.of(kind) for kind in others]
        self.claims.add_indexer(BY_POOL, _pools_of)
        self.pods.add_indexer(BY_CLAIM, _claims_of)
        self._claims_by_name = _ByName(self.claims)

    def start(self) -> None:
        self._informers.start()

    async def synced(self) -> None:
        """Kinds that a cluster need not have are waited for a moment only."""
        needed = (self.slices, self.nodes, self.claims, self.pods, self.classes)
        await asyncio.gather(*(informer.synced() for informer in needed))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPTIONAL_KINDS_S):
                await self._informers.synced()

    async def stop(self) -> None:
        await self._informers.stop()

    def take_changes(self, most_pools: int) -> TableChanges:
        """What changed; pools in portions, since a large cluster's would keep everybody else waiting."""
        changes, self._changes = self._changes, TableChanges()
        while len(changes.pools) > most_pools:
            self._changes.pools.add(changes.pools.pop())
        return changes

    def look_again(self, pods: Iterable[str]) -> None:
        """More is known about these pods, by namespace/name, than their objects say."""
        self._changes.pods.update(pods)
        if self._changes:
            self._changed()

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def world(self) -> ClusterObjects:
        """Everything at this moment; the objects themselves never change."""
        sources: tuple[Informer[Any], ...] = (
            self.classes,
            self.rules,
            self.slices,
            self.nodes,
            self.claims,
            self.pods,
            self.events,
            *self._others,
        )
        return ClusterObjects.of(obj for informer in sources for obj in informer)

    def claims_in(self, pool_id: PoolID) -> list[ResourceClaim]:
        return self.claims.by_index(BY_POOL, "/".join(pool_id))

    def users_of(self, claim: ResourceClaim) -> list[Pod]:
        """Pods that name the claim, whether it is reserved for them or not."""
        return self.pods.by_index(BY_CLAIM, key_of(claim))

    # --- events

    def _follow(self, kind: Kind[T], put: Callable[[T], None], drop: Callable[[T], None]) -> Informer[T]:
        informer = self._informers.of(kind)
        informer.add_handler(
            Handler(
                on_add=partial(self._noted, put),
                on_update=lambda old, new: self._noted(put, new),
                on_delete=partial(self._noted, drop),
            )
        )
        return informer

    def _noted(self, action: Callable[[T], None], obj: T) -> None:
        action(obj)
        if self._changes:
            self._changed()

    def _put_class(self, each: DeviceClass) -> None:
        self._classes[each.metadata.name] = each

    def _drop_class(self, each: DeviceClass) -> None:
        self._classes.pop(each.metadata.name, None)

    def _put_rule(self, rule: DeviceTaintRule) -> None:
        self.inventory.apply_taint_rule(rule)
        self._touch_pools()

    def _drop_rule(self, rule: DeviceTaintRule) -> None:
        self.inventory.remove_taint_rule(rule.metadata.name)
        self._touch_pools()

    def _touch_pools(self) -> None:
        # A rule that changed may have let go of any pool.
        self._changes.pools.update(self.inventory.pool_ids())

    def _put_slice(self, published: ResourceSlice) -> None:
        before = self.inventory.slices.get(published.metadata.name)
        if before is not None:
            self._changes.pools.add((before.spec.driver, before.spec.pool.name))
        self.inventory.apply_slice(published)
        self._published.apply(published)
        self._touch_slice(published)

    def _drop_slice(self, published: ResourceSlice) -> None:
        self.inventory.remove_slice(published.metadata.name)
        self._published.drop(published.metadata.name)
        self._touch_slice(published)

    def _touch_slice(self, published: ResourceSlice) -> None:
        pool_id = (published.spec.driver, published.spec.pool.name)
        self._changes.pools.add(pool_id)
        for claim in self.claims_in(pool_id):
            self._count_users(claim)

    def _put_node(self, node: Node) -> None:
        self.ledgers.set_node(node)
        self._changes.nodes.add(node.metadata.name)

    def _drop_node(self, node: Node) -> None:
        self.ledgers.remove_node(node.metadata.name)
        self._changes.nodes.add(node.metadata.name)

    def _put_claim(self, claim: ResourceClaim) -> None:
        before = self.taken.holds(claim.metadata.namespace, claim.metadata.name)
        self.taken.apply_claim(claim)
        self.health.put_claim(claim)
        self._touch_claim(claim, recount=before != (claim.status.allocation is not None))

    def _drop_claim(self, claim: ResourceClaim) -> None:
        self.taken.remove_claim(claim.metadata.namespace, claim.metadata.name)
        self.health.forget_claim(key_of(claim))
        self._touch_claim(claim, recount=True)

    def _touch_claim(self, claim: ResourceClaim, *, recount: bool) -> None:
        self._changes.claims.add(key_of(claim))
        if recount:
            self._count_users(claim)
        # The ledger's log has what a claim let go of as well as what it holds now.
        self._changes.pools.update(self._pools_touched())
        self._changes.pools.update(tuple(text.split("/", 1)) for text in _pools_of(claim))  # type: ignore[misc]

    def _pools_touched(self) -> Iterator[PoolID]:
        seen, self._seen = self._seen, self.taken.changes.end
        found = self.taken.changes.since(seen)
        yield from self.inventory.pool_ids() if found is None else found

    _seen = 0

    def _put_pod(self, pod: Pod) -> None:
        self._changes.pods.add(key_of(pod))
        self._count(pod)
        self._touch_claims_of(pod)
        before = self.health.reports_of(key_of(pod))
        self.health.put_pod(key_of(pod), reported_by(pod, self._claims_by_name))
        for report in {*before, *self.health.reports_of(key_of(pod))}:
            self._changes.pools.add(report[:2])

    def _drop_pod(self, pod: Pod) -> None:
        key = key_of(pod)
        self._changes.pods.add(key)
        self._changes.pools.update(report[:2] for report in self.health.reports_of(key))
        self.health.forget_pod(key)
        self._touch_claims_of(pod)
        self._leave(pod)

    def _touch_event(self, event: Event) -> None:
        self._changes.events.add(key_of(event))

    def _touch_claims_of(self, pod: Pod) -> None:
        self._changes.claims.update(f"{pod.metadata.namespace}/{name}" for name in claim_names_by_entry(pod).values())

    # --- the ledger of nodes

    def _count_users(self, claim: ResourceClaim) -> None:
        for pod in self.users_of(claim):
            self._count(pod)

    def _count(self, pod: Pod) -> None:
        if not is_on_node(pod):
            self._leave(pod)
            return
        charges, odd = charges_of_placed(pod, self._claims_by_name, self._account)
        try:
            demand = pod_demand(pod, charges)
        except AccountingError as problem:
            self._leave(pod)
            self.oddities[key_of(pod)] = f"is not counted: {problem}"
            return
        self.oddities.pop(key_of(pod), None)
        if odd:
            self.oddities[key_of(pod)] = odd
        self.ledgers.add(pod.spec.node_name, PodRef.of(pod), demand)
        self._changes.nodes.add(pod.spec.node_name)

    def _leave(self, pod: Pod) -> None:
        self.oddities.pop(key_of(pod), None)
        where = self.ledgers.node_of(PodRef.of(pod))
        if where is not None:
            self.ledgers.remove(PodRef.of(pod))
            self._changes.nodes.add(where)


def _pools_of(claim: ResourceClaim) -> set[str]:
    return {f"{row.driver}/{row.pool}" for row in allocation_results(claim)}


def _claims_of(pod: Pod) -> set[str]:
    return {f"{pod.metadata.namespace}/{name}" for name in claim_names_by_entry(pod).values()}


class _ByName(Mapping[tuple[str, str], ResourceClaim]):
    """The claims of an informer by namespace and name."""

    def __init__(self, informer: Informer[ResourceClaim]) -> None:
        self._informer = informer

    def __getitem__(self, key: tuple[str, str]) -> ResourceClaim:
        found = self._informer.get("/".join(key))
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((claim.metadata.namespace, claim.metadata.name) for claim in self._informer)

    def __len__(self) -> int:
        return len(self._informer)
