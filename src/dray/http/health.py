"""/healthz, /livez, /readyz and /metrics, as every component of Kubernetes serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import parse_qs

from dray.http.connection import HttpRequest
from dray.http.responses import TEXT, Response

ENDPOINTS = ("healthz", "livez", "readyz")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HealthCheck = Callable[[], Awaitable[bool]]


class HealthChecks:
    """Named checks; a check that raises has failed."""

    def __init__(self, checks: Mapping[str, HealthCheck]) -> None:
        self._checks = dict(checks)

    async def answer(self, parts: Sequence[str], query_string: str) -> Response | None:
        """`parts` are the segments of the path; None if it is no health endpoint."""
        if parts[0] not in ENDPOINTS or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[1] not in self._checks:
            return None
        query = parse_qs(query_string, keep_blank_values=True)
        excluded = query.get("exclude", ())
        names = [parts[1]] if len(parts) == 2 else [name for name in self._checks if name not in excluded]
        results = {name: await self._passes(name) for name in names}
        if all(results.values()):
            if "verbose" not in query or len(parts) == 2:
                return Response(200, b"ok", TEXT)
            return Response(200, _report(parts[0], results, "passed"), TEXT)
        return Response(500, _report(parts[0], results, "failed"), TEXT)

    async def _passes(self, name: str) -> bool:
        try:
            return await self._checks[name]()
        except Exception:
            return False


def _report(endpoint: str, results: Mapping[str, bool], verdict: str) -> bytes:
    lines = [f"[+]{name} ok" if passes else f"[-]{name} failed: reason withheld" for name, passes in results.items()]
    return ("\n".join([*lines, f"{endpoint} check {verdict}"]) + "\n").encode()


def metrics_response(text: str) -> Response:
    return Response(200, text.encode(), METRICS_TYPE)


def not_found() -> Response:
    return Response(404, b"404 page not found\n", TEXT)


class HealthAndMetrics:
    """The handler of a component that serves nothing else."""

    def __init__(self, health: HealthChecks, metrics_text: Callable[[], str]) -> None:
        self._health = health
        self._metrics_text = metrics_text

    async def __call__(self, request: HttpRequest) -> Response:
        path, query = request.path_and_query()
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"method not allowed\n", TEXT)
        if path == "/metrics":
            return metrics_response(self._metrics_text())
        return await self._health.answer(path.split("/")[1:], query) or not_found()
