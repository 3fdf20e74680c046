"""Typed calls to the API server, over any transport; and the transport to a server in the same process.

In one process there are no sockets and no TLS, but the same bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from dray.api import codec
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.client.kinds import (
    CLAIMS,
    PODS,
    ApiObject,
    Kind,
    WatchEvent,
    decode_object,
    decode_page,
    decode_written,
    event_decoder,
)
from dray.client.transport import JSON, URGENT, Answer, Call, Transport
from dray.clock import Clock, RealClock

T = TypeVar("T", bound=ApiObject)
Document = dict[str, Any]
Items = list[Document]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

MAX_RETRIES = 10
PAGE_SIZE = 500
GRACE_AFTER_WATCH_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list at one revision; a watch continues from it."""

    items: list[T]
    revision: str


class Client:
    """The API as one component sees it. `user_agent` names the component, and its field manager by default."""

    def __init__(
        self, transport: Transport, *, clock: Clock | None = None, user_agent: str = "dray", is_urgent: bool = False
    ) -> None:
        self.transport = transport
        self.clock = clock or RealClock()
        self.user_agent = user_agent
        self.is_urgent = is_urgent

    def named(self, user_agent: str) -> Client:
        """The same connection under another component's name."""
        return Client(self.transport, clock=self.clock, user_agent=user_agent, is_urgent=self.is_urgent)

    def urgent(self) -> Client:
        """The same connection with a higher priority for its calls."""
        return Client(self.transport, clock=self.clock, user_agent=self.user_agent, is_urgent=True)

    async def close(self) -> None:
        await self.transport.close()

    # --- reading

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        answer = await self._call("GET", kind, namespace, name)
        return decode_object(kind, answer.body)

    async def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Like `get`, with None for "not found"."""
        try:
            return await self.get(kind, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def get_document(self, kind: Kind[Any], name: str, namespace: str = "") -> Document:
        """Every field of the object, also those our structs do not model."""
        answer = await self._call("GET", kind, namespace, name)
        document: Document = msgspec.json.decode(answer.body)
        return document

    async def list_documents(self, kind: Kind[Any], namespace: str = "", *, label_selector: str = "") -> Items:
        """Every field of every object, in one piece. Items do not repeat `kind` and `apiVersion`."""
        answer = await self._call("GET", kind, namespace, query=_selectors(label_selector, ""))
        items: Items = msgspec.json.decode(answer.body).get("items") or []
        return items

    async def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[T]:
        """The whole list, fetched in pages. A continue token that expires on the way starts over in one piece."""
        query = _selectors(label_selector, field_selector)
        try:
            return await self._list_pages(kind, namespace, query, page_size)
        except ApiError as error:
            if not error.is_expired or not page_size:
                raise
            return await self._list_pages(kind, namespace, query, 0)

    async def _list_pages(self, kind: Kind[T], namespace: str, query: Mapping[str, str], page_size: int) -> Listing[T]:
        page_query = dict(query)
        if page_size:
            page_query["limit"] = str(page_size)
        items: list[T] = []
        while True:
            answer = await self._call("GET", kind, namespace, query=page_query, accept=kind.accept_list)
            page = decode_page(kind, answer.body)
            items.extend(page.items or ())
            if not page.metadata.continue_:
                return Listing(items, page.metadata.resource_version)
            page_query = {**page_query, "continue": page.metadata.continue_}

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        since: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 0.0,
        initial_events: bool = False,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """Events after revision `since`; with `initial_events` first the whole state and then a bookmark.

        An error that the server sends in the stream is raised as `ApiError`.
        """
        timeout_s = timeout_s or random.uniform(300, 600)
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, int(timeout_s)))}
        query |= _selectors(label_selector, field_selector)
        if since:
            query["resourceVersion"] = since
        if initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        call = Call(
            "GET",
            kind.path(namespace),
            query,
            accept=kind.accept,
            user_agent=self.user_agent,
            timeout_s=timeout_s + GRACE_AFTER_WATCH_TIMEOUT_S,
        )
        async with self.transport.stream(call) as frames:
            yield _events(frames, event_decoder(kind))

    # --- writing: the objects that are returned have no managedFields, as those of a watch

    async def create(self, kind: Kind[T], obj: T | Document, namespace: str = "") -> T:
        namespace = namespace or _metadata_field(obj, "namespace")
        answer = await self._call("POST", kind, namespace, body=_encode(obj))
        return decode_written(kind, answer.body)

    async def update(self, kind: Kind[T], obj: T | Document, *, subresource: str = "") -> T:
        """PUT: the whole object, refused if `metadata.resourceVersion` is no longer the stored one."""
        if kind.is_view and not isinstance(obj, dict):
            raise TypeError(f"{kind.name} structs are views: patch it, or update its document")
        namespace, name = _metadata_field(obj, "namespace"), _metadata_field(obj, "name")
        answer = await self._call("PUT", kind, namespace, name, subresource, body=_encode(obj))
        return decode_written(kind, answer.body)

    async def update_status(self, kind: Kind[T], obj: T | Document) -> T:
        return await self.update(kind, obj, subresource="status")

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Document | Sequence[Document],
        namespace: str = "",
        *,
        patch_type: str = MERGE_PATCH,
        subresource: str = "",
        uid: str = "",
        field_manager: str = "",
    ) -> T:
        """Merge patch unless told otherwise. With `uid`, an object re-created under the same name is refused (409)."""
        if uid and isinstance(patch, dict):
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        query = {"fieldManager": field_manager} if field_manager else {}
        answer = await self._call("PATCH", kind, namespace, name, subresource, query, _encode_patch(patch), patch_type)
        return decode_written(kind, answer.body)

    async def apply(
        self, kind: Kind[T], document: Document, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> T:
        """Server-side apply: `field_manager` owns exactly the fields of `document` afterwards."""
        document = {"apiVersion": kind.api_version, "kind": kind.name, **document}
        namespace, name = _metadata_field(document, "namespace"), _metadata_field(document, "name")
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        answer = await self._call(
            "PATCH", kind, namespace, name, subresource, query, codec.encode_document(document), APPLY_PATCH
        )
        return decode_written(kind, answer.body)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        revision: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """`uid` and `revision` are preconditions; `propagation` is Background, Foreground or Orphan."""
        options: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {"uid": uid, "resourceVersion": revision}
        if uid or revision:
            options["preconditions"] = {field: value for field, value in preconditions.items() if value}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        await self._call("DELETE", kind, namespace, name, body=codec.encode_document(options))

    async def delete_collection(
        self, kind: Kind[Any], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None:
        query = _selectors(label_selector, field_selector)
        await self._call("DELETE", kind, namespace, query=query, accept=kind.accept_list)

    async def bind(self, pod: Pod, node_name: str, *, annotations: Mapping[str, str] | None = None) -> None:
        """Binds this pod to a node; the UID is a precondition."""
        body = codec.encode_document(_binding(pod, node_name, annotations))
        await self._call("POST", PODS, pod.metadata.namespace, pod.metadata.name, "binding", body=body)

    async def bind_with_claim(
        self, pod: Pod, node_name: str, before: ResourceClaim, after: ResourceClaim
    ) -> ResourceClaim:
        """Stores the claim's new finalizers and status and binds the pod: all of it or, when refused, nothing.

        Only a server of the same program knows such a call.
        """
        # Loaded where pods are bound: no command needs it.
        from dray.api import joint_writes
        from dray.api.joint_writes import JointWrite, JointWrites

        path = escaped(CLAIMS.path(after.metadata.namespace, after.metadata.name))
        pod_path = escaped(PODS.path(pod.metadata.namespace, pod.metadata.name, "binding"))
        writes = [
            JointWrite("PUT", f"{path}/status", after),
            JointWrite("POST", pod_path, _binding(pod, node_name)),
        ]
        if before.metadata.finalizers != after.metadata.finalizers:
            writes.insert(0, JointWrite("PUT", path, replace(after, status=before.status)))
        body = codec.encode(JointWrites(writes))
        call = Call("POST", joint_writes.PATH, body=body, user_agent=self.user_agent, urgent=self.is_urgent)
        answer = joint_writes.decode_answer((await self._send(call)).body)
        stored = decode_written(CLAIMS, bytes(answer.objects[-2]))
        return replace(stored, metadata=replace(stored.metadata, resource_version=str(answer.revision)))

    async def evict(self, pod: Pod, *, grace_seconds: int | None = None) -> None:
        """Evicts the pod; 429 when a disruption budget forbids it now."""
        metadata = pod.metadata
        options: Document = {"preconditions": {"uid": metadata.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": metadata.namespace, "name": metadata.name},
            "deleteOptions": options,
        }
        body = codec.encode_document(eviction)
        await self._call("POST", PODS, metadata.namespace, metadata.name, "eviction", body=body, retries=0)

    async def raw(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes = b"", accept: str = JSON
    ) -> Answer:
        """A call outside the typed ones: discovery, health, another kind. Refusals raise `ApiError`."""
        return await self._send(Call(method, path, query or {}, body, accept=accept, user_agent=self.user_agent))

    # --- below

    def _call(
        self,
        method: str,
        kind: Kind[Any],
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        accept: str = "",
        retries: int = MAX_RETRIES,
    ) -> Awaitable[Answer]:
        call = Call(
            method,
            kind.path(namespace, name, subresource),
            query or {},
            body,
            content_type,
            accept or kind.accept,
            self.user_agent,
            urgent=self.is_urgent,
        )
        return self._send(call, retries)

    async def _send(self, call: Call, retries: int = MAX_RETRIES) -> Answer:
        """Sends the call, and sends it again while the server answers with Retry-After."""
        lost_reads = 0
        while True:
            try:
                answer = await self.transport.request(call)
            except ServerUnreachable:
                # A kept-alive connection that the server closed meanwhile: reading again is safe, writing is not.
                lost_reads += 1
                if call.method != "GET" or lost_reads > 1:
                    raise
                continue
            if answer.status < 400:
                return answer
            wait_s = _retry_after_s(answer)
            if wait_s is None or retries <= 0:
                raise ApiError.from_answer(answer.status, answer.body, answer.headers.get("retry-after", ""))
            retries -= 1
            await self.clock.sleep(wait_s)


async def _events(
    frames: AsyncIterator[bytes], decode: Callable[[bytes], WatchEvent[T] | None]
) -> AsyncIterator[WatchEvent[T]]:
    async for frame in frames:
        event = decode(frame)
        if event is not None:
            yield event


def _retry_after_s(answer: Answer) -> float | None:
    if answer.status != 429 and answer.status < 500:
        return None
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    query = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {parameter: text for parameter, text in query.items() if text}


def _metadata_field(obj: ApiObject | Document, field: str) -> str:
    if isinstance(obj, dict):
        return str(obj.get("metadata", {}).get(field, ""))
    return str(getattr(obj.metadata, field))


def _binding(pod: Pod, node_name: str, annotations: Mapping[str, str] | None = None) -> Document:
    metadata = {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata | ({"annotations": dict(annotations)} if annotations else {}),
        "target": {"kind": "Node", "apiVersion": "v1", "name": node_name},
    }


def _encode_patch(patch: Document | Sequence[Document]) -> bytes:
    return codec.encode_document(cast(Document, patch))


def _encode(obj: ApiObject | Document) -> bytes:
    return codec.encode_document(obj) if isinstance(obj, dict) else codec.encode(cast(msgspec.Struct, obj))


# Most names are DNS labels, which need no escapes.
_IS_PLAIN = re.compile(r"[A-Za-z0-9/._-]*").fullmatch


class ServerResponse(Protocol):
    """The answer of the server's core."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def stream(self) -> AsyncIterator[bytes] | None: ...


