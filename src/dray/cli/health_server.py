"""`/healthz`, `/readyz`, `/livez` and `/metrics` of a component that is not the API server, over TLS."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from dray.apiserver.security.certificates import Authority
from dray.telemetry import Registry

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Checks = Mapping[str, Callable[[], bool]]


@asynccontextmanager
async def health_server(host: str, port: int, registry: Registry, checks: Checks) -> AsyncIterator[int]:
    """Serves while the block runs; gives the port. The certificate is made on the spot and signed by nobody known."""
    app = web.Application()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=registry.text(), headers={"Content-Type": METRICS_TYPE})

    async def health(request: web.Request) -> web.Response:
        return _verdict(request.path.strip("/"), checks, verbose="verbose" in request.query)

    app.router.add_get("/metrics", metrics)
    for path in ("/healthz", "/readyz", "/livez"):
        app.router.add_get(path, health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=_self_signed(host))
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _verdict(endpoint: str, checks: Checks, *, verbose: bool) -> web.Response:
    results = {name: check() for name, check in checks.items()}
    is_fine = all(results.values())
    if is_fine and not verbose:
        return web.Response(text="ok")
    lines = [f"[+]{name} ok" if fine else f"[-]{name} failed: reason withheld" for name, fine in results.items()]
    lines.append(f"{endpoint} check {'passed' if is_fine else 'failed'}")
    return web.Response(text="\n".join(lines) + "\n", status=200 if is_fine else 500)


def _self_signed(host: str) -> ssl.SSLContext:
    pair = Authority.create("dray-component").issue_server("dray-component", [host, "localhost", "127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.touch(0o600)
        file.write_bytes(pair.certificate_pem + pair.key_pem)
        context.load_cert_chain(file)
    return context
