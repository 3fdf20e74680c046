"""Records acknowledged writes and watch events into a history; a broken watch is resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from dray.api import scheme
from dray.client import CLAIMS, NODES, PODS, SLICES, Answer, ApiError, Call, Client, Kind, ServerUnreachable, Transport
from dray.client.kinds import RawEvent
from dray.clock import Clock, RealClock
from dray.proof.history import (
    Document,
    Listed,
    ObjectKey,
    Opened,
    Read,
    Record,
    SeenEvent,
    Write,
    key_of,
    metadata_of,
    revision_of,
)
from dray.tasks import cancelled

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Kinds that others refer to come first.
FOLLOWED: tuple[Kind[Any], ...] = (SLICES, NODES, CLAIMS, PODS)
RETRY_S = 0.2
WATCH_S = 60.0


class Sink(Protocol):
    """Takes records: a `History`, or a check that looks at them at once."""

    def add(self, record: Record) -> None: ...


class RecordingTransport:
    """Forwards calls and records each acknowledged write before the caller gets the answer."""

    def __init__(self, inner: Transport, history: Sink, *, actor: str = "", clock: Clock | None = None) -> None:
        self._inner = inner
        self._history = history
        self._actor = actor
        self._clock = clock or RealClock()

    async def request(self, call: Call) -> Answer:
        began = self._clock.monotonic()
        answer = await self._inner.request(call)
        if call.method in VERBS and answer.status < 300 and "dryRun" not in call.query:
            self._record(call, answer, began)
        elif call.method == "GET" and answer.status in (200, 404) and not call.query:
            self._record_read(call, answer, began)
        return answer

    def stream(self, call: Call) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(call)

    async def close(self) -> None:
        await self._inner.close()

    def _record_read(self, call: Call, answer: Answer, began: float) -> None:
        where = _target(call.path)
        if where is None or not where[0].name or where[1]:
            return
        revision = revision_of(msgspec.json.decode(answer.body)) if answer.status == 200 else 0
        self._history.add(Read(where[0], revision, began, self._clock.monotonic(), self._actor))

    def _record(self, call: Call, answer: Answer, began: float) -> None:
        where = _target(call.path)
        if where is None:
            return
        key, subresource = where
        body = msgspec.json.decode(answer.body) if answer.body else {}
        if not isinstance(body, dict):
            return
        is_object = body.get("kind") == _kind_of(key.resource)
        if is_object and not key.name:
            key = key_of(key.resource, body)
        uid = metadata_of(body).get("uid") if is_object else (body.get("details") or {}).get("uid")
        self._history.add(
            Write(
                key=key,
                verb=VERBS[call.method],
                revision=revision_of(body) if is_object else 0,
                uid=str(uid or ""),
                at=self._clock.monotonic(),
                actor=self._actor,
                subresource=subresource,
                request=msgspec.Raw(call.body or b"null")
                if call.content_type.endswith("json")
                else msgspec.Raw(b"null"),
                answer=body if is_object else None,
                began=began,
            )
        )


class WatchRecorder:
    """Lists and watches kinds until stopped, and records every event. A broken watch resumes from the last revision."""

    def __init__(self, client: Client, history: Sink, stream: str, kinds: Sequence[Kind[Any]] = FOLLOWED) -> None:
        self._client = client
        self._history = history
        self._stream = stream
        self._kinds = kinds
        self._listed = {kind.plural: asyncio.Event() for kind in kinds}
        self._last = {kind.plural: 0 for kind in kinds}
        self._tasks: list[asyncio.Task[None]] = []
        self.breaks = 0
        self.restarts = 0

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._follow(kind), name=f"follow {kind.plural}") for kind in self._kinds]
        for listed in self._listed.values():
            await listed.wait()

    async def stop(self) -> None:
        await cancelled(*self._tasks)

    async def finish(self, timeout_s: float = 60.0) -> list[str]:
        """Waits until the watches have reached what is there now, stops them, lists once more and closes. The watches that did not get there."""
        deadline = self._client.clock.monotonic() + timeout_s
        behind = []
        for kind in self._kinds:
            listed = await self._read_list(kind)
            wanted = max((revision_of(each) for each in listed.documents), default=0)
            while self._last[listed.resource] < wanted and self._client.clock.monotonic() < deadline:
                await self._client.clock.sleep(0.05)
            if self._last[listed.resource] < wanted:
                last = self._last[listed.resource]
                behind.append(f"the watch {self._stream} of {listed.resource} stays at {last}, and {wanted} is there")
        await self.stop()
        # Only now: a list from before could be older than the last event.
        for kind in self._kinds:
            self._history.add(await self._read_list(kind))
        await self._client.close()
        return behind

    async def _follow(self, kind: Kind[Any]) -> None:
        while True:
            try:
                if not self._last[kind.plural]:
                    listed = await self._read_list(kind)
                    self._history.add(listed)
                    self._last[kind.plural] = listed.revision
                    self._listed[kind.plural].set()
                await self._watch(kind, self._last[kind.plural])
            except ApiError as error:
                if error.is_expired:
                    self._last[kind.plural] = 0
                    self.restarts += 1
            except ServerUnreachable:
                pass
            self.breaks += 1
            await self._client.clock.sleep(RETRY_S)

    async def _read_list(self, kind: Kind[Any]) -> Listed:
        while True:
            try:
                answer = await self._client.transport.request(Call("GET", kind.path()))
            except ServerUnreachable:
                await self._client.clock.sleep(RETRY_S)
                continue
            if answer.status == 200:
                break
            if answer.status not in (429, 500, 503, 504):
                raise ApiError.from_answer(answer.status, answer.body)
            await self._client.clock.sleep(RETRY_S)
        body = msgspec.json.decode(answer.body)
        named = {"apiVersion": kind.api_version, "kind": kind.name}
        documents = [named | each for each in body.get("items") or ()]
        return Listed(self._stream, kind.plural, revision_of(body), self._client.clock.monotonic(), documents)

    async def _watch(self, kind: Kind[Any], revision: int) -> None:
        """Until the watch ends or breaks."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(revision),
            "timeoutSeconds": str(int(WATCH_S)),
        }
        call = Call("GET", kind.path(), query, timeout_s=WATCH_S + 10)
        async with self._client.transport.stream(call) as frames:
            self._history.add(Opened(self._stream, kind.plural, revision, self._client.clock.monotonic()))
            async for frame in frames:
                self._take(kind, frame)

    def _take(self, kind: Kind[Any], frame: bytes) -> None:
        event = msgspec.json.decode(frame, type=RawEvent)
        document: Document = msgspec.json.decode(event.object)
        if event.type == "ERROR":
            raise ApiError.from_answer(int(document.get("code", 500)), bytes(event.object))
        revision = revision_of(document)
        key = ObjectKey(kind.plural, "", "") if event.type == "BOOKMARK" else key_of(kind.plural, document)
        self._history.add(SeenEvent(self._stream, event.type, key, revision, self._client.clock.monotonic(), document))
        self._last[kind.plural] = revision


def _target(path: str) -> tuple[ObjectKey, str] | None:
    """The object that a path names, and its subresource."""
    parts = path.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1] if len(parts) > 1 else ""
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not rest or not rest[0]:
        return None
    resource = f"{rest[0]}.{group}" if group else rest[0]
    name, subresource = [*rest, "", ""][1:3]
    return ObjectKey(resource, namespace, name), subresource


def _kind_of(resource: str) -> str:
    plural, _, group = resource.partition(".")
    row = scheme.by_plural(group, plural)
    return row.kind if row is not None else ""
