"""`pods/proxy`, `services/proxy` and `nodes/proxy`: requests that are passed on to what listens in a pod, or to the agent of a node.

A pod with an address of its own is reached there, as in Kubernetes. One that has its node's, or one on loopback, is reached through the agent of its node, in the
pod's own network: the server itself connects to no loopback or link-local address. Imported when the first one comes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Any
from urllib.parse import quote

from dray.api import scheme
from dray.api.safe_get import mapping, mappings, part, strings, text
from dray.apiserver import errors
from dray.apiserver.core import Core
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.subresources.node_agents import NodeAgents, untrusted_agent
from dray.http.proxied import HOP_BY_HOP, BrokenAnswer, ProxiedAnswer, ProxiedRequest, exchange, join
from dray.http.responses import Response
from dray.http.spdy import SpdySession
from dray.http.tunnel import ByteStream, StreamPair, port_number
from dray.http.upgrade_client import UpgradeRequest, is_asked_for, request_upgrade, tokens

log = logging.getLogger(__name__)

Document = dict[str, Any]
MOST_REQUESTS = 1000
CONNECT_TIMEOUT_S = 30.0
# Characters of headers that the server remembers in the form in which it writes them.
MAX_REMEMBERED = 1024
SERVICE_LABEL = "kubernetes.io/service-name"
# Credentials are the client's own and for this server only.
NOT_PASSED_ON = HOP_BY_HOP | {"authorization", "content-length", "expect", "x-forwarded-for", "x-forwarded-uri"}
PORT_FORWARD = (
    ("Connection", "Upgrade"),
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", "portforward.k8s.io"),
)


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """`[SCHEME:]NAME[:PORT]`, as the path names it."""

    scheme: str
    name: str
    port: str

    @classmethod
    def of(cls, what: str, text_: str) -> ProxyTarget:
        parts = text_.split(":")
        if len(parts) < 3:
            parts = ["", *parts, ""][:3]
        if len(parts) > 3 or not parts[1] or parts[0] not in ("", "http", "https"):
            raise errors.bad_request(f'invalid {what} request "{text_}"')
        return cls(*parts)

    def number(self) -> int:
        """The port; that of the scheme if none is named."""
        if not self.port:
            return 443 if self.scheme == "https" else 80
        number = port_number(self.port)
        if number is None:
            raise errors.bad_request(f'"{self.port}" is not a port')
        return number


@dataclass(frozen=True, slots=True)
class BackendConnection:
    stream: ByteStream
    close: Callable[[], object]


class Proxies:
    def __init__(self, core: Core, agents: NodeAgents, *, most: int = MOST_REQUESTS) -> None:
        self._core = core
        self._agents = agents
        self._most = most
        self._open = 0
        self._random = SystemRandom()

    async def answer(self, call: ApiCall) -> Response:
        path = _rest(call.request.path, call.info.in_namespace_path)
        if path is None and call.request.method in ("GET", "HEAD"):
            query = f"?{call.request.query}" if call.request.query else ""
            return Response(301, b"", "text/plain", (("Location", f"{call.request.path}/{query}"),))
        if self._open >= self._most:
            raise errors.too_many_requests(f"{self._open} requests are being passed on; try again later", 10)
        self._open += 1
        connection: BackendConnection | None = None
        try:
            connection = await self._connect(call)
            answer = await exchange(connection.stream, _request(call, path or "/"))
            if answer.status == 101 and not is_asked_for(call.request.headers):
                raise BrokenAnswer("it changes the protocol without having been asked")
        except BaseException as problem:
            self._end(connection)
            if isinstance(problem, (OSError, TimeoutError, BrokenAnswer)):
                raise errors.unavailable(
                    f"error trying to reach service: {problem or 'no connection in time'}"
                ) from problem
            raise
        return self._response(call, answer, connection)

    def _end(self, connection: BackendConnection | None) -> None:
        self._open -= 1
        if connection is not None:
            connection.close()

    def _response(self, call: ApiCall, answer: ProxiedAnswer, connection: BackendConnection) -> Response:
        if answer.status == 101:
            headers = tuple(each for each in answer.headers if each[0] not in HOP_BY_HOP - {"upgrade"})

            async def tunnel(client: Any) -> None:
                try:
                    await join(client, connection.stream, answer.rest)
                finally:
                    self._end(connection)

            return Response(101, headers=(("Connection", "Upgrade"), *headers), tunnel=tunnel)
        named = dict(answer.headers)
        apart = HOP_BY_HOP | {"content-type", "cache-control", "content-length", "date"}
        headers = tuple(
            (name, _location(call, value) if name == "location" else value)
            for name, value in answer.headers
            if name not in apart
        )
        return Response(
            answer.status,
            content_type=named.get("content-type", "application/octet-stream")[:MAX_REMEMBERED],
            headers=headers,
            stream=_Pieces(answer.body, lambda: self._end(connection)),
            cache_control=named.get("cache-control", "no-cache, private")[:MAX_REMEMBERED],
        )

    # --- who answers

    async def _connect(self, call: ApiCall) -> BackendConnection:
        what = call.row.kind.lower()
        target = ProxyTarget.of(what, call.name)
        await self._core.fresh()
        if what == "node":
            return await self._connect_to_node(target)
        if what == "service":
            pod, target = self._endpoint(call.namespace, target)
        else:
            pod = self._object("Pod", "", call.namespace, target.name)
            target = _with_first_port(target, pod)
        return await self._connect_to_pod(pod, target)

    def _object(self, kind: str, group: str, namespace: str, name: str) -> Document:
        row = scheme.by_kind(kind, group)
        stored = self._core.cache(row).get(namespace, name)
        if stored is None:
            raise errors.not_found(row, name)
        return stored.document()

    async def _connect_to_node(self, target: ProxyTarget) -> BackendConnection:
        host, port = self._agents.address_of(target.name)
        if not target.port or target.number() == port:
            try:
                return await _dial(host, port, self._agents.tls, target.name)
            except ssl.CertificateError as problem:
                raise untrusted_agent(target.name, problem) from problem
        if not is_proxyable(host):
            raise errors.bad_request("address not allowed")
        return await _dial(host, target.number(), _unchecked(target.scheme))

    async def _connect_to_pod(self, pod: Document, target: ProxyTarget) -> BackendConnection:
        address = text(mapping(pod, "status"), "podIP")
        if is_proxyable(address):
            return await _dial(address, target.number(), _unchecked(target.scheme))
        if target.scheme == "https":
            raise errors.bad_request(
                "address not allowed: a pod without an address of its own is reached with http only"
            )
        return await self._connect_through_agent(pod, target.number())

    async def _connect_through_agent(self, pod: Document, port: int) -> BackendConnection:
        node_name, metadata = text(mapping(pod, "spec"), "nodeName"), pod["metadata"]
        if not node_name:
            raise errors.bad_request(f"pod {metadata['name']} does not have a host assigned")
        host, agent_port = self._agents.address_of(node_name)
        names = "/".join(quote(metadata[name], safe="") for name in ("namespace", "name"))
        asked = UpgradeRequest(
            host, agent_port, f"/portForward/{names}", PORT_FORWARD, "POST", self._agents.tls, node_name
        )
        try:
            answer = await request_upgrade(asked)
        except ssl.CertificateError as problem:
            raise untrusted_agent(node_name, problem) from problem
        except ValueError as problem:
            raise BrokenAnswer(str(problem)) from problem
        if answer.connection is None:
            raise BrokenAnswer(answer.text.decode("utf-8", "replace").strip() or f"status {answer.status}")
        return await _forwarded(answer.connection, port)

    def _endpoint(self, namespace: str, target: ProxyTarget) -> tuple[Document, ProxyTarget]:
        """One of the ready pods behind the service, by chance. Addresses that are no pod's are not connected to."""
        port_name = target.port
        number = port_number(target.port)
        if number is not None:
            service = self._object("Service", "", namespace, target.name)
            ports = mappings(mapping(service, "spec"), "ports")
            found = next((each for each in ports if each.get("port") == number), None)
            if found is None:
                text_ = f'no service port {target.port} found for service "{target.name}"'
                raise errors.unavailable(text_)
            port_name = text(found, "name")
        ready = list(self._ready_pods(namespace, target.name, port_name))
        if not ready:
            raise errors.unavailable(f'no endpoints available for service "{target.name}"')
        pod, port = self._random.choice(ready)
        return pod, ProxyTarget(target.scheme, text(pod["metadata"], "name"), str(port))

    def _ready_pods(self, namespace: str, service: str, port_name: str) -> list[tuple[Document, int]]:
        found: list[tuple[Document, int]] = []
        slices = self._core.cache(scheme.by_kind("EndpointSlice", "discovery.k8s.io"))
        pods = self._core.cache(scheme.by_kind("Pod", ""))
        for stored in slices.list(namespace):
            # Those of thousands of other services are passed without being read.
            if stored.labels().get(SERVICE_LABEL) != service:
                continue
            document = stored.document()
            ports = [each.get("port") for each in mappings(document, "ports") if text(each, "name") == port_name]
            if not ports or not isinstance(ports[0], int):
                continue
            for endpoint in mappings(document, "endpoints"):
                reference = mapping(endpoint, "targetRef")
                is_ready = part(endpoint, "conditions", "ready") is not False
                if not is_ready or (text(reference, "kind"), text(reference, "namespace")) != ("Pod", namespace):
                    continue
                pod = pods.get(namespace, text(reference, "name"))
                if pod is not None and _has_address(pod.document(), strings(endpoint, "addresses")):
                    found.append((pod.document(), ports[0]))
        return found


