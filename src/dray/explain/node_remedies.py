"""Collects the changes that would let a pod fit on the nearest nodes: each change once, with the nodes that would then fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.api.quantity import Quantity
from dray.explain.node_shortage import ShortRow
from dray.explain.verdicts import NodeVerdict
from dray.explain.what_if import Remedy

MOST_REMEDIES = 6


def remedies_of(nearest: Sequence[NodeVerdict]) -> Iterator[Remedy]:
    """Each change once, with the nodes that it would open."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for verdict in nearest:
        devices = verdict.devices
        for row in (*_node_remedies(verdict), *(_device_remedies(verdict) if devices is not None else ())):
            nodes.setdefault((row.code, row.text), []).append(verdict.node)
    for (code, text), names in list(nodes.items())[:MOST_REMEDIES]:
        yield Remedy(code, f"{text} (then {', '.join(names)} {'fits' if len(names) == 1 else 'fit'})")


def _device_remedies(verdict: NodeVerdict) -> Sequence[Remedy]:
    """Only where devices are the only thing in the way."""
    assert verdict.devices is not None
    return verdict.devices.helps if len(verdict.refusals) == 1 else ()


_SIMPLE_REMEDIES = {
    "node-unschedulable": ("uncordon", "uncordon the node"),
    "node-taint": ("tolerate-node-taint", "let the pod tolerate the node's taint"),
}


def _node_remedies(verdict: NodeVerdict) -> list[Remedy]:
    """Changes that are sure to help because nothing else is in the way."""
    if len(verdict.refusals) != 1:
        return []
    refusal = verdict.refusals[0]
    if refusal.code in _SIMPLE_REMEDIES:
        return [Remedy(*_SIMPLE_REMEDIES[refusal.code])]
    parts = [_resource_remedy(row) for row in refusal.rows]
    if not parts or any(row.claim for row in refusal.rows):
        return []
    # Each of them alone would leave the others in the way.
    return [Remedy(parts[0].code, "; and ".join(part.text for part in parts))]


def _resource_remedy(row: ShortRow) -> Remedy:
    if row.allocatable == "0":
        return Remedy(
            "offer-resource",
            f"have something offer {row.resource} there: a device plugin, or devices of a class with that "
            "extendedResourceName",
        )
    if row.free == row.allocatable:
        return Remedy("less-node-resources", f"ask for at most {row.free} {row.resource}, the node has no more")
    if Quantity.parse(row.asked) > Quantity.parse(row.allocatable):
        # However much is freed, the node never has enough.
        text = f"at most {row.free} {row.resource}, or at most {row.allocatable} and free as much"
        if row.free == "0":
            text = f"at most {row.allocatable} {row.resource} and free as much"
        return Remedy("less-node-resources", f"ask for {text}")
    return Remedy("free-node-resources", f"free {row.resource} or ask for at most {row.free}")
