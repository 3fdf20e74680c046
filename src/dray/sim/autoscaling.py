"""Finds how many more nodes, and of which kind, place every waiting pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.explain.cluster_objects import ClusterObjects
from dray.sim.node_templates import AddedNodes, NodeTemplate, grown, templates_in
from dray.sim.simulation import Placed, Simulation

MOST_NODES = 10_000


def autoscale(
    world: ClusterObjects,
    before: Simulation,
    templates: Sequence[tuple[NodeTemplate, int | None]],
    simulation_of: Callable[[ClusterObjects], Simulation],
    step: Callable[[], None] = lambda: None,
) -> tuple[AddedNodes, ...]:
    """The nodes to add after `before`, the simulation of `world`. Without templates, each kind of node in `world` is one.

    `step` is called before each simulation.
    """
    settled = before.world()

    def simulate(bigger: ClusterObjects) -> list[Placed]:
        simulation = simulation_of(bigger)
        simulation.run()
        return simulation.placed()

    return find_growth(settled, templates or [(each, None) for each in templates_in(world)], simulate, step)


def find_growth(
    world: ClusterObjects,
    templates: Sequence[tuple[NodeTemplate, int | None]],
    simulate: Callable[[ClusterObjects], list[Placed]],
    step: Callable[[], None] = lambda: None,
) -> tuple[AddedNodes, ...]:
    """The smallest number of nodes per template that places every pod, or as many pods as such nodes can.

    Many nodes are added at a time and taken back by halves, so a thousand nodes cost about twenty simulations. The template
    that helps most pods goes first; the others are asked for what is left over.
    """
    scaler = _Scaler(world, simulate, step)
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
    def __init__(
        self, world: ClusterObjects, simulate: Callable[[ClusterObjects], list[Placed]], step: Callable[[], None]
    ) -> None:
        self._world = world
        self._simulate = simulate
        self._step = step
        self._known: dict[tuple[tuple[int, int], ...], int] = {}

    def waiting(self, growth: Sequence[AddedNodes]) -> int:
        key = tuple((id(row.template), row.count) for row in growth)
        if key not in self._known:
            self._step()
            placed = self._simulate(grown(self._world, growth))
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
    ) -> tuple[AddedNodes, ...]:
        """Nodes that a later choice has made superfluous go again."""
        for index in list(chosen):
            while chosen[index] and self.waiting(_growth(templates, {**chosen, index: chosen[index] - 1})) <= waiting:
                chosen[index] -= 1
        return _growth(templates, chosen)


def _growth(templates: Sequence[tuple[NodeTemplate, int | None]], chosen: dict[int, int]) -> tuple[AddedNodes, ...]:
    return tuple(AddedNodes(templates[index][0], count) for index, count in sorted(chosen.items()) if count)
