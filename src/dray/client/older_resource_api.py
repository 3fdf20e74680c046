"""Speaks v1beta2 or v1beta1 of resource.k8s.io to a server that does not serve v1. Clients above it know v1 only.

Which version is served is found out with the first call that needs it. A server that is upgraded no longer knows the old version some day:
then it is found out again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from dray.api import scheme
from dray.api.versions import GROUP, from_storage, to_storage
from dray.client.errors import ApiError
from dray.client.transport import Answer, Call, Transport

Document = dict[str, Any]

NEWEST_FIRST = ("v1", "v1beta2", "v1beta1")
PREFIX = f"/apis/{GROUP}/"
NEWEST = f"{PREFIX}v1/"
NOT_FOUND = 404
KINDS = {row.plural: row.kind for row in scheme.RESOURCES if row.group == GROUP}


class OlderResourceApi:
    """A transport over another one. With a server that serves v1 it changes nothing."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._version = ""

    async def request(self, call: Call) -> Answer:
        if not call.path.startswith(NEWEST):
            return await self._inner.request(call)
        version = await self._served()
        answer = await self._ask(call, version)
        if answer.status == NOT_FOUND and version != await self._served(again=version != "v1"):
            answer = await self._ask(call, self._version)
        return answer

    async def _ask(self, call: Call, version: str) -> Answer:
        if version == "v1":
            return await self._inner.request(call)
        answer = await self._inner.request(_older(call, version))
        return replace(answer, body=_newer(answer.body)) if answer.status < 400 else answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        version = await self._served() if call.path.startswith(NEWEST) else "v1"
        if version == "v1":
            async with self._inner.stream(call) as frames:
                yield frames
            return
        try:
            async with self._inner.stream(_older(call, version)) as frames:
                yield (_newer_event(frame) async for frame in frames)
        except ApiError as error:
            if error.is_not_found:
                self._version = ""
            raise

    async def close(self) -> None:
        await self._inner.close()

    async def _served(self, *, again: bool = False) -> str:
        """The newest version that the server has; v1 if it has none, so that its own refusal is told."""
        if not self._version or again:
            for version in NEWEST_FIRST:
                answer = await self._inner.request(Call("GET", f"{PREFIX}{version}"))
                if answer.status != NOT_FOUND:
                    break
            else:
                version = "v1"
            # A server that cannot answer now is asked again.
            if answer.status >= 500 or answer.status == 429:
                return version
            self._version = version
        return self._version


def _older(call: Call, version: str) -> Call:
    path = f"{PREFIX}{version}/{call.path.removeprefix(NEWEST)}"
    if call.method not in ("POST", "PUT") or not call.body:
        return replace(call, path=path)
    # A document need not say what it is: the path does.
    said = {"apiVersion": f"{GROUP}/v1", "kind": _kind_of(path)}
    document = from_storage({**said, **msgspec.json.decode(call.body)}, f"{GROUP}/{version}")
    return replace(call, path=path, body=msgspec.json.encode(document))


def _kind_of(path: str) -> str:
    parts = path.removeprefix(PREFIX).split("/")[1:]
    plural = parts[2] if parts[0] == "namespaces" else parts[0]
    return KINDS.get(plural, "")


def _newer(body: bytes) -> bytes:
    document = msgspec.json.decode(body)
    kind, version = str(document.get("kind", "")), document.get("apiVersion", "")
    if "items" in document and kind.endswith("List"):
        item = {"kind": kind.removesuffix("List"), "apiVersion": version}
        document["items"] = [to_storage({**item, **each}) for each in document["items"] or ()]
        document["apiVersion"] = f"{GROUP}/v1"
    else:
        document = to_storage(document)
    return msgspec.json.encode(document)


def _newer_event(frame: bytes) -> bytes:
    event = msgspec.json.decode(frame)
    return msgspec.json.encode({**event, "object": to_storage(event["object"])})
