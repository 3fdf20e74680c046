"""Prefers nodes whose cpu and memory are used evenly, and more evenly with the pod than without."""

from collections.abc import Hashable, Mapping, Sequence
from math import sqrt
from typing import Any

from dray.api.core import Pod
from dray.scheduler.framework.interface import SKIP, CycleState, NodeFacet, PluginStatus
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.node_resources_fit import SpecDemand, demand_on, device_key, is_extended
from dray.scheduler.snapshot import Snapshot


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    score_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.RESOURCES, NodeFacet.DEVICES})

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        resources = (args or {}).get("resources") or [{"name": "cpu"}, {"name": "memory"}]
        self._resources = tuple(str(row["name"]) for row in resources)

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        demand = cycle.expect(SpecDemand).demand
        asks = device_key(cycle) is not None or any(demand.amount(name) for name in self._resources)
        return None if asks else SKIP

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return (cycle.expect(SpecDemand).demand, self._resources, device_key(cycle))

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        demand, ledger = demand_on(cycle, node), node.ledger
        before, after = [], []
        for name in self._resources:
            allocatable, wanted = ledger.allocatable(name), demand.amount(name)
            if not allocatable or (not wanted and is_extended(name)):
                continue
            requested = ledger.requested(name)
            before.append(min(requested / allocatable, 1.0))
            after.append(min((requested + wanted) / allocatable, 1.0))
        return 50 + (50 + _evenness(after) - _evenness(before)) // 2


def _evenness(fractions: Sequence[float]) -> int:
    """From the standard deviation, rounded as Kubernetes rounds it."""
    if len(fractions) < 2:
        return 100
    if len(fractions) == 2:
        return int((1 - abs(fractions[0] - fractions[1]) / 2) * 100)
    total = squares = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return int((1 - sqrt(squares / len(fractions))) * 100)
