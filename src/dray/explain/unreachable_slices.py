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
        idle = [(wanted, devices) for wanted, selector, devices in _selectors(each) if not is_reached(wanted, selector)]
        if idle:
            yield UnreachableSlice(each, sum(devices for _, devices in idle), idle[0][0])


def _selectors(each: ResourceSlice) -> Iterator[tuple[str, NodeSelector, int]]:
    """In words and as they are, with how many devices each of them is for: one of the slice is for all its devices."""
    if each.spec.node_selector is not None:
        if each.spec.devices:
            yield _of_selector(each.spec.node_selector), each.spec.node_selector, len(each.spec.devices)
        return
    for device in each.spec.devices:
        if device.node_selector is not None:
            yield _of_selector(device.node_selector), device.node_selector, 1
        elif device.node_name:
            yield f"node name {device.node_name}", _of_node(device.node_name), 1


def _of_selector(selector: NodeSelector) -> str:
    return f"node selector {_in_words(selector)}"


def _of_node(name: str) -> NodeSelector:
    row = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(row,)),))


def _in_words(selector: NodeSelector) -> str:
    terms = []
    for term in selector.node_selector_terms:
        rows = (*term.match_expressions, *term.match_fields)
        terms.append(" and ".join(f"{row.key} {row.operator} {', '.join(row.values)}".strip() for row in rows))
    return " or ".join(terms)
