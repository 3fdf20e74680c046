"""Paths that name no resource: discovery, OpenAPI, health, metrics, the version, the issuer of tokens."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable
from typing import Protocol

from dray import __version__
from dray.api.served_versions import ServedVersions
from dray.apiserver import errors
from dray.apiserver.discovery.api_groups import Discovery
from dray.apiserver.discovery.openapi import OpenApi
from dray.apiserver.request.authentication.oidc_discovery import TokenIssuer
from dray.apiserver.request.request_info import Request, segments
from dray.apiserver.request.request_options import Query
from dray.apiserver.watch.stored_object import encode
from dray.http.health import HealthChecks, metrics_response, not_found
from dray.http.responses import Response
from dray.store.interface import Store
from dray.telemetry import Registry

PLAIN_PATHS = (
    "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version",
)  # fmt: skip


class HasMetrics(Protocol):
    """`of_others` gives the metrics of other parts, served below `/metrics/` under these names."""

    registry: Registry
    of_others: dict[str, Callable[[], str | Awaitable[str]]]


class PlainPaths:
    def __init__(
        self, store: Store, served: ServedVersions, metrics: HasMetrics, issuer: TokenIssuer | None, minor: str
    ) -> None:
        self._store = store
        self._served = served
        self._metrics = metrics
        self._issuer = issuer
        self._version = version_document(minor)
        self._discovery = Discovery(served)
        self._openapi = OpenApi(served)
        self._health = HealthChecks({"ping": _ping, "store": self._store_answers})

    async def answer(self, request: Request, query: Query) -> Response:
        parts = segments(request.path)
        if not parts:
            return Response(200, encode({"paths": self._paths()}))
        if answer := await self._health.answer(parts, request.query):
            return answer
        if request.path.rstrip("/") == "/version":
            return Response(200, encode(self._version))
        if parts == ["metrics"]:
            return metrics_response(self._metrics.registry.text())
        if parts[0] == "metrics" and (metrics_of := self._metrics.of_others.get("/".join(parts[1:]))):
            text = metrics_of()
            return metrics_response(text if isinstance(text, str) else await text)
        if self._issuer and (answer := self._issuer.answer(request)):
            return answer
        if parts[0] == "openapi" and (answer := self._openapi.answer(parts, request, query)):
            return answer
        if parts[0] in ("api", "apis") and len(parts) <= 3 - (parts[0] == "api"):
            return self._discover(parts, request)
        return not_found()

    def _discover(self, parts: list[str], request: Request) -> Response:
        group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
        if parts[0] == "apis" and group and not self._served.has_group(group):
            return not_found()
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        answer = self._discovery.answer(parts, request)
        if answer is None:
            raise errors.no_such_resource()
        return answer

    def _paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis"]
        for group in self._served.groups():
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in self._served.versions(group))]
        return ["/.well-known/openid-configuration", *paths, *PLAIN_PATHS]

    async def _store_answers(self) -> bool:
        await self._store.current_revision()
        return True


async def _ping() -> bool:
    return True


def version_document(minor: str = "37") -> dict[str, str]:
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v1.{minor}.0+dray-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
