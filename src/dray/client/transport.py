"""The Transport interface: single requests and watch streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

JSON = "application/json"
# RFC 9218, the most urgent of eight; without the header a call is in the middle.
URGENT = "u=0"


class Call(msgspec.Struct, frozen=True):
    """One call to the API server. `path` is unescaped; `query` holds text only."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    user_agent: str = "dray"
    timeout_s: float = 60.0
    # Asks the server to answer this call before earlier ones; a server without priorities ignores it.
    urgent: bool = False


class Answer(msgspec.Struct, frozen=True):
    """`headers` has lower-case names. `body` may be shared with other readers: never change it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Carries calls. Raises `ServerUnreachable` when no answer came; any answer, also a refusal, is returned."""

    async def request(self, call: Call) -> Answer: ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch: each item is one whole JSON frame. A refusal raises `ApiError` on entering.

        The iteration ends when the server ends the watch and raises `ServerUnreachable` when the connection breaks.
        """
        ...

    async def close(self) -> None: ...
