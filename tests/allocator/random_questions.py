"""Random questions, each answered by the allocator and by brute force: the same devices, the same "no", the same errors.

    python -m tests.allocator.random_questions tight|small|wild SEED WORLDS

prints the questions that differ and how many were asked. `tight` and `small` are compared with `plain_search`, a second implementation
of the rules; `wild` mixes every feature and is compared with the allocator's own search without anything that shortens it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from dray.allocator import (
    TIMED_OUT,
    Allocation,
    Allocator,
    Answer,
    Deadline,
    Failure,
    Inventory,
    Ledger,
    NoFit,
    Paused,
    TimeLimits,
    search,
)
from dray.allocator import allocator as allocator_module
from dray.allocator.scenarios import Scenario, World
from dray.allocator.types import Features
from dray.api import codec
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from tests.allocator import plain_search, tight, wild

# Steps after which brute force gives up on a question; it then counts as "too long".
MOST_STEPS = 300

Found = list[tuple[int, str, str, str]] | str
"""Claim, request, pool and device of all that was chosen; or "no", "error", "too long"."""


def found_in(answer: Answer) -> Found:
    if isinstance(answer, NoFit):
        return "no"
    if isinstance(answer, Failure):
        return "too long" if answer.code == TIMED_OUT else "error"
    assert isinstance(answer, Allocation)
    return [
        (index, device.request, device.device_id.pool, device.device_id.device)
        for index, devices in enumerate(answer.devices())
        for device in devices
    ]


@contextmanager
def looking_ahead_at_once() -> Iterator[None]:
    """Short cuts around the search are off, and the search looks ahead after its first dead end."""
    before = search.PLAIN_DEAD_ENDS, allocator_module.first_fit
    search.PLAIN_DEAD_ENDS, allocator_module.first_fit = 1, lambda *_: (None, False, 0)
    try:
        yield
    finally:
        search.PLAIN_DEAD_ENDS, allocator_module.first_fit = before


@contextmanager
def never_looking_ahead() -> Iterator[None]:
    before = search.PLAIN_DEAD_ENDS
    search.PLAIN_DEAD_ENDS = sys.maxsize
    try:
        yield
    finally:
        search.PLAIN_DEAD_ENDS = before


def in_pieces(allocator: Allocator, claims: list[ResourceClaim], node: Node) -> Answer:
    """The same answer, with a pause at every second look."""
    looks = count()
    limits = TimeLimits(turn_is_over=lambda: next(looks) % 2 == 1)
    question = allocator.fresh_question(claims)
    while True:
        try:
            return question.on(node, limits=limits)
        except Paused:
            pass


def a_deadline() -> Deadline:
    """After about so many steps."""
    looks = iter(range(MOST_STEPS // search.STEPS_PER_LOOK))
    return lambda: next(looks, None) is None


class Comparison:
    """Counts of the answers so far, and the scenarios of those that differ."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[tuple[str, Found, Found]] = []

    def note(self, scenario: str, ours: Found, theirs: Found) -> None:
        self.counts["questions"] += 1
        self.counts[theirs if isinstance(theirs, str) else "allocated"] += 1
        if theirs != "too long" and ours != theirs:
            self.differences.append((scenario, ours, theirs))


def compare_small(seed: int, number: int, comparison: Comparison) -> None:
    compare_worlds(tight.world(seed, number, tight.SMALL_SIZES), comparison)


def compare_tight(seed: int, number: int, comparison: Comparison) -> None:
    compare_worlds(tight.world(seed, number), comparison)


def compare_worlds(asked: tight.World, comparison: Comparison) -> None:
    slices = [codec.to_object(document, ResourceSlice) for document in asked.slices]
    held = [codec.to_object(document, ResourceClaim) for document in asked.held]
    inventory = Inventory(Features.from_names(dict.fromkeys(tight.FEATURES, True)))
    for published in slices:
        inventory.apply_slice(published)
    device_class = codec.to_object({"metadata": {"name": "any"}}, DeviceClass)
    node = codec.to_object({"metadata": {"name": "node-1"}}, Node)
    allocator = Allocator(inventory, Ledger(inventory.features, held), [device_class])
    world = plain_search.World(slices, held)
    for question, documents in enumerate(asked.questions):
        claims = [codec.to_object(document, ResourceClaim) for document in documents]
        ours = found_in(
            in_pieces(allocator, claims, node) if question % 8 == 0 else allocator.fresh_question(claims).on(node)
        )
        try:
            found = plain_search.PlainSearch(world, claims, MOST_STEPS).first()
            theirs: Found = "no" if found is None else found
        except plain_search.Wrong:
            theirs = "error"
        except plain_search.TooLong:
            theirs = "too long"
        comparison.note(f"{asked.name}/{question}", ours, theirs)


def compare_wild(seed: int, number: int, comparison: Comparison) -> None:
    for document in wild.scenarios(seed, number):
        scenario = codec.to_object(document, Scenario)
        ours = found_in(World(scenario).question().on(scenario.asked[0]))
        with never_looking_ahead():
            theirs = found_in(World(scenario).question().on(scenario.asked[0], a_deadline()))
        comparison.note(scenario.name, ours, theirs)


KINDS = {"small": compare_small, "tight": compare_tight, "wild": compare_wild}


def main() -> None:
    kind, seed, worlds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comparison = Comparison()
    with looking_ahead_at_once():
        for number in range(worlds):
            KINDS[kind](seed, number, comparison)
    for scenario, ours, theirs in comparison.differences:
        print(json.dumps({"scenario": scenario, "allocator": ours, "brute force": theirs}))
    print(kind, "seed", seed, "worlds", worlds, dict(comparison.counts), "differences", len(comparison.differences))


if __name__ == "__main__":
    main()
