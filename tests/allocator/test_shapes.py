"""Sums that do not work out are seen in few steps, at twice the size that brute force can do and beyond."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.allocator import TimeLimits, scenarios

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from allocator_shapes import SHAPES, Shape


@pytest.mark.parametrize(
    ("shape", "size"),
    [pytest.param(shape, size, id=f"{shape.name}-{size}") for shape in SHAPES for size in shape.sizes],
)
def test_hard_shapes_stay_small(shape: Shape, size: int) -> None:
    scenario = scenarios.read_scenario(shape.line(size))
    replies = scenarios.ask(scenarios.World(scenario).question(), scenario)
    assert [scenarios.reply_document(reply)["outcome"] for reply in replies] == [shape.outcome]
    assert scenarios.steps_of(replies) <= shape.most_steps


# Some milliseconds of work; a turn of the scheduler has ten.
MOST_CALLS = 20_000


class Calls:
    """Calls of functions, by stretches between two looks at the time."""

    def __init__(self) -> None:
        self.stretches = [0]

    def is_over(self) -> bool:
        self.stretches.append(0)
        return False

    def note(self, frame: object, event: str, function: object) -> None:
        if event in ("call", "c_call"):
            self.stretches[-1] += 1


@contextmanager
def counting() -> Iterator[Calls]:
    calls = Calls()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_the_search_looks_at_the_time_again_soon(shape: Shape) -> None:
    scenario = scenarios.read_scenario(shape.line(shape.sizes[-1]))
    question, [node] = scenarios.World(scenario).question(), scenario.asked
    with counting() as calls:
        question.on(node, limits=TimeLimits(turn_is_over=calls.is_over))
    assert len(calls.stretches) > 5
    assert max(calls.stretches) <= MOST_CALLS