class InProcessTransport:
    """`InProcessTransport(server.handle, partial(Request, user=LOOPBACK))`.

    `make_request` builds the server's request type from `method`, `path`, `query`, `headers` and `body`, and carries the
    component's user. This room does not import the server.
    """

    def __init__(self, handle: Callable[[Any], Awaitable[ServerResponse]], make_request: Callable[..., Any]) -> None:
        self._handle = handle
        self._make_request = make_request
        self._closed = False

    async def request(self, call: Call) -> Answer:
        response = await self._response(call)
        headers = {name.lower(): value for name, value in response.headers}
        body = response.body
        if response.stream is not None:
            body = b"".join([chunk async for chunk in response.stream])
        return Answer(response.status, headers, body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._response(call)
        if response.stream is None:
            raise ApiError.from_answer(response.status, response.body)
        try:
            yield lines_of(response.stream)
        finally:
            await close_stream(response.stream)

    async def close(self) -> None:
        self._closed = True

    async def _response(self, call: Call) -> ServerResponse:
        if self._closed:
            raise ServerUnreachable("the connection is closed")
        request = self._make_request(
            method=call.method,
            path=escaped(call.path),
            query=encoded_query(call.query),
            headers=headers_of(call),
            body=call.body,
        )
        return await self._handle(request)


def headers_of(call: Call) -> dict[str, str]:
    headers = {"accept": call.accept, "user-agent": call.user_agent}
    if call.body:
        headers["content-type"] = call.content_type
    if call.urgent:
        headers["priority"] = URGENT
    return headers


def escaped(path: str) -> str:
    return path if _IS_PLAIN(path) else quote(path)


def encoded_query(query: Mapping[str, str]) -> str:
    if not query:
        return ""
    if _IS_PLAIN("".join(query.values())):
        return "&".join([f"{parameter}={text}" for parameter, text in query.items()])
    return urlencode(query)


async def close_stream(stream: AsyncIterator[bytes]) -> None:
    """Closes a stream that is a generator; others have nothing to close."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A chunk holds whole JSON lines, one or more."""
    async for chunk in chunks:
        for line in chunk.split(b"\n"):
            if line:
                yield line