def is_proxyable(address: str) -> bool:
    """Whether this is the address of one machine or pod on a network: none of this machine's own, of no link and of no group."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped  # a connection to ::ffff:127.0.0.1 is one to 127.0.0.1
    special = found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    return not special and str(found) != "255.255.255.255"


def _has_address(pod: Document, addresses: list[str]) -> bool:
    status = mapping(pod, "status")
    own = {text(status, "podIP"), *(text(each, "ip") for each in mappings(status, "podIPs"))}
    return bool(own & set(addresses))


def _with_first_port(target: ProxyTarget, pod: Document) -> ProxyTarget:
    if target.port:
        return target
    containers = mappings(mapping(pod, "spec"), "containers")
    ports = [each.get("containerPort") for container in containers for each in mappings(container, "ports")]
    return ProxyTarget(target.scheme, target.name, str(ports[0])) if ports else target


# --- connections


async def _dial(host: str, port: int, tls: ssl.SSLContext | None, name: str | None = None) -> BackendConnection:
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        pair = StreamPair(
            *await asyncio.open_connection(host, port, ssl=tls, server_hostname=(name or host) if tls else None)
        )
    return BackendConnection(pair, pair.abort)


def _unchecked(scheme_: str) -> ssl.SSLContext | None:
    """Certificates of pods are not checked, as in Kubernetes: there is no authority for their addresses."""
    if scheme_ != "https":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _forwarded(agent: StreamPair, port: int) -> BackendConnection:
    """A connection to a port of the pod; its session with the agent is read in the background."""
    session = SpdySession(agent, lambda stream: "the agent opens no streams", is_client=True)
    reading = asyncio.create_task(session.run(), name=f"connection to port {port} of a pod")
    names = {"port": str(port), "requestID": "0"}
    error = await session.open_stream({"streamType": "error", **names})
    data = await session.open_stream({"streamType": "data", **names})

    def close() -> None:
        agent.abort()
        reading.cancel()

    return BackendConnection(_Forwarded(data, error), close)


class _Forwarded:
    """Data of a forwarded port; an error of the agent is one of the connection."""

    def __init__(self, data: ByteStream, error: ByteStream) -> None:
        self._data = data
        self._error = error
        self._has_heard = False

    async def read(self) -> bytes:
        piece = await self._data.read()
        if not piece and not self._has_heard:
            said = (await self._error.read()).decode("utf-8", "replace")
            raise ConnectionResetError(said or "the connection was closed")
        self._has_heard = True
        return piece

    async def write(self, data: bytes) -> None:
        await self._data.write(data)


class _Pieces:
    """The body of an answer. `end` is called once, also if nobody has read any of it."""

    def __init__(self, body: AsyncIterator[bytes], end: Callable[[], object]) -> None:
        self._body = body
        self._end: Callable[[], object] | None = end

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()


# --- the request


def _rest(path: str, in_namespace: bool) -> str | None:
    """What follows `proxy` in the path, as it came (`/api/v1/nodes/NAME/proxy/REST`, or below a namespace); None if nothing does."""
    before = _segments_before(in_namespace)
    parts = path.split("/", before)
    return f"/{parts[before]}" if len(parts) > before else None


def _segments_before(in_namespace: bool) -> int:
    return 8 if in_namespace else 6


def _request(call: ApiCall, path: str) -> ProxiedRequest:
    request = call.request
    for_this_connection = NOT_PASSED_ON | tokens(request.headers.get("connection", ""))
    headers = [
        (name, value)
        for name, value in request.headers.items()
        if name not in for_this_connection and not name.startswith(("impersonate-", "x-remote-"))
    ]
    if is_asked_for(request.headers):
        headers += [("Connection", "Upgrade"), ("Upgrade", request.headers["upgrade"])]
    else:
        headers.append(("Connection", "close"))
    before = request.headers.get("x-forwarded-for", "")
    headers.append(("X-Forwarded-For", f"{before}, {request.remote}" if before else request.remote or "127.0.0.1"))
    headers.append(("X-Forwarded-Uri", request.path))
    target = f"{path}?{request.query}" if request.query else path
    return ProxiedRequest(request.method, target, tuple(headers), request.body)


def _location(call: ApiCall, value: str) -> str:
    """A redirect to another path of the same server leads through the proxy again."""
    if not value.startswith("/") or value.startswith("//"):
        return value
    before = call.request.path.split("/")[: _segments_before(call.info.in_namespace_path)]
    return "/".join(before) + value
