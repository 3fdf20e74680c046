"""Score for packing: fill up nodes and pools whose devices are in use already. Only with a packing policy."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from dray.allocator import Allocation
from dray.api.core import Pod
from dray.scheduler.framework.interface import SKIP, CycleState, NodeFacet, PluginStatus
from dray.scheduler.framework.scoring import MAX_SCORE
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt
from dray.scheduler.snapshot import Snapshot


class DevicePacking:
    """`fullest` prefers the node with the largest part of its devices in use; `smallest-leftover` the node whose chosen devices
    come from pools that are open already, so that untouched pools stay whole for large requests."""

    name = "DevicePacking"
    score_depends_on = frozenset({NodeFacet.OBJECT, NodeFacet.DEVICES})

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        strategy = args.get("strategy", "fullest")
        if strategy not in ("fullest", "smallest-leftover"):
            raise ValueError(f"strategy: Unsupported value: {strategy!r}")
        self._strategy: str = strategy

    def pre_score(self, cycle: CycleState, pod: Pod, snapshot: Snapshot, feasible: int) -> PluginStatus | None:
        attempt = cycle.read(PodAttempt)
        return None if attempt is not None and attempt.asks_for_devices else SKIP

    def score_shape(self, cycle: CycleState, pod: Pod) -> Hashable:
        return (self._strategy, cycle.expect(PodAttempt).key)

    def score(self, cycle: CycleState, pod: Pod, node: NodeState) -> int:
        question = cycle.expect(PodAttempt).on(node).question
        answer = question.on(node.node) if question is not None else None
        if not isinstance(answer, Allocation):
            return 0
        score: Callable[[Allocation, NodeState], int] = (
            self._fullest if self._strategy == "fullest" else self._from_open_pools
        )
        return score(answer, node)

    def _fullest(self, allocation: Allocation, node: NodeState) -> int:
        pools = self._handle.devices.inventory.pools_on(node.node)
        used = sum(self._used(view).bit_count() for view in pools.pools)
        chosen = sum(len(devices) for devices in allocation.devices())
        return min(used + chosen, pools.size) * MAX_SCORE // pools.size if pools.size else 0

    def _from_open_pools(self, allocation: Allocation, node: NodeState) -> int:
        pools = self._handle.devices.inventory.pools_on(node.node)
        is_open = {view.pool_id: bool(self._used(view)) for view in pools.pools}
        chosen = [device.device_id for devices in allocation.devices() for device in devices]
        from_open = sum(is_open.get((device.driver, device.pool), False) for device in chosen)
        return from_open * MAX_SCORE // len(chosen) if chosen else 0

    def _used(self, view: Any) -> int:
        taken = self._handle.devices.ledger.taken(view)
        return taken.dedicated | taken.shared
