"""A driver that does what a test tells it: answers, errors, silence, lies. Real gRPC on real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc

from dray.proto import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)


class ScriptedDriver(dra_v1_pb2_grpc.DRAPluginServicer, pluginregistration_pb2_grpc.RegistrationServicer):
    def __init__(
        self, root: Path, name: str = "gpu.example.com", *, services=("v1.DRAPlugin",), instance="", server_options=()
    ) -> None:
        self._server_options = server_options
        self.name = name
        self.services = services
        self.type = "DRAPlugin"
        self.service_socket = root / "plugins" / name / f"dra{instance}.sock"
        self.registration_socket = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        self.prepared: list[str] = []
        self.unprepared: list[str] = []
        self.statuses: list[tuple[bool, str]] = []
        self.delay_s = 0.0
        self.fail_get_info = 0
        self.fail_notify = 0
        self.answer_prepare: Callable[[object], object] = self.honest_prepare
        self.answer_unprepare: Callable[[object], object] = self.honest_unprepare
        self._servers: list[grpc.aio.Server] = []

    async def start(self) -> None:
        await self.serve()
        await self.register()

    async def serve(self) -> None:
        server = grpc.aio.server(options=self._server_options)
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(self, server)
        dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(_Beta(self), server)
        await self._listen(server, self.service_socket)

    async def register(self) -> None:
        server = grpc.aio.server()
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(self, server)
        await self._listen(server, self.registration_socket)

    async def _listen(self, server: grpc.aio.Server, socket: Path) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        self._servers.append(server)

    async def stop(self) -> None:
        self.registration_socket.unlink(missing_ok=True)
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()

    async def die(self) -> None:
        """As if it was killed: nobody answers, and its sockets stay."""
        for server in self._servers:
            await server.stop(None)
        self._servers.clear()
        for socket in (self.service_socket, self.registration_socket):
            socket.touch()

    # --- registration

    async def GetInfo(self, request, context):
        if self.fail_get_info:
            self.fail_get_info -= 1
            await context.abort(grpc.StatusCode.INTERNAL, "not yet")
        return pluginregistration_pb2.PluginInfo(
            type=self.type, name=self.name, endpoint=str(self.service_socket), supported_versions=self.services
        )

    async def NotifyRegistrationStatus(self, request, context):
        self.statuses.append((request.plugin_registered, request.error))
        if self.fail_notify:
            self.fail_notify -= 1
            await context.abort(grpc.StatusCode.INTERNAL, "not now")
        return pluginregistration_pb2.RegistrationStatusResponse()

    # --- claims

    def honest_prepare(self, request):
        response = dra_v1_pb2.NodePrepareResourcesResponse()
        for claim in request.claims:
            device = dra_v1_pb2.Device(
                request_names=["r"], pool_name="pool", device_name="d", cdi_device_ids=[f"v/c={claim.uid}"]
            )
            response.claims[claim.uid].devices.append(device)
        return response

    def honest_unprepare(self, request):
        response = dra_v1_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].error = ""
        return response

    async def NodePrepareResources(self, request, context):
        self.prepared += [claim.name for claim in request.claims]
        await asyncio.sleep(self.delay_s)
        return self.answer_prepare(request)

    async def NodeUnprepareResources(self, request, context):
        self.unprepared += [claim.name for claim in request.claims]
        await asyncio.sleep(self.delay_s)
        return self.answer_unprepare(request)


class _Beta(dra_v1beta1_pb2_grpc.DRAPluginServicer):
    """The same in the older version, which has no share IDs."""

    def __init__(self, driver: ScriptedDriver) -> None:
        self._driver = driver

    async def NodePrepareResources(self, request, context):
        newer = dra_v1_pb2.NodePrepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._driver.NodePrepareResources(newer, context)
        return dra_v1beta1_pb2.NodePrepareResourcesResponse.FromString(answer.SerializeToString())

    async def NodeUnprepareResources(self, request, context):
        newer = dra_v1_pb2.NodeUnprepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._driver.NodeUnprepareResources(newer, context)
        return dra_v1beta1_pb2.NodeUnprepareResourcesResponse.FromString(answer.SerializeToString())
