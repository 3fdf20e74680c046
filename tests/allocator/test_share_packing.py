"""Shares that leave little to spare: the packing bound refuses only what cannot be packed, and sees it where sums do not tell."""

import random
import tracemalloc
from contextlib import suppress
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.allocator import Allocation, Allocator, Inventory, Ledger, NoFit, Paused, TimeLimits
from dray.allocator.rules import share_packing
from dray.allocator.rules.share_sums import UsableSums
from tests.allocator.builders import any_request, claim_object, class_object, node_object, slice_object
from tests.allocator.random_questions import looking_ahead_at_once
from tests.builders.manifests import a_device

MODELS = ("a", "b")


def an_allocator(devices: list[tuple[int, str]]) -> Allocator:
    """Devices with a capacity and a model."""
    inventory = Inventory()
    published = [
        a_device(
            f"d{number}",
            allowMultipleAllocations=True,
            capacity={"memory": str(memory)},
            attributes={"model": model},
        )
        for number, (memory, model) in enumerate(devices)
    ]
    inventory.apply_slice(slice_object(published))
    return Allocator(inventory, Ledger(), [class_object()])


def claim_of_shares(shares: list[tuple[int, str]]):
    """One request for each share, with its size and the model that it wants, if any."""
    requests = []
    for number, (memory, model) in enumerate(shares):
        selectors = [f'device.attributes["gpu.example.com"].model == "{model}"'] if model else []
        requests.append(any_request(f"r{number:02}", selectors=selectors, capacity={"memory": str(memory)}))
    return claim_object(*requests)


def first_of_all(devices: list[tuple[int, str]], shares: list[tuple[int, str]]) -> tuple[int, ...] | None:
    """The device of each share, by trying everything in order."""
    for places in product(range(len(devices)), repeat=len(shares)):
        taken = [0] * len(devices)
        for place, (memory, model) in zip(places, shares, strict=True):
            taken[place] += memory if model in ("", devices[place][1]) else 1_000
        if all(amount <= memory for amount, (memory, _) in zip(taken, devices, strict=True)):
            return places
    return None


@settings(deadline=None, max_examples=100)
@given(
    devices=st.lists(st.tuples(st.integers(3, 9), st.sampled_from(MODELS)), min_size=2, max_size=3),
    shares=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(("", "", *MODELS))), min_size=2, max_size=7),
)
def test_the_answer_is_the_first_of_all_ways(devices, shares):
    with looking_ahead_at_once():
        answer = an_allocator(devices).question([claim_of_shares(shares)]).on(node_object())
    expected = first_of_all(devices, shares)
    if expected is None:
        assert isinstance(answer, NoFit)
    else:
        assert isinstance(answer, Allocation)
        assert [row.device_id.device for row in answer.devices()[0]] == [f"d{place}" for place in expected]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000))
def test_a_question_that_stays_open_changes_no_answer(seed):
    devices, shares = to_the_brim(5, 12, seed)
    whole = an_allocator(devices).question([claim_of_shares(shares)]).on(node_object())
    with patch.object(share_packing, "MOST_STATES", 3):
        answer = an_allocator(devices).question([claim_of_shares(shares)]).on(node_object())
    assert isinstance(whole, Allocation)
    assert isinstance(answer, Allocation)
    assert answer.devices() == whole.devices()


def to_the_brim(size: int, capacity: int, seed: int, parts: int = 3):
    """Devices, and shares in random order that fill all of them."""
    chance = random.Random(seed)
    shares = []
    for _ in range(size):
        cuts = sorted(chance.sample(range(1, capacity), parts - 1))
        shares += [end - begin for begin, end in zip([0, *cuts], [*cuts, capacity], strict=True)]
    chance.shuffle(shares)
    return [(capacity, "a")] * size, [(share, "") for share in shares]


@pytest.mark.parametrize(
    ("size", "capacity", "most_steps", "most_states"),
    [
        pytest.param(10, 20, 350, 1000, id="ten-devices-of-20"),
        pytest.param(10, 100, 350, 2000, id="ten-devices-of-100"),
    ],
)
def test_devices_are_filled_to_the_brim_in_few_steps(size, capacity, most_steps, most_states):
    states = 0
    asked = share_packing.SharePacking._sums_from

    def counting(*given):
        nonlocal states
        states += 1
        return asked(*given)

    devices, shares = to_the_brim(size, capacity, 1)
    with patch.object(share_packing.SharePacking, "_sums_from", counting):
        answer = an_allocator(devices).question([claim_of_shares(shares)]).on(node_object())
    assert isinstance(answer, Allocation)
    assert answer.steps <= most_steps
    assert states <= most_states


def test_pieces_come_to_the_same_answer_and_pauses_are_short():
    """The work between two looks at the time is counted: tried fillings and states."""
    devices, shares = to_the_brim(10, 100, 1)
    whole = an_allocator(devices).question([claim_of_shares(shares)]).on(node_object())
    question = an_allocator(devices).question([claim_of_shares(shares)])
    work = [0]
    tried = share_packing.SharePacking._fillings

    def counting(*given):
        work[-1] += 1
        return tried(*given)

    def turn_is_over() -> bool:
        work.append(0)
        return len(work) % 3 == 0

    answer = None
    with patch.object(share_packing.SharePacking, "_fillings", counting):
        while answer is None:
            with suppress(Paused):
                answer = question.on(node_object(), limits=TimeLimits(turn_is_over=turn_is_over))
    assert isinstance(whole, Allocation)
    assert answer.devices() == whole.devices()
    assert answer.steps == whole.steps
    assert max(work) <= 2 * share_packing.STATES_PER_LOOK * share_packing.MOST_TRIED / 3


def test_shares_far_beyond_what_is_left_take_no_memory():
    """Their sums count in steps of what the amounts have in common, here one: one bit a step would be 128 MB."""
    tracemalloc.start()
    try:
        sums = UsableSums(((3,), (2**30,), (2**30 + 1,)), 10)
        assert [sums.usable(place, 10) for place in range(4)] == [3, 0, 0, 0]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
