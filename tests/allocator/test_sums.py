"""Sets of sums as integers against sets of tuples."""

import tracemalloc
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dray.allocator.sums import (
    DEVICES_PER_LOOK,
    NO_WAY,
    NOTHING,
    BoxSpace,
    LineSpace,
    SumRows,
    Sums,
    SumSpace,
    joined,
    most_within,
    spaces_of,
)

AMOUNTS = st.integers(0, 6).map(lambda amount: amount * 4)


def sums_of(space: SumSpace, draws: list[tuple[int, ...]], count: int) -> Sums:
    layers = [NOTHING] + [NO_WAY] * count
    for amounts in draws:
        for k in range(count, 0, -1):
            layers[k] = joined(layers[k], space.adding(amounts)(layers[k - 1]))
    return layers[count]


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(1, 5))
def test_layers_have_the_sums_of_each_number_of_devices(data: st.DataObject, most: int) -> None:
    draws = data.draw(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=7))
    limits = data.draw(st.tuples(st.integers(0, 60), st.integers(0, 60)))
    for space in (BoxSpace.of((0, 1), draws, limits), LineSpace.of(0, 1, draws, limits)):
        if space is not None:
            assert space.layers(draws, most) == [sums_of(space, draws, count) for count in range(most + 1)]


def fits(draws: list[tuple[int, ...]], count: int, left: tuple[int, ...]) -> bool:
    return any(
        all(sum(column) <= most for column, most in zip(zip(*chosen, strict=True), left, strict=True))
        for chosen in combinations(draws, count)
    )


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(1, 3), st.integers(1, 5))
def test_all_counters_together_are_exact(data: st.DataObject, counters: int, count: int) -> None:
    draws = data.draw(st.lists(st.tuples(*[AMOUNTS] * counters), min_size=count, max_size=7))
    limits = data.draw(st.tuples(*[st.integers(0, 60)] * counters))
    left = data.draw(st.tuples(*[st.integers(0, limit) for limit in limits]))
    space = BoxSpace.of(range(counters), draws, limits)
    # Amounts that are all zero have no step in common: then there may be too many combinations.
    assume(space is not None)
    assert space is not None
    assert [type(each) for each in spaces_of(draws, limits)] == [BoxSpace]
    assert space.is_within(sums_of(space, draws, count), left) == fits(draws, count, left)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.sampled_from([(1, -1), (1, 1), (2, 3), (1, 0), (3, -2)]), st.integers(1, 5))
def test_two_counters_on_a_line_are_exact(data: st.DataObject, slope: tuple[int, int], count: int) -> None:
    """Also where both amounts grow together, and where one of them is the same for all devices."""
    across, up = slope
    places = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=7))
    draws = [(across * place, 30 + up * place) for place in places]
    limits = data.draw(st.tuples(st.integers(0, 80), st.integers(0, 200)))
    left = data.draw(st.tuples(*[st.integers(0, limit) for limit in limits]))
    space = LineSpace.of(0, 1, draws, limits)
    assert space is not None
    assert space.is_within(sums_of(space, draws, count), left) == fits(draws, count, left)


def test_amounts_beside_a_line_are_told() -> None:
    assert LineSpace.of(0, 1, [(1, 2), (2, 3), (3, 5)], (10, 10)) is None


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 4))
def test_rounded_sums_refuse_only_what_does_not_fit(data: st.DataObject, count: int) -> None:
    draws = data.draw(st.lists(st.tuples(st.integers(1, 10**9)), min_size=count, max_size=6))
    left = data.draw(st.tuples(st.integers(0, 10**9)))
    space = BoxSpace.rounded(0, draws, left)
    assert space.bits <= 1 << 17
    if fits(draws, count, left):
        assert space.is_within(sums_of(space, draws, count), left)


@pytest.mark.parametrize(("left", "fit"), [(79_999, False), (80_000, True), (80_001, True)])
def test_a_counter_with_too_many_sums_is_still_bounded(left: int, fit: bool) -> None:
    draws = [(10_007 * 10**6,), (69_993 * 10**6,)]
    space = BoxSpace.rounded(0, draws, (80_001 * 10**6,))
    assert space.is_within(sums_of(space, draws, 2), (left * 10**6,)) or not fit
    assert not space.is_within(sums_of(space, draws, 2), (79_000 * 10**6,))


def test_an_amount_far_beyond_what_is_left_takes_no_memory() -> None:
    """One bit for each step up to such an amount would be 128 MB."""
    space = LineSpace.of(0, 1, [(2**30, 30), (2**30 + 1, 30)], (100, 100))
    assert space is not None
    tracemalloc.start()
    try:
        assert space.adding((2**30 + 1, 30))(NOTHING) == NO_WAY
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 3))
def test_the_most_that_can_be_drawn_together_is_found_once(data: st.DataObject, counters: int) -> None:
    draws = tuple(sorted(data.draw(st.lists(st.tuples(*[AMOUNTS] * counters), min_size=1, max_size=6))))
    left = data.draw(st.tuples(*[st.integers(0, 60)] * counters))
    assume(BoxSpace.of(range(counters), draws, left) is not None)
    most = most_within(draws, left, len(draws))
    assert most == max((count for count in range(1, len(draws) + 1) if fits(list(draws), count, left)), default=0)
    worked_out = most_within.cache_info().misses
    assert most_within(draws, left, len(draws)) == most
    assert most_within.cache_info().misses == worked_out


def test_the_time_is_looked_at_after_some_devices_not_after_each() -> None:
    draws, looks = [(4,)] * 100, []
    space = BoxSpace.of((0,), draws, (400,))
    assert space is not None
    SumRows(space, draws, 3, NOTHING, 0).work_out(lambda: looks.append(True))
    assert len(looks) == len(draws) // DEVICES_PER_LOOK
