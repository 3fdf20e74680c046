"""Finds which nodes to add, and how many, so that every waiting pod gets a place: the fewest, or the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dray.explain.cluster_objects import ClusterObjects
from dray.sim.lower_bound import PricedNode, lower_bound
from dray.sim.node_templates import AddedNodes, NodeTemplate, grown, templates_in
from dray.sim.simulation import Placed, Simulation

MOST_NODES = 10_000
# Simulations that may be spent on replacing nodes of one shape by another's.
MOST_REPLACEMENTS = 60


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A kind of node that can be added: so many at most, each at this price."""

    template: NodeTemplate
    limit: int = MOST_NODES
    price: float = 1.0


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """What one policy needs. `ended` is the simulation with the added nodes."""

    policy: str
    growth: tuple[AddedNodes, ...]
    ended: Simulation
    waiting: int
    cost: float

    @property
    def nodes(self) -> int:
        return sum(row.count for row in self.growth)


def shapes_in(world: ClusterObjects) -> list[NodeShape]:
    """Each kind of node in the cluster, as many as are needed."""
    return [NodeShape(template) for template in templates_in(world)]


def autoscale(
    policy: str,
    world: ClusterObjects,
    shapes: Sequence[NodeShape],
    simulation_of: Callable[[ClusterObjects], Simulation],
    step: Callable[[], None] = lambda: None,
) -> Autoscaled:
    """As an autoscaler would: places what fits, then adds nodes for what is left over. `step` is called before each simulation."""

    def run(bigger: ClusterObjects) -> Simulation:
        simulation = simulation_of(bigger)
        simulation.run()
        return simulation

    step()
    before = run(world)
    settled = before.world()
    growth = find_growth(settled, shapes, lambda bigger: run(bigger).placed(), step)
    step()
    ended = run(grown(settled, growth)).continues(before)
    waiting = sum(row.outcome != "scheduled" for row in ended.placed())
    return Autoscaled(policy, growth, ended, waiting, cost_of(shapes, growth))


def best_of(found: Sequence[Autoscaled]) -> Autoscaled:
    """The one that leaves the fewest pods waiting, then the cheapest; of equals the first."""
    return min(found, key=lambda each: (each.waiting, each.cost))


def cost_of(shapes: Sequence[NodeShape], growth: Sequence[AddedNodes]) -> float:
    prices = {id(shape.template): shape.price for shape in shapes}
    return sum(prices[id(row.template)] * row.count for row in growth)


def bound_of(
    world: ClusterObjects,
    shapes: Sequence[NodeShape],
    answer: Autoscaled,
    simulation_of: Callable[[ClusterObjects], Simulation],
) -> float:
    """The least cost at which any policy could place the pods that the answer places."""
    one_of_each = tuple(AddedNodes(shape.template, 1) for shape in shapes)
    bigger = grown(world, one_of_each)
    new = bigger.nodes[len(world.nodes) :]
    nodes = [PricedNode(node.metadata.name, shape.price) for node, shape in zip(new, shapes, strict=True)]
    placed = {row.pod.metadata.uid for row in answer.ended.placed() if row.outcome == "scheduled"}
    simulation = simulation_of(bigger)
    pods = [pod for pod in simulation.prepared.waiting if pod.metadata.uid in placed]
    return lower_bound(simulation, pods, nodes)


def find_growth(
    world: ClusterObjects,
    shapes: Sequence[NodeShape],
    simulate: Callable[[ClusterObjects], list[Placed]],
    step: Callable[[], None] = lambda: None,
) -> tuple[AddedNodes, ...]:
    """Nodes that place every pod, or as many pods as such nodes can, at the lowest cost that was found.

    Many nodes are added at a time and taken back by halves, so a thousand nodes cost about twenty simulations. The shape
    that helps most pods goes first; the others are asked for what is left over. Then nodes are replaced by those of other shapes while that
    makes the answer cheaper.
    """
    scaler = _Scaler(world, shapes, simulate, step)
    chosen: dict[int, int] = {}
    waiting = scaler.waiting(chosen)
    while waiting:
        best = scaler.most_helpful(chosen, waiting)
        if best is None:
            break
        index, needed, waiting = best
        chosen[index] = chosen.get(index, 0) + needed
    chosen = scaler.cheaper(scaler.trimmed(chosen, waiting), waiting)
    return scaler.growth(chosen)


