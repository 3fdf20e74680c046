"""Random questions against brute force: a slice of them here, many more with `make torture`."""

import pytest

from tests.allocator.random_questions import KINDS, Comparison, looking_ahead_at_once


def differences(kind: str, seed: int, worlds: int) -> Comparison:
    comparison = Comparison()
    with looking_ahead_at_once():
        for number in range(worlds):
            KINDS[kind](seed, number, comparison)
    return comparison


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_slice_of_random_questions(kind: str) -> None:
    comparison = differences(kind, seed=1, worlds=60)
    assert comparison.differences == []
    answers = comparison.counts
    assert min(answers["allocated"], answers["no"], answers["error"]) > 5, "the questions are all alike"
    assert answers["too long"] < answers["questions"] / 10


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 7))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_many_random_questions(kind: str, seed: int) -> None:
    comparison = differences(kind, seed, worlds=3000 if kind == "wild" else 1000)
    assert comparison.differences == []
    print(kind, seed, dict(comparison.counts))
