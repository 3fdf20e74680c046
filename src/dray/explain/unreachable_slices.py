"""Slices whose devices no node can reach: their node selectors match none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.matching import matches_node
from dray.api.resource import ResourceSlice
from dray.explain.cluster_objects import ClusterObjects


@dataclass(frozen=True, slots=True)
class UnreachableSlice:
    slice: ResourceSlice
    devices: int
    selector: str

    @property
    def message(self) -> str:
        count = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"has {count} that no node can reach: {self.selector} matches none"

    @property
    def fix(self) -> str:
        return f"label the nodes that reach them, or correct what driver {self.slice.spec.driver} publishes"


def unreachable_slices(world: ClusterObjects) -> Iterator[UnreachableSlice]:
    """Where no nodes were handed in, nobody can say. Slices of a node that is gone are told elsewhere."""
    if not world.nodes:
        return
    # Drivers publish the same selector again and again.
    reached: dict[str, bool] = {}

    def is_reached(wanted: str, selector: NodeSelector) -> bool:
        if wanted not in reached:
            reached[wanted] = any(matches_node(selector, node) for node in world.nodes)
        return reached[wanted]

    for each in world.slices:
        idle = [wanted for wanted, selector in _selectors(each) if not is_reached(wanted, selector)]
        if idle:
            yield UnreachableSlice(each, len(idle), idle[0])


def _selectors(each: ResourceSlice) -> Iterator[tuple[str, NodeSelector]]:
    """Of each device, in words and as it is."""
    for device in each.spec.devices:
        selector = each.spec.node_selector or device.node_selector
        if selector is not None:
            yield f"node selector {_in_words(selector)}", selector
        elif device.node_name:
            yield f"node name {device.node_name}", _of_node(device.node_name)


def _of_node(name: str) -> NodeSelector:
    row = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(row,)),))


def _in_words(selector: NodeSelector) -> str:
    terms = []
    for term in selector.node_selector_terms:
        rows = (*term.match_expressions, *term.match_fields)
        terms.append(" and ".join(f"{row.key} {row.operator} {', '.join(row.values)}".strip() for row in rows))
    return " or ".join(terms)