class _Scaler:
    """`chosen` is a number of nodes for each shape, by its place among the shapes."""

    def __init__(
        self,
        world: ClusterObjects,
        shapes: Sequence[NodeShape],
        simulate: Callable[[ClusterObjects], list[Placed]],
        step: Callable[[], None],
    ) -> None:
        self._world = world
        self._shapes = shapes
        self._simulate = simulate
        self._step = step
        self._known: dict[tuple[tuple[int, int], ...], int] = {}

    def growth(self, chosen: dict[int, int]) -> tuple[AddedNodes, ...]:
        return tuple(
            AddedNodes(self._shapes[index].template, count) for index, count in sorted(chosen.items()) if count
        )

    def cost(self, chosen: dict[int, int]) -> float:
        return sum(self._shapes[index].price * count for index, count in chosen.items())

    def waiting(self, chosen: dict[int, int]) -> int:
        key = tuple(sorted((index, count) for index, count in chosen.items() if count))
        if key not in self._known:
            self._step()
            placed = self._simulate(grown(self._world, self.growth(chosen)))
            self._known[key] = sum(row.outcome != "scheduled" for row in placed)
        return self._known[key]

    def most_helpful(self, chosen: dict[int, int], waiting: int) -> tuple[int, int, int] | None:
        """(shape, nodes, pods still waiting) of the shape with the fewest pods left, then the lowest cost."""
        found: list[tuple[int, float, int, int]] = []
        for index, shape in enumerate(self._shapes):
            left, count = self._enough(chosen, index, waiting)
            if left < waiting:
                found.append((left, shape.price * count, count, index))
        if not found:
            return None
        left, _, count, index = min(found)
        return index, count, left

    def _enough(self, chosen: dict[int, int], index: int, waiting: int) -> tuple[int, int]:
        """(pods that wait with as many nodes as help at all, smallest number of nodes that gets there)."""

        def left_with(count: int) -> int:
            return self.waiting({**chosen, index: chosen.get(index, 0) + count})

        # A pod fits on a node of its own or on none, so more nodes than pods never help.
        most = min(waiting, self._shapes[index].limit - chosen.get(index, 0))
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

    def trimmed(self, chosen: dict[int, int], waiting: int) -> dict[int, int]:
        """Nodes that a later choice has made superfluous go again, the dearest first."""
        chosen = dict(chosen)
        for index in sorted(chosen, key=lambda each: -self._shapes[each].price):
            while chosen[index] and self.waiting({**chosen, index: chosen[index] - 1}) <= waiting:
                chosen[index] -= 1
        return chosen

    def cheaper(self, chosen: dict[int, int], waiting: int) -> dict[int, int]:
        """One node less of a shape, and what it takes of another: kept where that costs less and leaves no more pods waiting."""
        if len(self._shapes) < 2:
            return chosen
        until = len(self._known) + MOST_REPLACEMENTS
        better: dict[int, int] | None = chosen
        while better is not None:
            chosen = better
            better = self._replacement(chosen, waiting, until)
        return chosen

    def _replacement(self, chosen: dict[int, int], waiting: int, until: int) -> dict[int, int] | None:
        for gone in sorted(chosen, key=lambda each: -self._shapes[each].price):
            for other in range(len(self._shapes)):
                if other == gone or not chosen[gone] or len(self._known) >= until:
                    continue
                fewer = {**chosen, gone: chosen[gone] - 1}
                left, count = self._enough(fewer, other, self.waiting(fewer))
                if left > waiting or not count:
                    continue
                found = self.trimmed({**fewer, other: fewer.get(other, 0) + count}, waiting)
                if self.cost(found) < self.cost(chosen):
                    return found
        return None
