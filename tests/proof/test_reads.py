"""Answers compared by the times of their questions: nothing older than what was known before."""

import msgspec
import pytest
from tests.proof.builders import opened, read, seen, wrote

from dray.client import Answer, Call
from dray.proof import History, Read, RecordingTransport, Write, check


def stale(*records) -> list[str]:
    return [each.message for each in check(History(records)).violations if each.rule == "stale-read"]


def written(revision: int, began: float, at: float):
    return msgspec.structs.replace(wrote("x", revision), began=began, at=at)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([written(5, 0, 1), read("x", 5, 2, 3)], id="own-write"),
        pytest.param([written(5, 0, 1), read("x", 7, 2, 3)], id="newer"),
        pytest.param([read("x", 4, 0, 3), written(5, 1, 2)], id="asked-before-the-write-was-answered"),
        pytest.param([read("x", 0, 0, 3), written(5, 1, 2)], id="not-there-yet"),
        pytest.param([written(5, 0, 1), read("y", 3, 2, 3)], id="another-object"),
    ],
)
def test_answers_that_agree(answers):
    assert stale(*answers) == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        pytest.param(
            [written(5, 0, 1), read("x", 4, 2, 3)], "a read by reader answered revision 4", id="older-than-a-write"
        ),
        pytest.param(
            [read("x", 5, 0, 1), read("x", 4, 2, 3)], "a read by reader answered revision 4", id="older-than-a-read"
        ),
        pytest.param([written(5, 0, 1), written(4, 2, 3)], "a write by  answered revision 4", id="write-in-the-past"),
        pytest.param(
            [written(5, 0, 1), read("x", 0, 2, 3)], "a read by reader answered nothing", id="gone-without-deletion"
        ),
    ],
)
def test_answers_from_the_past(answers, said):
    (found,) = stale(*answers)
    assert found == f"{said} after 5 was known"


def test_what_was_deleted_may_be_gone():
    watched = [opened("a", 2), seen("a", "ADDED", "x", 5), seen("a", "DELETED", "x", 6)]
    assert stale(*watched, written(5, 0, 1), read("x", 0, 2, 3)) == []
    again = [*watched, seen("a", "ADDED", "x", 8)]
    assert len(stale(*again, written(5, 0, 1), written(8, 2, 3), read("x", 0, 4, 5))) == 1


class Server:
    """Answers what it is told to answer."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    async def request(self, call: Call) -> Answer:
        return self._answers.pop(0)


async def test_reads_of_one_object_are_recorded():
    """Lists, subresources and reads that allow the past are not."""
    found = Answer(200, {}, b'{"kind":"ConfigMap","metadata":{"name":"x","namespace":"ns","resourceVersion":"7"}}')
    history = History()
    transport = RecordingTransport(
        Server(found, Answer(404, {}, b"{}"), found, found, found, found), history, actor="a"
    )
    path = "/api/v1/namespaces/ns/configmaps/x"
    for call in (
        Call("GET", path),
        Call("GET", path),
        Call("GET", path, {"resourceVersion": "0"}),
        Call("GET", "/api/v1/namespaces/ns/configmaps"),
        Call("GET", f"{path}/status"),
        Call("PUT", path, body=b"{}"),
    ):
        await transport.request(call)
    assert [(type(each), each.revision) for each in history.records] == [(Read, 7), (Read, 0), (Write, 7)]
    assert all(each.began <= each.at for each in history.records)
