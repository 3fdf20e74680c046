"""`/metrics` and `/healthz` of the node agent, in plain text on the loopback interface."""

from collections.abc import Callable

from dray.http.connection import HttpRequest
from dray.http.health import ENDPOINTS, metrics_response, not_found
from dray.http.responses import TEXT, Response
from dray.http.server import HttpServer

LOOPBACK = "127.0.0.1"


class HealthServer:
    """`port` is known once it was started; 0 takes a free one."""

    def __init__(self, metrics: Callable[[], str], problem: Callable[[], str], port: int = 0) -> None:
        self._metrics = metrics
        self._problem = problem
        self._server = HttpServer(self._answer, stop_after_s=0.5)
        self.port = port

    async def start(self) -> None:
        _, self.port = await self._server.start(LOOPBACK, self.port)

    async def stop(self) -> None:
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> Response:
        path, _ = request.path_and_query()
        if path == "/metrics":
            return metrics_response(self._metrics())
        if path.removeprefix("/") not in ENDPOINTS:
            return not_found()
        problem = self._problem()
        return Response(500 if problem else 200, (problem or "ok").encode(), TEXT)
