"""Watches and acknowledged writes, compared with each other."""

import msgspec
import pytest
from tests.proof.builders import listed, opened, seen, wrote

from dray.proof import History, check


def rules_of(*records) -> list[str]:
    return [each.rule for each in check(History(records)).violations]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([seen("a", "ADDED", "x", 3), seen("a", "MODIFIED", "x", 4)], [], id="in-order"),
        pytest.param([seen("a", "ADDED", "x", 4), seen("a", "ADDED", "y", 3)], ["watch-order"], id="out-of-order"),
        pytest.param([seen("a", "ADDED", "x", 3), seen("a", "MODIFIED", "x", 3)], ["watch-order"], id="twice"),
        pytest.param([seen("a", "MODIFIED", "x", 3)], ["watch-gap"], id="changed-before-it-came"),
        pytest.param([seen("a", "ADDED", "x", 3), seen("a", "ADDED", "x", 5)], ["watch-gap"], id="came-twice"),
        pytest.param([seen("a", "DELETED", "x", 3)], ["watch-gap"], id="went-before-it-came"),
        pytest.param([seen("a", "ADDED", "x", 3), opened("a", 3), seen("a", "DELETED", "x", 4)], [], id="resumed"),
    ],
)
def test_one_stream(records, expected):
    assert rules_of(opened("a", 2), *records) == expected


def test_a_stream_that_lacks_what_another_saw():
    other = [opened("b", 2), seen("b", "ADDED", "x", 3), seen("b", "ADDED", "y", 4)]
    assert rules_of(opened("a", 2), seen("a", "ADDED", "y", 4), *other) == ["watch-gap"]
    assert rules_of(opened("a", 3), seen("a", "ADDED", "y", 4), *other) == []


def test_streams_that_disagree():
    other = [opened("b", 2), seen("b", "ADDED", "x", 3, data={"n": "2"})]
    assert "watch-disagrees" in rules_of(opened("a", 2), seen("a", "ADDED", "x", 3, data={"n": "1"}), *other)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        pytest.param(wrote("x", 3, "create"), [], id="seen"),
        pytest.param(wrote("x", 4), ["lost-write"], id="never-shown"),
        pytest.param(wrote("x", 9), [], id="not-watched-any-more"),
        pytest.param(wrote("x", 0, "delete"), [], id="deleted-later"),
    ],
)
def test_acknowledged_writes_are_seen(write, expected):
    assert rules_of(opened("a", 2), seen("a", "ADDED", "x", 3), seen("a", "DELETED", "x", 5), write) == expected


@pytest.mark.parametrize(
    ("write", "last", "expected"),
    [
        pytest.param(wrote("x", 3), listed("a", 7, x=3), [], id="there"),
        pytest.param(wrote("x", 3), listed("a", 7, x=2), ["lost-write"], id="an-older-one"),
        pytest.param(wrote("x", 3), listed("a", 7, x=6), [], id="written-again"),
        pytest.param(wrote("x", 0, "delete"), listed("a", 7, x=6), ["lost-write"], id="deleted-but-there"),
        pytest.param(wrote("x", 0, "delete"), listed("a", 7, y=6), [], id="deleted-and-gone"),
    ],
)
def test_acknowledged_writes_are_in_the_last_list(write, last, expected):
    assert rules_of(write, last) == expected


def test_what_was_stored_is_what_was_answered():
    event = seen("a", "ADDED", "x", 3, data={"n": "1"})
    answer = event.document | {"data": {"n": "2"}}
    assert rules_of(opened("a", 2), event, wrote("x", 3, answer=answer)) == ["lost-write"]
    assert rules_of(opened("a", 2), event, wrote("x", 3, answer=event.document)) == []


def written_from(revision: str, answered: int):
    body = msgspec.json.encode({"metadata": {"name": "x", "resourceVersion": revision}})
    return wrote("x", answered, request=msgspec.Raw(body))


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        pytest.param(written_from("4", 6), [], id="from-the-newest"),
        pytest.param(written_from("3", 6), ["lost-update"], id="from-an-older-one"),
        pytest.param(written_from("", 6), [], id="from-any"),
        pytest.param(wrote("x", 6, request=msgspec.Raw(b'[{"op":"test"}]')), [], id="names-none"),
        pytest.param(written_from("6", 6), [], id="changed-nothing"),
    ],
)
def test_a_write_goes_over_nothing_that_its_writer_had_not_seen(write, expected):
    watched = [seen("a", "ADDED", "x", 3), seen("a", "MODIFIED", "x", 4), seen("a", "MODIFIED", "x", 6)]
    assert rules_of(opened("a", 2), *watched, write) == expected


def test_nothing_comes_back():
    gone = [seen("a", "ADDED", "x", 3), seen("a", "DELETED", "x", 4), seen("a", "ADDED", "x", 5)]
    assert rules_of(opened("a", 2), *gone) == ["resurrected"]


def test_a_list_that_contradicts_the_watch():
    assert rules_of(opened("a", 2), seen("a", "ADDED", "x", 3), listed("a", 3, y=3)) == ["watch-disagrees"]
