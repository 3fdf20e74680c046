"""The checks take time in proportion to the history, also when all of it is about one object."""

from collections.abc import Callable

import msgspec
import pytest
from tests.builders.manifests import a_device, a_result
from tests.effort import counted_steps
from tests.proof.builders import Story, listed, node_slice, ns_claim, opened, read, seen, wrote

from dray.proof import History, check
from dray.proof.history import Record


def updates(count: int) -> list[Record]:
    """Each made from the revision before it."""
    found: list[Record] = [opened("a", 1), seen("a", "ADDED", "x", 2)]
    for revision in range(3, count + 3):
        request = msgspec.Raw(b'{"metadata":{"resourceVersion":"%d"}}' % (revision - 1))
        found += [wrote("x", revision, request=request), seen("a", "MODIFIED", "x", revision)]
    return found


def unseen_updates_among_many(count: int) -> list[Record]:
    others = {f"o{number}": 2 for number in range(count)}
    return [*(wrote("x", revision) for revision in range(3, count + 3)), listed("a", count + 3, x=count + 3, **others)]


def deletions_of_many(count: int) -> list[Record]:
    names = [f"x{number}" for number in range(count)]
    return [*(wrote(name, 0, "delete") for name in names), listed("a", 9, **dict.fromkeys(names, 2))]


def cut_streams(count: int) -> list[Record]:
    """A stream that is opened again, a revision later, after every event."""
    found: list[Record] = [opened("b", 1), opened("a", 1)]
    for revision in range(2, 3 * count, 3):
        kind = "ADDED" if revision == 2 else "MODIFIED"
        found += [seen("a", kind, "x", revision), seen("b", kind, "x", revision), opened("a", revision + 1)]
    return found


def reads(count: int) -> list[Record]:
    return [*updates(count), *(read("x", revision, revision, revision + 0.5) for revision in range(3, count + 3))]


def devices_taken_and_given_back(count: int) -> list[Record]:
    draws = {"consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "1"}}}]}
    names = [f"d{number}" for number in range(count)]
    story = Story().shows(node_slice(*(a_device(name, **draws) for name in names), counters={"slices": "1"}))
    for name in names:
        story.shows(ns_claim("c", a_result(name)), ns_claim("c"))
    return story.history.records


@pytest.mark.parametrize(
    "history",
    [
        updates,
        unseen_updates_among_many,
        deletions_of_many,
        cut_streams,
        reads,
        devices_taken_and_given_back,
    ],
)
def test_twice_the_history_is_twice_the_work(history: Callable[[int], list[Record]]):
    once, twice = (steps_to_check(history(count)) for count in (150, 300))
    assert twice < 2.3 * once


def steps_to_check(records: list[Record]) -> int:
    history = History(records)
    with counted_steps() as steps:
        check(history)
    return steps.taken
