"""The HTTPS socket of the API server; it also serves handlers that are mounted below a path, such as the dashboard."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType

from dray.apiserver import errors
from dray.apiserver.request.request_info import Request
from dray.apiserver.server import Server, failure
from dray.http.connection import MAX_BODY, TOO_LARGE, TOO_SLOW, HttpRequest
from dray.http.responses import Response
from dray.http.server import HttpHandler, HttpServer, plain_refusal


class Listener(HttpServer):
    """A listening HTTPS socket with the API server behind it.

    A request to a path in `mounts` or below goes to that handler, before it is authenticated.
    """

    def __init__(
        self, server: Server, context: ssl.SSLContext | None, mounts: Mapping[str, HttpHandler] = MappingProxyType({})
    ) -> None:
        super().__init__(self._route, context, refuse=_refusal)
        self._server = server
        self._mounts = mounts

    async def _route(self, request: HttpRequest) -> Response:
        path, query = request.path_and_query()
        for prefix, handler in self._mounts.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return await handler(request)
        peer = request.peer
        return await self._server.handle(
            Request(request.method, path, query, request.headers, request.body, None, peer.certificate, peer.remote)
        )


def _refusal(problem: str) -> Response:
    """A Status for a request whose head was readable, as clients of Kubernetes expect; else plain text."""
    if problem == TOO_LARGE:
        return failure(errors.too_large(MAX_BODY))
    if problem == TOO_SLOW:
        return failure(errors.ApiError(408, "Timeout", "the request's body did not arrive in time"))
    return plain_refusal(problem)
