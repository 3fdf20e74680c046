"""A transport that answers from a script and remembers what it was asked."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dray.client import Answer, Call

Scripted = Answer | Exception | Callable[[Call], Answer]


def ok(body: Any, status: int = 200, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, names, body if isinstance(body, bytes) else msgspec.json.encode(body))


def refusal(code: int, reason: str, message: str = "no", **headers: str) -> Answer:
    return ok(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}, code, **headers
    )


def event(event_type: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": obj})


def bookmark(revision: str, *, ends_initial: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_initial else {}
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": revision, "annotations": annotations}})


def error_event(code: int, reason: str) -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "too old"})


class ScriptedTransport:
    """Answers in order. A stream is a list of frames, ending in nothing, in an exception, or in `HANG`."""

    def __init__(self, answers: list[Scripted] = (), streams: list[Any] = ()) -> None:  # type: ignore[assignment]
        self.answers: deque[Scripted] = deque(answers)
        self.streams: deque[Any] = deque(streams)
        self.calls: list[Call] = []
        self.stream_calls: list[Call] = []
        self.closed_streams = 0

    async def request(self, call: Call) -> Answer:
        self.calls.append(call)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer(call) if callable(answer) else answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        self.stream_calls.append(call)
        script = self.streams.popleft() if self.streams else [HANG]
        if isinstance(script, Exception):
            raise script
        try:
            yield _play(script)
        finally:
            self.closed_streams += 1

    async def close(self) -> None:
        pass


HANG = object()


async def _play(script: list[Any]) -> AsyncIterator[bytes]:
    import asyncio

    for item in script:
        if item is HANG:
            await asyncio.Event().wait()
        elif isinstance(item, Exception):
            raise item
        elif isinstance(item, asyncio.Event):
            await item.wait()
        else:
            yield item
