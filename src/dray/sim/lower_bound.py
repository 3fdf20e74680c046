"""A lower bound for autoscaling: no choice of nodes that places these pods is smaller or cheaper, whatever the policy.

For each amount, the pods that get a place need so much in all, the cluster has so much free, and each further node brings so much; what is
missing must come from further nodes. Amounts are cpu, memory, storage, pods, and parts of devices: of a whole device, of a card that partitions
draw from, of a device with shares. Selectors, taints and the borders between nodes are left out, so the true number may be larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.accounting.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.requests import Option
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.scheduler.nodes import NodeState
from dray.scheduler.packing import Bin, BinKind, DeviceAsk, Fragmentation, part_of
from dray.sim.simulation import Simulation

Amounts = dict[str, float]
NODE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
# Sums of parts of devices are not exact.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class PricedNode:
    """A node that could be added, by its name in the simulation, and its price."""

    name: str
    price: float


def lower_bound(simulation: Simulation, pods: Iterable[Pod], nodes: Sequence[PricedNode]) -> float:
    """The least total price of further nodes that these waiting pods need. `simulation` has one of each of `nodes`, and has not run."""
    needs = _Needs(simulation, {node.name for node in nodes})
    missing = needs.missing(pods)
    bounds = [
        min(
            (node.price * amount / room for node in nodes if (room := needs.room_on(node.name).get(name, 0.0)) > 0),
            default=0.0,
        )
        for name, amount in missing.items()
    ]
    return max(bounds, default=0.0)


def whole_nodes(bound: float) -> int:
    """The bound where every node costs one."""
    return math.ceil(bound - TOLERANCE)


class _Needs:
    """What pods need and what nodes have, in amounts that can be added up."""

    def __init__(self, simulation: Simulation, added: set[str]) -> None:
        self._simulation = simulation
        self._handle = simulation.scheduler.handle
        self._fragmentation = Fragmentation(())
        self._rooms: dict[str, tuple[NodeState, list[Bin]]] = {}
        self._handle.snapshot.refresh()
        inventory, ledger = self._handle.devices.inventory, self._handle.devices.ledger
        for node in self._handle.snapshot.nodes:
            bins = self._fragmentation.bins_on(inventory.pools_on(node.node), ledger)
            self._rooms[node.name] = (node, bins)
        self._added = added
        self._kinds: dict[BinKind, None] = {each.kind: None for _, bins in self._rooms.values() for each in bins}
        self._group_of: dict[BinKind, str] = {}
        self._unbounded = list(self._kinds_without_bins())

    def _kinds_without_bins(self) -> Iterator[DeviceKind]:
        """Devices that any number of nodes or claims can use."""
        inventory = self._handle.devices.inventory
        for pool_id in inventory.pool_ids():
            view = inventory.whole_pool(pool_id)
            for kind in view.shape.kinds if view is not None else ():
                has_capacity = any(each.value.nanos > 0 for each in kind.device.capacity.values())
                if view is not None and (not view.is_local or (kind.allows_multiple and not has_capacity)):
                    yield kind

    def missing(self, pods: Iterable[Pod]) -> Amounts:
        asked = self._asked(pods)
        free: Amounts = {}
        for name in self._rooms:
            if name not in self._added:
                for resource, amount in self.room_on(name).items():
                    free[resource] = free.get(resource, 0.0) + amount
        return {
            name: amount - free.get(name, 0.0)
            for name, amount in asked.items()
            if amount - free.get(name, 0.0) > TOLERANCE
        }

    def room_on(self, name: str) -> Amounts:
        node, bins = self._rooms[name]
        ledger = node.ledger
        room: Amounts = {each: max(0, ledger.allocatable(each) - ledger.requested(each)) for each in NODE_RESOURCES}
        room[PODS] = max(0, ledger.allocatable(PODS) - ledger.pod_count)
        for each in bins:
            group = self._group_of.get(each.kind)
            if group is not None:
                room[group] = room.get(group, 0.0) + each.free
        return room

    def _asked(self, pods: Iterable[Pod]) -> Amounts:
        asked: Amounts = {PODS: 0.0}
        claims: dict[str, ResourceClaim] = {}
        for pod in pods:
            asked[PODS] += 1
            demand = self._handle.snapshot.demand_of(pod)
            for name, amount in demand.amounts():
                if name in NODE_RESOURCES:
                    asked[name] = asked.get(name, 0.0) + amount
            for claim in self._simulation.claims_of(pod):
                if claim.status.allocation is None:
                    claims[claim.metadata.uid] = claim
        asked |= self._parts([part for claim in claims.values() for part in self._requests(claim)])
        return asked

    def _requests(self, claim: ResourceClaim) -> Iterator[dict[BinKind, float]]:
        """For each request, the least part of a device that it takes in all, by the bins that can serve it."""
        problem = self._handle.devices.allocator.question((claim,)).problem
        for request in problem.requests if problem is not None else ():
            if request.options[0].admin_access or any(map(self._is_unbounded, request.options)):
                continue
            parts: dict[BinKind, float] = {}
            for option in request.options:
                ask = DeviceAsk([option])
                for kind in self._kinds:
                    uses = ask.uses(kind)
                    if uses:
                        part = ask.count * part_of(uses[0], kind.totals)
                        parts[kind] = min(part, parts.get(kind, part))
            if parts:
                yield parts

    def _is_unbounded(self, option: Option) -> bool:
        return any(option.device_filter.verdict(kind) is True for kind in self._unbounded)

    def _parts(self, requests: Sequence[Mapping[BinKind, float]]) -> Amounts:
        """Sums over groups of bins: bins that one request may choose from are one group."""
        groups: dict[BinKind, set[BinKind]] = {}
        for request in requests:
            merged = set(request).union(*[groups.get(kind, set()) for kind in request])
            for kind in merged:
                groups[kind] = merged
        names: dict[int, str] = {}
        for kind, group in groups.items():
            self._group_of[kind] = names.setdefault(id(group), f"devices {len(names)}")
        sums: Amounts = {}
        for request in requests:
            name = self._group_of[next(iter(request))]
            sums[name] = sums.get(name, 0.0) + min(request.values())
        return sums
