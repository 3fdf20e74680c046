"""Sums that do not work out are seen in few steps, at twice the size that brute force can do and beyond."""

import sys
from pathlib import Path

import pytest

from dray.allocator import scenarios

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
