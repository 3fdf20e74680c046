"""The HTTPS socket of the API server; it also serves handlers that are mounted below a path, such as the dashboard."""

from __future__ import annotations

import resource
import ssl
from collections.abc import Mapping
from types import MappingProxyType

from dray.apiserver import errors
from dray.apiserver.request.request_info import Request
from dray.apiserver.server import Server, failure
from dray.http.connection import MAX_BODY, TOO_LARGE, TOO_SLOW, UNKNOWN_SENDER, HttpRequest, OpenConnections
from dray.http.responses import Response
from dray.http.server import HttpHandler, HttpServer, plain_refusal

# A watch holds a connection. Nine of ten open files may be connections, so that the store always gets one.
MOST_CONNECTIONS = 20_000
MOST_OF_ONE_ADDRESS = 4_000


def connection_limits() -> OpenConnections:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OpenConnections(min(MOST_CONNECTIONS, files * 9 // 10), MOST_OF_ONE_ADDRESS)


class Listener(HttpServer):
    """A listening HTTPS socket with the API server behind it.

    A request to a path in `mounts` or below goes to that handler, before it is authenticated.
    """

    def __init__(
        self,
        server: Server,
        context: ssl.SSLContext | None,
        mounts: Mapping[str, HttpHandler] = MappingProxyType({}),
        connections: OpenConnections | None = None,
    ) -> None:
        super().__init__(
            self._route, context, refuse=_refusal, check_sender=self._sender_problem, connections=connections
        )
        self._server = server
        self._mounts = mounts

    async def _route(self, request: HttpRequest) -> Response:
        asked = request_of(request)
        for prefix, handler in self._mounts.items():
            if asked.path == prefix or asked.path.startswith(f"{prefix}/"):
                return await handler(request)
        return await self._server.handle(asked)

    async def _sender_problem(self, request: HttpRequest) -> str:
        """Only a user with credentials may send a large body: until it is known who asks, nothing much is kept in memory."""
        return "" if await self._server.has_credentials(request_of(request)) else UNKNOWN_SENDER


def request_of(request: HttpRequest) -> Request:
    path, query = request.path_and_query()
    peer = request.peer
    return Request(
        request.method, path, query, request.headers, request.body, None, peer.certificate, peer.remote, peer.local
    )


def _refusal(problem: str) -> Response:
    """A Status for a request whose head was readable, as clients of Kubernetes expect; else plain text."""
    if problem == TOO_LARGE:
        return failure(errors.too_large(MAX_BODY))
    if problem == TOO_SLOW:
        return failure(errors.ApiError(408, "Timeout", "the request's body did not arrive in time"))
    if problem == UNKNOWN_SENDER:
        return failure(errors.unauthorized())
    return plain_refusal(problem)
