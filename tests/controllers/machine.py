"""A whole control plane for tests: a server that can go away and come back, and every controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dray.client import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Client, Informers, Transport
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import (
    ControllerManager,
    ControllerOptions,
)
from tests.controllers.cluster import Cluster
from tests.controllers.serving import EmbeddedServer
from tests.waiting import eventually


class Machine:
    """A server that can be stopped and started again on the same port and data, and controllers that keep running."""

    def __init__(self, directory: Path, transport_kind: str) -> None:
        self.directory = directory
        self.kind = transport_kind
        self.port = 0
        self._old: list[Transport] = []

    async def start_server(self) -> Transport:
        self.server = await EmbeddedServer.start(self.directory)
        if self.kind == "https":
            transport = await self.server.https(self.port)
            self.port = int(self.server.url.rpartition(":")[2])
            self._old.append(transport)
            return transport
        return self.server.in_process()

    async def start(self) -> None:
        transport = await self.start_server()
        self.cluster = Cluster(transport)
        self.wire = self.cluster.wire
        self.client = self.cluster.client
        client = Client(self.wire)
        self.informers = Informers(client)
        self.manager = ControllerManager(ControllerContext(client, self.informers), ControllerOptions(root_ca="CA"))
        self.task = asyncio.create_task(self.manager.run())
        async with asyncio.timeout(20):
            await self.manager.ready.wait()

    async def restart_server(self) -> None:
        """Stop as `kill` would have it for the clients: connections break, then nobody answers, then a new server."""
        self.wire.is_down = True
        self.wire.cut_streams()
        await self.server.stop()
        in_vain = self.wire.calls_in_vain
        await eventually(lambda: self.wire.calls_in_vain > in_vain, "a controller to miss the server")
        transport = await self.start_server()
        if self.kind == "in-process":
            self.wire.inner = transport
            self.cluster.client.transport = transport
        self.wire.is_down = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.wire.close()
        for transport in self._old:
            await transport.close()
        await self.server.stop()

    async def furnish(self, name: str = "ns") -> None:
        """A namespace with everything that controllers put into it."""
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

        async def furnished() -> object:
            account = await self.client.find(SERVICE_ACCOUNTS, "default", name)
            return account and await self.client.find(CONFIG_MAPS, "kube-root-ca.crt", name)

        await self.cluster.eventually(furnished, 20)
