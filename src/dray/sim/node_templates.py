"""Adds nodes to a cluster's objects, copied from an existing node: its labels, size, devices and daemon pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from dray.api.core import Node, Pod
from dray.api.resource import Device, ResourceSlice
from dray.explain.cluster_objects import ClusterObjects

HOSTNAME_LABEL = "kubernetes.io/hostname"
# What the cluster puts on a node that is not well; a new one is.
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


class TemplateError(ValueError):
    """There is no such node to make more of."""


@dataclass(frozen=True)
class NodeTemplate:
    name: str
    node: Node
    slices: tuple[ResourceSlice, ...]
    daemons: tuple[Pod, ...]

    def make(self, number: int) -> tuple[Node, list[ResourceSlice], list[Pod]]:
        name = f"{self.node.metadata.name}-new-{number}"
        return (
            self._node(name),
            [self._slice(each, name) for each in self.slices],
            [self._daemon(pod, name) for pod in self.daemons],
        )

    def _node(self, name: str) -> Node:
        labels = {**self.node.metadata.labels}
        if HOSTNAME_LABEL in labels:
            labels[HOSTNAME_LABEL] = name
        taints = tuple(taint for taint in self.node.spec.taints if not taint.key.startswith(_PASSING_TAINTS))
        metadata = changed(self.node.metadata, name=name, uid="", labels=labels)
        return changed(self.node, metadata=metadata, spec=changed(self.node.spec, taints=taints, unschedulable=False))

    def _slice(self, published: ResourceSlice, name: str) -> ResourceSlice:
        old, spec = self.node.metadata.name, published.spec
        pool = spec.pool.name.replace(old, name) if old in spec.pool.name else f"{spec.pool.name}-{name}"
        devices = tuple(_moved(device, old, name) for device in spec.devices)
        return changed(
            published,
            metadata=changed(published.metadata, name=f"{published.metadata.name}-{name}", uid=""),
            spec=changed(
                spec,
                node_name=name if spec.node_name == old else spec.node_name,
                pool=changed(spec.pool, name=pool),
                devices=devices,
            ),
        )

    def _daemon(self, pod: Pod, name: str) -> Pod:
        metadata = changed(pod.metadata, name=f"{pod.metadata.name}-{name}", uid="")
        return changed(pod, metadata=metadata, spec=changed(pod.spec, node_name=name))


def _moved(device: Device, old: str, name: str) -> Device:
    return changed(device, node_name=name) if device.node_name == old else device


def template_of(world: ClusterObjects, name: str = "") -> NodeTemplate:
    """The node of that name, or the only one there is, with the slices that are its alone and its daemons."""
    if not name:
        if len(world.nodes) != 1:
            raise TemplateError(f"a template holds one node, this one holds {len(world.nodes)}")
        name = world.nodes[0].metadata.name
    node = world.nodes_by_name.get(name)
    if node is None:
        raise TemplateError(f"no node named {name}")
    slices = tuple(each for each in world.slices if _is_of(each, name))
    daemons = tuple(
        pod
        for pod in world.pods
        if pod.spec.node_name == name and any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    )
    return NodeTemplate(name, node, slices, daemons)


def _is_of(published: ResourceSlice, name: str) -> bool:
    if published.spec.node_name:
        return published.spec.node_name == name
    devices = published.spec.devices
    return bool(devices) and all(device.node_name == name for device in devices)


def templates_in(world: ClusterObjects) -> list[NodeTemplate]:
    """One per kind of node: same labels, size, taints and devices."""
    by_kind: dict[object, NodeTemplate] = {}
    for node in world.nodes:
        template = template_of(world, node.metadata.name)
        by_kind.setdefault(_kind(template), template)
    return list(by_kind.values())


def _kind(template: NodeTemplate) -> object:
    node = template.node
    labels = tuple(sorted((key, value) for key, value in node.metadata.labels.items() if key != HOSTNAME_LABEL))
    sizes = tuple(sorted((name, amount.nanos) for name, amount in node.status.allocatable.items()))
    devices = tuple(
        sorted((each.spec.driver, len(each.spec.devices), repr(each.spec.devices)) for each in template.slices)
    )
    return labels, sizes, node.spec.taints, devices


@dataclass(frozen=True, slots=True)
class AddedNodes:
    template: NodeTemplate
    count: int


def grown(world: ClusterObjects, growth: Sequence[AddedNodes]) -> ClusterObjects:
    nodes, slices, pods = list(world.nodes), list(world.slices), list(world.pods)
    taken = set(world.nodes_by_name)
    for row in growth:
        number = 0
        for _ in range(row.count):
            number += 1
            while f"{row.template.node.metadata.name}-new-{number}" in taken:
                number += 1
            node, its_slices, daemons = row.template.make(number)
            taken.add(node.metadata.name)
            nodes.append(node)
            slices += its_slices
            pods += daemons
    return replace(world, nodes=tuple(nodes), slices=tuple(slices), pods=tuple(pods))
