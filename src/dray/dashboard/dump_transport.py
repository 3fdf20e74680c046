"""A dump in place of an API server: answers lists from the objects of one moment, and watches in which nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dray.api import codec
from dray.client import (
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    ApiError,
)
from dray.client.kinds import Kind
from dray.client.transport import Answer, Call
from dray.explain.cluster_objects import ClusterObjects

KINDS: tuple[Kind[Any], ...] = (
    *(NODES, PODS, CLAIMS, SLICES, DEVICE_CLASSES, TEMPLATES),
    *(TAINT_RULES, NAMESPACES, PRIORITY_CLASSES, QUOTAS, EVENTS),
)
REVISION = "1"


class DumpTransport:
    """The dashboard reads a dump through the same client as a cluster."""

    def __init__(self, world: ClusterObjects) -> None:
        found: dict[type, list[msgspec.Raw]] = {kind.type: [] for kind in KINDS}
        for obj in world.objects():
            found[type(obj)].append(msgspec.Raw(codec.encode(obj)))
        self._bodies = {"/version": b"{}"}
        for kind in KINDS:
            page = {"metadata": {"resourceVersion": REVISION}, "items": found[kind.type]}
            self._bodies[kind.path()] = msgspec.json.encode(page)

    async def request(self, call: Call) -> Answer:
        body = self._bodies.get(call.path)
        return Answer(200, {}, body) if body is not None else Answer(404, {}, b"{}")

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        if "sendInitialEvents" in call.query:
            raise ApiError.from_answer(422, b"{}")
        yield _nothing_happens()

    async def close(self) -> None:
        """There is nothing to close."""


async def _nothing_happens() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""
