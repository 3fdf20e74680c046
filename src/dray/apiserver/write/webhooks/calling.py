"""Sends a question to a webhook and reads its answer, both JSON.

A webhook is a stranger: it may hang, redirect, or never stop answering. A call ends at its deadline, an answer of more than
`MAX_ANSWER_BYTES` is refused while it arrives, and redirects are not followed. Failures are worded as Kubernetes words them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dray.api.jsontext import go_json
from dray.api.safe_get import mapping, part, text
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.webhooks.service_endpoints import Address, NoEndpoint, ServiceEndpoints, ServiceReference
from dray.event_loop import loaded

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

# An object has at most 3 MiB, its patch in base64 a third more.
MAX_ANSWER_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024
# Connections to one webhook; more calls wait for one, within their deadline.
MOST_CONNECTIONS = 100
IDLE_S = 30.0
DEFAULT_PORT = 443
CONTEXTS = 64

REFUSALS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
MAX_QUOTED = 1024
# OpenSSL's codes for a chain that does not end at one of the authorities.
UNKNOWN_AUTHORITY = (18, 19, 20, 21)


class CallFailed(Exception):
    """No answer came, or one that is no success; the text says why."""


class BadAuthorities(CallFailed):
    """The certificates that the webhook's configuration names cannot be read; no call was made."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where a webhook is: a URL or a Service; and who signed its certificate (PEM; empty for the authorities of the system)."""

    url: str
    service: ServiceReference | None
    authorities: bytes

    @staticmethod
    def of(config: Document) -> ClientConfig:
        found = mapping(config, "service")
        service = None
        if found:
            port = part(found, "port")
            service = ServiceReference(
                text(found, "namespace"),
                text(found, "name"),
                port if isinstance(port, int) else DEFAULT_PORT,
                text(found, "path"),
            )
        try:
            authorities = base64.b64decode(text(config, "caBundle"))
        except binascii.Error:
            authorities = b""
        return ClientConfig(text(config, "url"), service, authorities)


class WebhookCaller:
    """Keeps connections to webhooks open between calls. The HTTP client is loaded with the first call, in a thread."""

    def __init__(self, services: ServiceEndpoints) -> None:
        self._services = services
        self._session: aiohttp.ClientSession | None = None

    async def post(self, config: ClientConfig, question: bytes, timeout_s: int) -> bytes:
        """The body of the answer; raises CallFailed."""
        shown = f'Post "{_shown_url(config)}?timeout={timeout_s}s"'
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post(config, question, timeout_s, shown)
        except TimeoutError:
            raise CallFailed(f"{shown}: context deadline exceeded") from None

    async def _post(self, config: ClientConfig, question: bytes, timeout_s: int, shown: str) -> bytes:
        await loaded("aiohttp")
        import aiohttp

        try:
            url, server_name = await self._target(config, timeout_s)
            async with self._open_session().post(
                url,
                data=question,
                headers=_headers(config),
                ssl=await tls_context(config.authorities),
                server_hostname=server_name,
                allow_redirects=False,
            ) as answer:
                body = await _read(answer.content.read)
                if not 200 <= answer.status <= 206:
                    raise CallFailed(_refusal(answer.status, body, answer.headers.get("content-type", "")))
                if not body:
                    kind = answer.headers.get("content-type", "")
                    raise CallFailed(f"0-length response with status code: {answer.status} and content type: {kind}")
                return body
        except NoEndpoint as error:
            raise CallFailed(f"{shown}: {error}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(f"{shown}: {_reason(error)}") from None

    async def _target(self, config: ClientConfig, timeout_s: int) -> tuple[URL, str | None]:
        """The URL to connect to, and the name that the certificate must have if that is not the URL's."""
        from yarl import URL

        service = config.service
        if service is None:
            return URL(config.url).with_query(timeout=f"{timeout_s}s"), None
        address: Address = await self._services.address(service)
        path = service.path or "/"
        target = URL.build(
            scheme="https", host=address.host, port=address.port, path=path, query={"timeout": f"{timeout_s}s"}
        )
        return target, service.host

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=MOST_CONNECTIONS, keepalive_timeout=IDLE_S)
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _headers(config: ClientConfig) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
    if config.service is not None:
        headers["Host"] = f"{config.service.host}:{config.service.port}"
    return headers


def _shown_url(config: ClientConfig) -> str:
    service = config.service
    return f"https://{service.host}:{service.port}{service.path or '/'}" if service else config.url


async def _read(read: Callable[[int], Awaitable[bytes]]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await read(READ_BYTES):
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise CallFailed(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _refusal(status: int, body: bytes, content_type: str) -> str:
    if 300 <= status < 400:
        return f"the server answered with a redirect (status code {status}), which is not followed"
    if own := _status_message(body):
        return own
    said = body[:MAX_QUOTED].decode("utf-8", "replace").strip() if content_type.startswith("text/") else ""
    if status == 403:
        return said or "unknown"
    if found := REFUSALS.get(status):
        return found
    if status >= 500:
        return f"an error on the server ({go_json(said or 'unknown')}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _status_message(body: bytes) -> str:
    """The message of a Status, if the body is one."""
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return text(status, "message")[:MAX_QUOTED] if text(status, "kind") == "Status" else ""


def _reason(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        problem = error.certificate_error
        unknown = getattr(problem, "verify_code", 0) in UNKNOWN_AUTHORITY
        words = "x509: certificate signed by unknown authority" if unknown else problem
        return f"tls: failed to verify certificate: {words}"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.errno).lower() if error.errno else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


# --- TLS


async def tls_context(authorities: bytes) -> ssl.SSLContext:
    """Made once for each bundle, in a thread: reading the authorities of the system takes tens of milliseconds."""
    found = _contexts.get(authorities)
    if found is None:
        try:
            found = await asyncio.to_thread(_new_context, authorities)
        except ssl.SSLError:
            raise BadAuthorities("unable to load root certificates: unable to parse bytes as PEM block") from None
        while len(_contexts) >= CONTEXTS:
            del _contexts[next(iter(_contexts))]
        _contexts[authorities] = found
    return found


_contexts: dict[bytes, ssl.SSLContext] = {}


def _new_context(authorities: bytes) -> ssl.SSLContext:
    if not authorities:
        return ssl.create_default_context()
    try:
        bundle = authorities.decode("ascii")
    except UnicodeDecodeError:
        raise ssl.SSLError("not PEM") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle)
    return context
