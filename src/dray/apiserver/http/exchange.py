"""One request and its answer, as the server's core sees them: no sockets, no framework."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from dray.apiserver.request.user import User

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True):
    """`path` is percent-encoded as on the wire, `query` is what follows the question mark, header names are lower-case.

    An in-process caller names its `user`; a request from the network has none, and is identified by its
    `authorization` header or by the client certificate (DER, verified by the TLS layer) it came with.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    user: User | None = None
    client_certificate: bytes | None = None
    remote: str = ""


@dataclass(slots=True)
class Response:
    """`body` is whole, unless `stream` is set: then it comes in chunks until the iterator ends (a watch, a log).

    A watch chunk holds one or more whole JSON lines, shared between all watchers that see the same events. Close the
    stream with `aclose()` when the reader goes away.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    warnings: list[str] = field(default_factory=list)
