"""Device verdicts of many nodes. Nodes whose devices differ in names only share one, told with their own names."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dray.allocator import Allocator, Question
from dray.allocator.inventory import NodePools
from dray.allocator.node_report import report_key
from dray.api.core import Node
from dray.api.dra.pools import DeviceID
from dray.explain.device_holders import DeviceHolders
from dray.explain.nearest_device import NearestMiss, holders_concerned
from dray.explain.verdicts import DeviceVerdict, device_verdict
from dray.explain.what_if import WhatIfContext


class DeviceVerdicts:
    """The verdicts of one question on the nodes of a cluster that does not change meanwhile."""

    def __init__(self, allocator: Allocator, question: Question, holders: DeviceHolders) -> None:
        self._allocator = allocator
        self._question = question
        self._holders = holders
        self._known: dict[Hashable, tuple[NodePools, DeviceVerdict | None]] = {}

    def on(self, node: Node, conditions: WhatIfContext | None = None) -> DeviceVerdict | None:
        """With `conditions` it is tried what would help."""
        pools = self._allocator.inventory.pools_on(node)
        key = self._key(pools, conditions)
        known = self._known.get(key) if key is not None else None
        if known is None:
            verdict = device_verdict(self._allocator, self._question, node, self._holders, conditions)
            if key is not None:
                self._known[key] = (pools, verdict)
            return verdict
        there, verdict = known
        return self._renamed(verdict, there, pools) if verdict is not None else None

    def _key(self, pools: NodePools, conditions: WhatIfContext | None) -> Hashable:
        """Equal for nodes that share a verdict. What would help depends on the claims that hold devices of the node, and on its cpu and memory if they count."""
        key = report_key(self._allocator, pools)
        if key is None or conditions is None:
            return key
        if conditions.accepts is not None or self._holders.claims_in(view.pool_id for view in pools.pools):
            return None
        return (key, conditions.own)

    def _renamed(self, verdict: DeviceVerdict, there: NodePools, here: NodePools) -> DeviceVerdict:
        nearest, message = verdict.nearest, verdict.message
        if verdict.example is not None:
            message = message.replace(str(verdict.example), str(_counterpart(verdict.example, there, here)))
        if nearest is not None:
            nearest = self._renamed_miss(nearest, there, here)
        return replace(verdict, message=message, nearest=nearest)

    def _renamed_miss(self, miss: NearestMiss, there: NodePools, here: NodePools) -> NearestMiss:
        device_id = _counterpart(miss.device_id, there, here)
        holders = holders_concerned(device_id, miss.code, here, self._holders) if not miss.expression else ()
        return replace(miss, device_id=device_id, holders=holders)


def _counterpart(device_id: DeviceID, there: NodePools, here: NodePools) -> DeviceID:
    """The device in the same place of the other node."""
    for view, other in zip(there.pools, here.pools, strict=True):
        if view.pool_id == device_id[:2]:
            return other.device_id(view.positions[device_id.device])
    raise LookupError(f"device {device_id} is not on the node")
