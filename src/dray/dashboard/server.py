"""The page on a socket of its own, for a cluster that is elsewhere. Plain HTTP: it never leaves this machine."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from dray.dashboard.application import Dashboard

STOP_AFTER_S = 2.0


class DashboardServer:
    """`await start(host, port)` answers the URL; `await stop()` ends open pages."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._state = ServerState()
        self._config = uvicorn.Config(
            dashboard, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False,
        )  # fmt: skip
        self._config.load()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpToolsProtocol(config=self._config, server_state=self._state, app_state={}),
            host, port, family=family,
        )  # fmt: skip
        found_host, found_port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{found_host}]:{found_port}" if ":" in found_host else f"http://{found_host}:{found_port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._dashboard.stop()
        for connection in list(self._state.connections):
            connection.shutdown()
        running = set(self._state.tasks)
        if running:
            await asyncio.wait(running, timeout=STOP_AFTER_S)
