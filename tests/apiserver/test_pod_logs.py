"""Logs that a node agent serves, passed on."""

import aiohttp

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
