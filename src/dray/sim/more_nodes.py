"""More nodes like the ones there are: with their labels, sizes, devices and the daemons that run on every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec.structs import replace as changed

from dray.api.core import Node, Pod
from dray.api.resource import Device, ResourceSlice
from dray.explain.world import World
from dray.sim.rehearsal import Placed

HOSTNAME_LABEL = "kubernetes.io/hostname"
# What the cluster puts on a node that is not well; a new one is.
_PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
MOST_NODES = 10_000


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


def template_of(world: World, name: str = "") -> NodeTemplate:
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


def templates_in(world: World) -> list[NodeTemplate]:
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
class Growth:
    template: NodeTemplate
    count: int


def grown(world: World, growth: Sequence[Growth]) -> World:
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


class Finished(Protocol):
    """A rehearsal that has been run."""

    def placed(self) -> list[Placed]: ...


def autoscale(
    world: World,
    templates: Sequence[tuple[NodeTemplate, int | None]],
    rehearse: Callable[[World], Finished],
    step: Callable[[], None] = lambda: None,
) -> tuple[Growth, ...]:
    """The smallest number of nodes per template that places every pod, or as many pods as such nodes can.

    Many nodes are added at a time and taken back by halves, so a thousand nodes cost about twenty rehearsals. The template
    that helps most pods goes first; the others are asked for what is left over.
    """
    scaler = _Scaler(world, rehearse, step)
    chosen: dict[int, int] = {}
    waiting = scaler.waiting(())
    while waiting:
        best = scaler.most_helpful(templates, chosen, waiting)
        if best is None:
            break
        index, needed, waiting = best
        chosen[index] = chosen.get(index, 0) + needed
    return scaler.trimmed(templates, chosen, waiting)


class _Scaler:
    def __init__(self, world: World, rehearse: Callable[[World], Finished], step: Callable[[], None]) -> None:
        self._world = world
        self._rehearse = rehearse
        self._step = step
        self._known: dict[tuple[tuple[str, int], ...], int] = {}

    def waiting(self, growth: Sequence[Growth]) -> int:
        key = tuple((row.template.name, row.count) for row in growth)
        if key not in self._known:
            self._step()
            placed = self._rehearse(grown(self._world, growth)).placed()
            self._known[key] = sum(row.outcome != "scheduled" for row in placed)
        return self._known[key]

    def most_helpful(
        self, templates: Sequence[tuple[NodeTemplate, int | None]], chosen: dict[int, int], waiting: int
    ) -> tuple[int, int, int] | None:
        """(template, nodes, pods still waiting) of the template with the fewest pods left, then the fewest nodes."""
        found: list[tuple[int, int, int]] = []
        for index, (template, limit) in enumerate(templates):
            room = (MOST_NODES if limit is None else limit) - chosen.get(index, 0)
            left, count = self._enough(template, templates, chosen, index, waiting, room)
            if left < waiting:
                found.append((left, count, index))
        if not found:
            return None
        left, count, index = min(found)
        return index, count, left

    def _enough(
        self,
        template: NodeTemplate,
        templates: Sequence[tuple[NodeTemplate, int | None]],
        chosen: dict[int, int],
        index: int,
        waiting: int,
        room: int,
    ) -> tuple[int, int]:
        """(pods that wait with as many nodes as help at all, smallest number of nodes that gets there)."""

        def left_with(count: int) -> int:
            return self.waiting(_growth(templates, {**chosen, index: chosen.get(index, 0) + count}))

        # A pod fits on a node of its own or on none, so more nodes than pods never help.
        most = min(waiting, room)
        if most <= 0:
            return waiting, 0
        count, best = 1, left_with(1)
        if best == waiting:
            best = left_with(most) if most > 1 else best
            if best == waiting:
                return waiting, 0
            count = most
        else:
            while best and count < most:
                more = min(count * 2, most)
                left = left_with(more)
                if left == best:
                    break
                count, best = more, left
        low = 0
        high = count
        while high - low > 1:
            middle = (low + high) // 2
            if left_with(middle) <= best:
                high = middle
            else:
                low = middle
        return best, high

    def trimmed(
        self, templates: Sequence[tuple[NodeTemplate, int | None]], chosen: dict[int, int], waiting: int
    ) -> tuple[Growth, ...]:
        """Nodes that a later choice has made superfluous go again."""
        for index in list(chosen):
            while chosen[index] and self.waiting(_growth(templates, {**chosen, index: chosen[index] - 1})) <= waiting:
                chosen[index] -= 1
        return _growth(templates, chosen)


def _growth(templates: Sequence[tuple[NodeTemplate, int | None]], chosen: dict[int, int]) -> tuple[Growth, ...]:
    return tuple(Growth(templates[index][0], count) for index, count in sorted(chosen.items()) if count)
