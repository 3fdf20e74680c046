"""`/healthz`, `/readyz`, `/livez` and `/metrics` of a component that is not the API server, over TLS."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dray.apiserver.security.certificates import Authority
from dray.http.health import HealthAndMetrics, HealthCheck, HealthChecks
from dray.http.server import HttpServer
from dray.telemetry import Registry

Checks = Mapping[str, Callable[[], bool]]


@asynccontextmanager
async def health_server(host: str, port: int, registry: Registry, checks: Checks) -> AsyncIterator[int]:
    """Serves while the block runs; gives the port. The certificate is made on the spot and signed by nobody known."""
    health = HealthChecks({name: _as_coroutine(check) for name, check in checks.items()})
    server = HttpServer(HealthAndMetrics(health, registry.text), _self_signed(host))
    _, found = await server.start(host, port)
    try:
        yield found
    finally:
        await server.stop()


def _as_coroutine(check: Callable[[], bool]) -> HealthCheck:
    async def passes() -> bool:
        return check()

    return passes


def _self_signed(host: str) -> ssl.SSLContext:
    pair = Authority.create("dray-component").issue_server("dray-component", [host, "localhost", "127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.touch(0o600)
        file.write_bytes(pair.certificate_pem + pair.key_pem)
        context.load_cert_chain(file)
    return context
