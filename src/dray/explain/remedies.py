"""What would help, summed up over the nodes that are nearest: each change once, with the nodes that it would open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.explain.node_shortage import ShortRow
from dray.explain.verdicts import NodeVerdict
from dray.explain.what_if import Help

MOST_HELPS = 6


def helps_of(nearest: Sequence[NodeVerdict]) -> Iterator[Help]:
    """Each change once, with the nodes that it would open."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for verdict in nearest:
        devices = verdict.devices
        for row in (*_node_helps(verdict), *(_device_helps(verdict) if devices is not None else ())):
            nodes.setdefault((row.code, row.text), []).append(verdict.node)
    for (code, text), names in list(nodes.items())[:MOST_HELPS]:
        yield Help(code, f"{text} (then {', '.join(names)} {'fits' if len(names) == 1 else 'fit'})")


def _device_helps(verdict: NodeVerdict) -> Sequence[Help]:
    """Only where devices are the only thing in the way."""
    assert verdict.devices is not None
    return verdict.devices.helps if len(verdict.refusals) == 1 else ()


_SIMPLE_HELPS = {
    "node-unschedulable": ("uncordon", "uncordon the node"),
    "node-taint": ("tolerate-node-taint", "let the pod tolerate the node's taint"),
}


def _node_helps(verdict: NodeVerdict) -> list[Help]:
    """Changes that are sure to help because nothing else is in the way."""
    if len(verdict.refusals) != 1:
        return []
    refusal = verdict.refusals[0]
    if refusal.code in _SIMPLE_HELPS:
        return [Help(*_SIMPLE_HELPS[refusal.code])]
    parts = [_resource_help(row) for row in refusal.rows]
    if not parts or any(row.claim for row in refusal.rows):
        return []
    # Each of them alone would leave the others in the way.
    return [Help(parts[0].code, "; and ".join(part.text for part in parts))]


def _resource_help(row: ShortRow) -> Help:
    if row.allocatable == "0":
        return Help(
            "offer-resource",
            f"have something offer {row.resource} there: a device plugin, or devices of a class with that "
            "extendedResourceName",
        )
    if row.free == row.allocatable:
        return Help("less-node-resources", f"ask for at most {row.free} {row.resource}, the node has no more")
    return Help("free-node-resources", f"free {row.resource} or ask for at most {row.free}")
