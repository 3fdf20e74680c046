"""Bytes that others send over a connection: HTTP in any pieces, frames of WebSocket and SPDY, protobuf, answers of proxied servers and of webhooks."""

# ruff: noqa: PT017 - an answer and a refusal are both fine here

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from dray.api.errors import DecodeError
from dray.apiserver.custom_resources.conversions import _converted, _problem
from dray.apiserver.read.protobuf_encoding import encode_object
from dray.apiserver.write import protobuf
from dray.apiserver.write.admission.webhook_plugins import WebhookFailed, _operations
from dray.apiserver.write.patching import json_patch
from dray.apiserver.write.webhooks.admission_review import InvalidAnswer, read_answer
from dray.http import spdy
from dray.http.connection import KNOWN_METHODS, HttpConnection, HttpRequest, OpenConnections
from dray.http.proxied import BrokenAnswer, ProxiedRequest, exchange
from dray.http.websocket import WebSocket
from tests.fuzz.mutations import ANY_BYTES, almost, almost_text
from tests.fuzz.test_files import POD, SLICE, fuzzed


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    at = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(at) if start < end]


@st.composite
def spoiled(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes with a few of them lost, changed or repeated."""
    data = good
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    return data


PLACES = st.lists(st.integers(0, 2000), max_size=6)


# --- HTTP


class Wire(asyncio.Transport):
    """The other end of a connection, which keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def requests_in(pieces: Iterable[bytes]) -> tuple[list[tuple[str, bytes, dict[str, str], bytes, str]], bool]:
    """What the server was asked by these bytes, and whether it has closed the connection."""
    asked: list[tuple[str, bytes, dict[str, str], bytes, str]] = []

    async def serve(request: HttpRequest, connection: HttpConnection) -> None:
        asked.append((request.method, request.target, request.headers, request.body, request.problem))

    connection = HttpConnection(serve, OpenConnections())
    wire = Wire()
    connection.connection_made(wire)
    for piece in pieces:
        if wire.closed:
            break
        connection.data_received(piece)
        if connection.serving is not None:
            await connection.serving
    connection.connection_lost(None)
    return asked, wire.closed


HTTP = (
    b"GET /api/v1/pods?limit=5 HTTP/1.1\r\nHost: a:1\r\nAccept: x\r\nAccept: y\r\n\r\n"
    b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    b"PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nAuthorization: z\r\n\r\n"
    b"BREW /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
)


@fuzzed
@example(data=HTTP, places=[1, 30, 90, 91, 150, 200])
@example(data=HTTP, places=[HTTP.index(b"BREW")])
@given(data=spoiled(HTTP) | ANY_BYTES, places=PLACES)
def test_http_in_any_pieces(data: bytes, places: list[int]) -> None:
    """The same requests come out however the bytes are cut. A refusal may come sooner or later, and ends the connection.

    A method that HTTP does not have is passed on only where a read begins with it; behind another request in one read it is refused.
    """

    async def both() -> None:
        whole, _ = await requests_in([data])
        parts, _ = await requests_in(cut(data, places))
        fewer, more = sorted(([each for each in found if not each[4]] for found in (whole, parts)), key=len)
        further = more[len(fewer) :]
        assert fewer == more[: len(fewer)]
        assert not further or further[0][0].encode() not in KNOWN_METHODS
        for found in (whole, parts):
            assert all(not each[4] for each in found[:-1]), "a request that cannot be read is the last"

    asyncio.run(both())


# --- frames


class Bytes:
    """A stream that brings these pieces, and then ends."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)
        self.written = b""

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return self._pieces.pop(0) if self._pieces else b""

    async def write(self, data: bytes) -> None:
        self.written += data


def a_frame(code: int, payload: bytes, final: bool = True) -> bytes:
    head = struct.pack("!BB", (0x80 if final else 0) | code, 0x80 | len(payload))
    return head + b"\1\2\3\4" + bytes(each ^ (at % 4 + 1) for at, each in enumerate(payload))


FRAMES = a_frame(2, b"\0hello") + a_frame(9, b"ping") + a_frame(1, b"a", False) + a_frame(0, b"b") + a_frame(8, b"")


@fuzzed
@given(data=spoiled(FRAMES) | ANY_BYTES, places=PLACES)
def test_websocket_frames(data: bytes, places: list[int]) -> None:
    async def all_messages() -> None:
        socket = WebSocket(Bytes(cut(data, places)))
        while (message := await socket.receive()) is not None:
            assert isinstance(message, bytes)

    asyncio.run(all_messages())


def spdy_frames() -> bytes:
    async def speak() -> bytes:
        sink = Bytes([])
        session = spdy.SpdySession(sink, lambda stream: "", is_client=True)
        stream = await session.open_stream({"streamType": "data", "port": "80", "requestID": "0"})
        await stream.write(b"hello")
        await stream.close()
        await session._send_control(spdy.PING, 0, struct.pack("!I", 1))
        await session.open_stream({"streamType": "error"})
        return sink.written

    return asyncio.run(speak())


SPDY = spdy_frames()


@fuzzed
@given(data=spoiled(SPDY) | ANY_BYTES, places=PLACES)
def test_spdy_frames(data: bytes, places: list[int]) -> None:
    async def run() -> None:
        taken: list[spdy.SpdyStream] = []

        def take(stream: spdy.SpdyStream) -> str:
            taken.append(stream)
            return ""

        session = spdy.SpdySession(Bytes(cut(data, places)), take)
        try:
            async with asyncio.timeout(10):
                await session.run()
        except spdy.BrokenSession as problem:
            assert str(problem)
        assert session.is_closed
        for stream in taken:
            assert isinstance(await stream.read(), bytes)

    asyncio.run(run())


# --- answers of others

ANSWER = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"
)


@fuzzed
@given(data=spoiled(ANSWER) | ANY_BYTES, places=PLACES, method=st.sampled_from(["GET", "HEAD", "POST"]))
def test_answers_of_proxied_servers(data: bytes, places: list[int], method: str) -> None:
    async def run() -> None:
        server = Bytes(cut(data, places))
        try:
            answer = await exchange(server, ProxiedRequest(method, "/", ()))
            assert answer.status >= 200 or answer.status == 101
            assert all("\r" not in value and "\n" not in value for _, value in answer.headers) or answer.status == 101
            async for piece in answer.body:
                assert piece
        except BrokenAnswer as problem:
            assert str(problem)

    asyncio.run(run())


REVIEW = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "response": {
        "uid": "u",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]').decode(),
        "warnings": ["w"],
        "auditAnnotations": {"a": "b"},
        "status": {"code": 403, "message": "m", "reason": "r", "details": {"causes": [{"field": "f"}]}},
    },
}
NO_UTF8_IN_THE_PATCH = json.dumps(
    {**REVIEW, "response": {**REVIEW["response"], "patch": base64.b64encode(b'[{"\xe4":1}]').decode()}}  # type: ignore[dict-item]
).encode()


@fuzzed
@example(body=NO_UTF8_IN_THE_PATCH, mutating=True, version="v1")
@given(
    body=almost_text(REVIEW, as_json=True) | ANY_BYTES,
    mutating=st.booleans(),
    version=st.sampled_from(["v1", "v1beta1"]),
)
def test_answers_of_admission_webhooks(body: bytes, mutating: bool, version: str) -> None:
    try:
        answer = read_answer(body, "u", version, mutating=mutating)
        json_patch.apply(POD, _operations(answer))
    except (InvalidAnswer, DecodeError, WebhookFailed, json_patch.PatchFailed) as problem:
        assert str(problem)


PATCH = [
    {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    {"op": "copy", "from": "/metadata", "path": "/spec/copied"},
    {"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/-"},
    {"op": "test", "path": "/metadata/name", "value": "p"},
    {"op": "replace", "path": "/spec/resourceClaims/0/name", "value": "x"},
    {"op": "remove", "path": "/spec/copied"},
]


@fuzzed
@given(operations=almost(PATCH))
def test_json_patches(operations: Any) -> None:
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        return
    before = json.dumps(POD)
    try:
        json_patch.apply(POD, operations)
    except json_patch.PatchFailed as problem:
        assert str(problem)
    assert json.dumps(POD) == before


CONVERSION = {
    "kind": "ConversionReview",
    "apiVersion": "apiextensions.k8s.io/v1",
    "response": {
        "uid": "u",
        "result": {"status": "Success", "message": ""},
        "convertedObjects": [{"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}}],
    },
}


@fuzzed
@given(body=almost_text(CONVERSION, as_json=True) | ANY_BYTES, version=st.sampled_from(["v1", "v1beta1"]))
def test_answers_of_conversion_webhooks(body: bytes, version: str) -> None:
    try:
        made = _converted(body, "u", version)
    except (DecodeError, ValueError) as problem:
        assert str(problem)
        return
    for found in made:
        if not _problem({"metadata": {"name": "n"}}, found, "K", "g/v2"):
            assert cast("dict[str, Any]", found)["metadata"]["name"] == "n"


# --- protobuf

OBJECTS = [encode_object(POD, "v1", "Pod"), encode_object(SLICE, "resource.k8s.io/v1", "ResourceSlice")]


@fuzzed
@given(data=st.sampled_from(OBJECTS).flatmap(spoiled) | ANY_BYTES | ANY_BYTES.map(lambda data: OBJECTS[0][:4] + data))
def test_protobuf(data: bytes) -> None:
    try:
        if protobuf.is_readable(data):
            json.dumps(protobuf.read(data))
    except DecodeError as problem:
        assert str(problem)
