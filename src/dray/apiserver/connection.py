"""One client's connection: its certificate, its first bytes, and what to do when it breaks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# From the first byte to the end of the headers.
HEAD_TIMEOUT_S = 30.0
MAX_HEAD = 64 * 1024
# What the parser knows; any other word is a method too, and gets the answer 405 instead of a broken connection.
KNOWN_METHODS = frozenset(b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT".split())
REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) /")
STAND_IN = b"TRACE"


class HeldBack:
    """A transport that holds back the first piece written (the head) until the second (the body) or `release` comes.

    One write is one TLS record and one system call; most answers are small, and twice that is most of their price.
    """

    __slots__ = ("_held", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: bytes | None = b""

    def write(self, data: bytes) -> None:
        if self._held == b"":
            self._held = data
        else:
            self._transport.write(self._held + data if self._held else data)
            self._held = None

    def release(self) -> None:
        if self._held:
            self._transport.write(self._held)
        self._held = None

    def close(self) -> None:
        self.release()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with the client certificate, and with limits on how a request may begin."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.certificate: bytes | None = None
        self.on_lost: Callable[[], object] | None = None
        self._in_head = True
        self._head_size = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._odd_method = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate = tls.getpeercert(True)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD and self._still_in_head(data):
                self.send_400_response("Request header is too large.")
                return
            if self._head_timer is None:
                self._await_head()
            data = self._with_known_method(data)
        super().data_received(data)

    def _still_in_head(self, data: bytes) -> bool:
        """One read may bring a whole head and megabytes of body."""
        return self._head_size - len(data) > MAX_HEAD or b"\r\n\r\n" not in data[:MAX_HEAD]

    def _with_known_method(self, data: bytes) -> bytes:
        if self._head_size != len(data):
            return data
        found = REQUEST_LINE.match(data)
        if found and found[1] not in KNOWN_METHODS:
            self._odd_method = found[1].decode()
            return STAND_IN + data[found.end(1) :]
        return data

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_size = 0
        self._stop_timer()
        self.scope["extensions"] = {"dray": self}  # type: ignore[dict-item]
        super().on_headers_complete()
        if self._odd_method:
            self.scope["method"] = self._odd_method
            self._odd_method = ""

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def _unsupported_upgrade_warning(self) -> None:
        """Requests to upgrade (exec, attach) are answered as what they are without: no news for the log."""

    def whole_body(self, scope: Any) -> bytes | None:
        """The body of this request, if all of it is here already."""
        cycle = self.cycle
        return bytes(cycle.body) if cycle.scope is scope and not cycle.more_body else None

    def hold_back(self, scope: Any) -> HeldBack | None:
        """For an answer that is complete: head and body leave together. Release it when all has been sent.

        None for a request with others behind it in the pipe: its answer goes out as it comes.
        """
        if self.cycle.scope is not scope:
            return None
        held = HeldBack(self.transport)
        self.cycle.transport = held  # type: ignore[assignment]
        return held

    def _await_head(self) -> None:
        """A client gets so long to say what it wants; between requests the keep-alive time counts instead."""
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if self._in_head and not self.transport.is_closing():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
