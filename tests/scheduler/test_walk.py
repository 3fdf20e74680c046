"""Which nodes an attempt looks at, and that remembering answers never changes one."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import a_class, a_node, a_pod, a_slice, template_pod
from tests.scheduler.world import World

from dray.scheduler.framework.filtering import (
    FilterAnswers,
    NodeChangeLog,
    ScoreAnswers,
    nodes_to_find,
    positions,
    span,
    steps_to_nth,
    windows,
)
from dray.scheduler.framework.interface import CycleState, NodeFacet, error, unresolvable, unschedulable
from dray.scheduler.framework.scoring import ScoreRun, WeightedScores, first_from, score_steps, totals
from dray.scheduler.nodes import NodeList
from dray.scheduler.snapshot import Snapshot


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (99, 0, 99),
        (100, 0, 100),
        (500, 0, 230),
        (5000, 0, 500),
        (6000, 0, 300),
        (1000, 30, 300),
        (200, 5, 100),
        (500, 100, 500),
    ],
)
def test_nodes_to_find(nodes, percentage, expected):
    assert nodes_to_find(nodes, percentage) == expected


@given(st.integers(1, 40), st.data())
def test_windows_cover_every_node_once(nodes, data):
    start = data.draw(st.integers(0, nodes - 1))
    masks = [mask for _, mask in windows(start, nodes, data.draw(st.integers(1, 50)))]
    assert sum(masks) == (1 << nodes) - 1
    assert sum(mask.bit_count() for mask in masks) == nodes


@given(st.integers(1, 60), st.data())
def test_steps_to_nth_is_where_a_plain_walk_stops(nodes, data):
    start = data.draw(st.integers(0, nodes - 1))
    mask = data.draw(st.integers(1, (1 << nodes) - 1))
    nth = data.draw(st.integers(1, mask.bit_count()))
    met = 0
    for step in range(1, nodes + 1):
        met += mask >> ((start + step - 1) % nodes) & 1
        if met == nth:
            assert steps_to_nth(mask, start, nodes, nth) == step
            assert (mask & span(start, step, nodes)).bit_count() == nth
            return


def test_zones_take_turns():
    nodes = NodeList(NodeChangeLog())
    for name, zone in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("c2", "c")):
        nodes.set(a_node(name, labels={"topology.kubernetes.io/zone": zone}))
    nodes.refresh()
    assert [state.name for state in nodes] == ["a1", "b1", "c1", "a2", "c2", "a3"]
    nodes.remove("b1")
    nodes.refresh()
    assert [state.name for state in nodes] == ["a1", "c1", "a2", "c2", "a3"]
    assert [state.position for state in nodes] == list(range(5))


def test_totals_prefer_the_highest_sum_then_the_first_met():
    rows = [WeightedScores("a", 2, {100: 0b0011, 75: 0b1100}), WeightedScores("b", 1, {0: 0b0101, 60: 0b1010})]
    cells = totals(0b1111, rows)
    assert cells == {200: 0b0001, 260: 0b0010, 150: 0b0100, 210: 0b1000}
    assert first_from(0b1010, 0) == 1
    assert first_from(0b1010, 2) == 3
    assert first_from(0b1010, 4) == 1


class Points:
    """A score plugin with given points; it normalizes to tens where `normalizes`."""

    def __init__(self, name, points, *, normalizes=False):
        self.name = name
        self._points = points
        if normalizes:
            self.normalize = lambda scores: {score: score // 10 * 10 for score in scores}

    def score(self, cycle, pod, node):
        return self._points[node.position]


@given(
    points=st.lists(st.lists(st.integers(-5, 25), min_size=6, max_size=6), max_size=3),
    weights=st.lists(st.sampled_from([1, 2, 100]), min_size=3, max_size=3),
    normalizes=st.booleans(),
    feasible=st.integers(1, 63),
)
def test_the_best_nodes_have_the_highest_sum_of_all_plugins(points, weights, normalizes, feasible):
    snapshot = Snapshot()
    for number in range(6):
        snapshot.set_node(a_node(f"node-{number}"))
    snapshot.refresh()
    plugins = tuple(Points(str(at), row, normalizes=normalizes) for at, row in enumerate(points))
    steps = score_steps(plugins, {str(at): weight for at, weight in enumerate(weights)})
    best = ScoreRun(CycleState(), a_pod("pod"), snapshot, feasible).best(steps)

    def total(position):
        each = [(row[position] // 10 * 10 if normalizes else row[position]) for row in points]
        return sum(weight * score for weight, score in zip(weights, each, strict=False))

    highest = max(total(position) for position in positions(feasible))
    assert set(positions(best)) == {position for position in positions(feasible) if total(position) == highest}


def test_only_changed_nodes_are_asked_again():
    log = NodeChangeLog()
    answers = FilterAnswers(log, frozenset({NodeFacet.RESOURCES}))
    asked = []

    def question(position):
        asked.append(position)
        return unschedulable("no") if position == 2 else None

    assert answers.ask(0b1111, question) == 0b1011
    log.add(NodeFacet.RESOURCES, 0b0100)
    log.add(NodeFacet.DEVICES, 0b0001)
    answers.bring_forward()
    answers.ask(0b1111, question)
    assert asked == [0, 1, 2, 3, 2]
    log.forget_all()
    answers.bring_forward()
    answers.ask(0b1111, question)
    assert asked == [0, 1, 2, 3, 2, 0, 1, 2, 3]


def test_scores_are_kept_and_replaced():
    log = NodeChangeLog()
    answers = ScoreAnswers(log, frozenset({NodeFacet.RESOURCES}))
    answers.ask(0b111, lambda position: position % 2)
    assert answers.sorted_by_score(0b111) == {0: 0b101, 1: 0b010}
    assert (answers.highest(0b111), answers.highest(0b101)) == ((1, 0b010), (0, 0b101))
    log.add(NodeFacet.RESOURCES, 0b011)
    answers.bring_forward()
    answers.ask(0b111, lambda position: 9 - position)
    assert answers.sorted_by_score(0b111) == {0: 0b100, 8: 0b010, 9: 0b001}
    assert (answers.highest(0b111), answers.highest(0b110)) == ((9, 0b001), (8, 0b010))
    with pytest.raises(LookupError):
        answers.highest(0b1000)


def test_reader_that_fell_behind_starts_over():
    log = NodeChangeLog()
    answers = FilterAnswers(log, frozenset({NodeFacet.PODS}))
    answers.ask(0b1, lambda position: None)
    for _ in range(20_000):
        log.add(NodeFacet.PODS, 0b10)
    answers.bring_forward()
    assert answers.known == 0


def test_positions():
    assert list(positions(0b101001)) == [0, 3, 5]


async def test_start_rotates_over_the_nodes():
    world = World(*[a_node(f"node-{n}") for n in range(200)])
    for index in range(4):
        world.apply(a_pod(f"p{index}"))
    await world.settle()
    assert [world.node_of(f"p{index}") for index in range(4)] == ["node-0", "node-100", "node-1", "node-101"]


async def test_remembered_answers_equal_fresh_ones():
    """The same random life, once with and once without memory, ends with every pod in the same place."""
    ends = []
    for remembers in (True, False):
        chance = random.Random(7)
        world = World(*[x for n in range(30) for x in (a_node(f"n{n}", cpu="2"), a_slice(f"n{n}", 2))], a_class())
        for step in range(120):
            if not remembers:
                world.scheduler.handle.snapshot.log.forget_all()
            if chance.random() < 0.7:
                objects = template_pod(f"p{step}", cpu=chance.choice(["100m", "500m", "1"]))
                world.apply(*(objects if chance.random() < 0.6 else (a_pod(f"p{step}", cpu="300m"),)))
            elif pods := [pod for pod in world.cluster.all(type(a_pod())) if pod.spec.node_name]:
                gone = chance.choice(pods)
                world.cluster.delete(gone)
                world.cluster.release_claims_of(gone)
            await world.settle()
        ends.append({pod.metadata.name: pod.spec.node_name for pod in world.cluster.all(type(a_pod()))})
    assert ends[0] == ends[1]


async def test_work_per_pod_does_not_grow_with_the_cluster():
    """Counted, not timed: filter questions per pod once the first pods have been placed."""
    asked = {}
    for nodes in (200, 1000):
        world = World(*[x for n in range(nodes) for x in (a_node(f"n{n}"), a_slice(f"n{n}", 4))], a_class())
        world.apply(*[x for i in range(30) for x in template_pod(f"warm{i}", cpu="100m")])
        await world.settle()
        profile = world.scheduler.profiles["default-scheduler"]
        counted = 0
        for plugin in profile.at.filter:
            original = plugin.filter

            def counting(cycle, pod, node, original=original):
                nonlocal counted
                counted += 1
                return original(cycle, pod, node)

            plugin.filter = counting
        world.apply(*[x for i in range(20) for x in template_pod(f"p{i}", cpu="100m")])
        await world.settle()
        asked[nodes] = counted / 20
    assert asked[1000] <= asked[200] * 2
    assert asked[1000] < 20


@pytest.mark.parametrize("status", [error("broken"), replace(unresolvable("late"), is_transient=True)])
def test_passing_answers_are_asked_for_again(status):
    log = NodeChangeLog()
    answers, asked = FilterAnswers(log, frozenset({NodeFacet.OBJECT})), []

    def question(position):
        asked.append(position)
        return status if position == 1 else unschedulable("no")

    answers.ask(0b11, question)
    answers.bring_forward()
    answers.ask(0b11, question)
    assert asked == [0, 1, 1]
