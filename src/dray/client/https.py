"""Calls over HTTPS to any Kubernetes API server."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from dray.client.credentials import Proof
from dray.client.errors import ApiError, KubeconfigError, ServerUnreachable
from dray.client.keep_alive import KeepAlivePool
from dray.client.kubeconfig import Connection
from dray.client.transport import URGENT, Answer, Call

# Only streams and calls through proxies need aiohttp. Importing it costs as much as a short command does in all.
if TYPE_CHECKING:
    import aiohttp

CONNECT_TIMEOUT_S = 10.0
MAX_RETIRED = 2
# A dead peer is noticed after about this long on a connection that is otherwise silent.
KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 30, 10, 3


def _broken() -> tuple[type[Exception], ...]:
    import aiohttp

    return (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class HttpsTransport:
    """One pool of connections to one server. A watch holds a connection; everything else shares the rest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None
        self._session_certificate: bytes | None = None
        # Sessions of earlier client certificates: their watches run on until the server ends them.
        self._retired: list[aiohttp.ClientSession] = []
        self._closed = False
        self._is_direct = not connection.proxy and not _env_proxy(connection.server)
        self._pool: KeepAlivePool | None = None
        self._pool_certificate: bytes | None = None

    async def request(self, call: Call) -> Answer:
        answer = await self._request_once(call)
        if answer.status == 401 and self._connection.credentials.refused():
            answer = await self._request_once(call)
        return answer

    async def _request_once(self, call: Call) -> Answer:
        if self._is_direct:
            return await self._request_directly(call)
        session, headers = await self._prepare(call)
        timeout = _timeout(call)
        try:
            async with session.request(
                call.method, self._url(call), data=call.body or None, headers=headers, timeout=timeout, **self._extra()
            ) as response:
                body = await response.read()
                return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, body)
        except _broken() as error:
            raise self._unreachable(error) from error

    async def _request_directly(self, call: Call) -> Answer:
        """Without a proxy, plain calls go over our own connections: a third of the work."""
        proof, headers = await self._headers(call)
        if self._pool is None or proof.client_certificate != self._pool_certificate:
            self._pool_certificate = proof.client_certificate
            context = ssl_context(self._connection, proof)
            self._pool = KeepAlivePool(self._connection.server, context, self._connection.tls_server_name)
        try:
            return await self._pool.request(call, headers)
        except OSError as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._open(call)
        if response.status == 401 and self._connection.credentials.refused():
            response.close()
            response = await self._open(call)
        try:
            if response.status >= 400:
                retry_after = response.headers.get("Retry-After", "")
                raise ApiError.from_answer(response.status, await response.read(), retry_after)
            yield self._frames(response)
        except _broken() as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    async def _open(self, call: Call) -> aiohttp.ClientResponse:
        session, headers = await self._prepare(call)
        timeout = _timeout(call)
        try:
            return await session.request(
                call.method, self._url(call), headers=headers, timeout=timeout, **self._extra()
            )
        except _broken() as error:
            raise self._unreachable(error) from error

    async def _frames(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        rest = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
        except _broken() as error:
            raise self._unreachable(error) from error
        if rest.strip():
            yield rest

    async def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.close()
        for session in (self._session, *self._retired):
            if session is not None:
                await session.close()

    # --- below

    async def _prepare(self, call: Call) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        proof, headers = await self._headers(call)
        return await self._session_for(proof), headers

    async def _headers(self, call: Call) -> tuple[Proof, dict[str, str]]:
        if self._closed:
            raise ServerUnreachable("the connection is closed")
        proof = await self._connection.credentials.proof()
        headers = {"Accept": call.accept, "User-Agent": call.user_agent}
        if call.body:
            headers["Content-Type"] = call.content_type
        if call.urgent:
            headers["Priority"] = URGENT
        if proof.authorization:
            headers["Authorization"] = proof.authorization
        return proof, headers

    async def _session_for(self, proof: Proof) -> aiohttp.ClientSession:
        """A new client certificate means new connections; running requests finish on the old ones."""
        if self._session is not None and proof.client_certificate == self._session_certificate:
            return self._session
        import aiohttp

        old, self._session_certificate = self._session, proof.client_certificate
        connector = aiohttp.TCPConnector(
            limit=0, ssl=ssl_context(self._connection, proof), socket_factory=_keepalive_socket
        )
        # Proxies come from the kubeconfig, or from HTTPS_PROXY and NO_PROXY (trust_env).
        self._session = aiohttp.ClientSession(connector=connector, trust_env=True, auto_decompress=True)
        if old is not None:
            self._retired.append(old)
            while len(self._retired) > MAX_RETIRED:
                await self._retired.pop(0).close()
        return self._session

    def _url(self, call: Call) -> str:
        url = self._connection.server + quote(call.path)
        return f"{url}?{urlencode(call.query)}" if call.query else url

    def _extra(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._connection.proxy:
            extra["proxy"] = self._connection.proxy
        if self._connection.tls_server_name:
            extra["server_hostname"] = self._connection.tls_server_name
        return extra

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        reason = str(error) or type(error).__name__
        if isinstance(error, asyncio.TimeoutError):
            reason = "timed out"
        elif isinstance(error, ConnectionRefusedError):
            reason = "connection refused"
        return ServerUnreachable(f"{self._connection.server}: {reason}")


def _timeout(call: Call) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=call.timeout_s, connect=CONNECT_TIMEOUT_S)


def _env_proxy(server: str) -> str:
    """The proxy that HTTPS_PROXY and NO_PROXY name for this server, if any."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    # Takes longer to load than all of this room, with mail and HTTP of its own.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(server)
    if proxy_bypass(parts.hostname or ""):
        return ""
    return getproxies().get(parts.scheme, "")


def ssl_context(connection: Connection, proof: Proof) -> ssl.SSLContext:
    try:
        if connection.ca and not connection.verify:
            # A typing error away from trusting everybody; kubectl refuses it as well.
            raise ValueError("a certificate-authority and insecure-skip-tls-verify exclude each other")
        context = ssl.create_default_context(cadata=connection.ca.decode() if connection.ca else None)
        if not connection.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = proof.client_certificate or connection.client_certificate
        key = proof.client_key or connection.client_key
        if certificate and key:
            _load_client_certificate(context, certificate, key)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"certificates for {connection.server}: {error}") from None
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL reads certificates from files only: a private one that lives as long as this call."""
    with tempfile.NamedTemporaryFile(prefix="dray-client-", suffix=".pem") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
