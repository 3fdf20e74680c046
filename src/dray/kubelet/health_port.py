"""`/metrics` and `/healthz` of the node agent, in plain text on the loopback interface."""

from collections.abc import Callable

from aiohttp import web

LOOPBACK = "127.0.0.1"


class HealthPort:
    """`port` is known once it was started; 0 takes a free one."""

    def __init__(self, metrics: Callable[[], str], problem: Callable[[], str], port: int = 0) -> None:
        self._metrics = metrics
        self._problem = problem
        self._runner: web.AppRunner | None = None
        self.port = port

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        for path in ("/healthz", "/livez", "/readyz"):
            app.router.add_get(path, self._serve_health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _serve_health(self, request: web.Request) -> web.Response:
        problem = self._problem()
        return web.Response(status=500 if problem else 200, text=problem or "ok")
