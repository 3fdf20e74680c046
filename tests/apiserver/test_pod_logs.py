"""Logs that a node agent serves, passed on."""

import aiohttp
import pytest
from tests.apiserver.conftest import Client

from dray.apiserver.subresources.pod_logs import _chunks


class Session:
    closed = False

    async def close(self) -> None:
        self.closed = True


class Cut:
    """An answer of a node agent that goes away in the middle of it."""

    @property
    def content(self) -> "Cut":
        return self

    async def iter_any(self):  # type: ignore[no-untyped-def]
        yield b"first"
        raise aiohttp.ClientPayloadError("not completed")


async def test_a_node_agent_that_goes_away_ends_the_log() -> None:
    session = Session()
    assert [chunk async for chunk in _chunks(session, Cut())] == [b"first"]
    assert session.closed


INVALID = 'PodLogOptions "absent" is invalid: {}'


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("tailLines=-1", 422, INVALID.format("tailLines: Invalid value: -1: must be greater than or equal to 0")),
        ("limitBytes=0", 422, INVALID.format("limitBytes: Invalid value: 0: must be greater than 0")),
        ("sinceSeconds=0", 422, INVALID.format("sinceSeconds: Invalid value: 0: must be greater than 0")),
        (
            "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
            422,
            INVALID.format("[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
        ),
        ("stream=Stdout", 422, INVALID.format("stream: Forbidden: may not be specified")),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("tailLines=", 400, 'strconv.ParseInt: parsing "": invalid syntax'),
        (
            "limitBytes=99999999999999999999",
            400,
            'strconv.ParseInt: parsing "99999999999999999999": value out of range',
        ),
        ("sinceTime=bad", 400, 'parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006"'),
        ("tailLines=0&sinceTime=2020-01-01T00:00:00%2B02:00", 404, 'pods "absent" not found'),
    ],
)
async def test_options_are_checked_before_the_pod_is_looked_up(
    server: Client, query: str, status: int, message: str
) -> None:
    answer = await server.get(f"/api/v1/namespaces/default/pods/absent/log?{query}")
    assert (answer.status, answer.body["message"]) == (status, message)
