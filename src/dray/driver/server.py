"""The gRPC services of a driver: registration, DRA v1 and v1beta1, and device health.

Health is asked of the driver and streamed to every kubelet that listens."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from dray.clock import Clock
from dray.driver.checkpoint import StoredClaim, StoredDevice
from dray.driver.plugin import ClaimReference, DeviceHealth, Driver
from dray.driver.prepare import ClaimError, ClaimNotFound, ClaimPreparer
from dray.driver.sockets import OwnSocket, listen
from dray.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

log = logging.getLogger(__name__)

INTERVAL_S = 5.0


def reports_health(driver: Driver) -> bool:
    """Whether the driver has a `health` method of its own."""
    return type(driver).health is not Driver.health


class HealthReports:
    """Polls the driver while somebody listens; a lease must be renewed even if nothing changed, so each poll is sent."""

    def __init__(self, driver: Driver, clock: Clock, interval_s: float = INTERVAL_S) -> None:
        self._driver = driver
        self._clock = clock
        self._interval_s = interval_s

    async def stream(self) -> AsyncIterator[list[DeviceHealth]]:
        while True:
            try:
                reports = await self._ask()
            except Exception:
                log.exception("driver %s cannot tell the health of its devices", self._driver.name)
            else:
                yield list(reports)
            await self._clock.sleep(self._interval_s)

    async def _ask(self) -> Iterable[DeviceHealth]:
        if inspect.iscoroutinefunction(self._driver.health):
            return await self._driver.health() or ()
        result = await asyncio.to_thread(self._driver.health)
        if inspect.isawaitable(result):
            return await result
        return result or ()


PLUGIN_TYPE = "DRAPlugin"
DRA_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_HEALTH_NUMBERS = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


class _DraService:
    """Both versions of the service: the messages differ in one field, the behaviour in none."""

    def __init__(self, preparer: ClaimPreparer, messages: ModuleType) -> None:
        self._preparer = preparer
        self._messages = messages

    async def NodePrepareResources(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        response = self._messages.NodePrepareResourcesResponse()
        try:
            answers = await self._preparer.prepare(_references(request.claims))
        except ClaimError as error:
            code = grpc.StatusCode.NOT_FOUND if isinstance(error, ClaimNotFound) else grpc.StatusCode.INTERNAL
            await context.abort(code, f"get resource claims: {error}")
        for uid, answer in answers.items():
            if isinstance(answer, str):
                response.claims[uid].error = answer
            else:
                response.claims[uid].devices.extend(self._devices(answer))
        return response

    async def NodeUnprepareResources(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        response = self._messages.NodeUnprepareResourcesResponse()
        for uid, error in (await self._preparer.unprepare(_references(request.claims))).items():
            response.claims[uid].error = error
        return response

    def _devices(self, claim: StoredClaim) -> Iterable[Any]:
        return (self._device(device) for device in claim.devices)

    def _device(self, device: StoredDevice) -> Any:
        message = self._messages.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_device_ids,
        )
        if device.share_id is not None and "share_id" in message.DESCRIPTOR.fields_by_name:
            message.share_id = device.share_id
        return message


def _references(claims: Iterable[Any]) -> list[ClaimReference]:
    return [ClaimReference(claim.namespace, claim.name, claim.uid) for claim in claims]


class _HealthService:
    def __init__(self, reports: HealthReports, messages: ModuleType) -> None:
        self._reports = reports
        self._messages = messages

    async def NodeWatchResources(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:  # noqa: N802
        async for reports in self._reports.stream():
            devices = [
                self._messages.DeviceHealth(
                    device=self._messages.DeviceIdentifier(pool_name=report.pool, device_name=report.device),
                    health=_HEALTH_NUMBERS[report.health],
                    health_check_timeout_seconds=report.timeout_s,
                    message=report.message[:1024],
                )
                for report in reports
            ]
            yield self._messages.NodeWatchResourcesResponse(devices=devices)


class _RegistrationService:
    def __init__(self, driver: str, endpoint: str, services: tuple[str, ...]) -> None:
        self._info = pluginregistration_pb2.PluginInfo(
            type=PLUGIN_TYPE, name=driver, endpoint=endpoint, supported_versions=services
        )
        self.is_registered = False
        self.on_registered: Callable[[], None] = lambda: None

    async def GetInfo(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        return self._info

    async def NotifyRegistrationStatus(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        self.is_registered = request.plugin_registered
        if not request.plugin_registered:
            log.error("the kubelet refused driver %s: %s", self._info.name, request.error)
            await context.abort(grpc.StatusCode.INTERNAL, f"failed registration process: {request.error}")
        log.info("driver %s is registered with the kubelet", self._info.name)
        self.on_registered()
        return pluginregistration_pb2.RegistrationStatusResponse()


class DriverServer:
    """Serves prepare, unprepare and health first; only then does the registration socket appear."""

    def __init__(
        self,
        driver: str,
        preparer: ClaimPreparer,
        service_socket: Path,
        registration_socket: Path,
        health: HealthReports | None = None,
        services: tuple[str, ...] = DRA_SERVICES,
    ) -> None:
        self._sockets: list[OwnSocket] = []
        self._service_socket = service_socket
        self._registration_socket = registration_socket
        self._service = grpc.aio.server()
        if "v1.DRAPlugin" in services:
            dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(_DraService(preparer, dra_v1_pb2), self._service)
        if "v1beta1.DRAPlugin" in services:
            dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(_DraService(preparer, dra_v1beta1_pb2), self._service)
        if health is not None:
            dra_health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(
                _HealthService(health, dra_health_v1_pb2), self._service
            )
            dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(
                _HealthService(health, dra_health_v1alpha1_pb2), self._service
            )
            services = (*services, *HEALTH_SERVICES)
        self._registration = _RegistrationService(driver, str(service_socket), services)
        self._registrar = grpc.aio.server()
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(self._registration, self._registrar)

    def when_registered(self, act: Callable[[], None]) -> None:
        """Called each time a kubelet takes the driver in: again after the kubelet was restarted."""
        self._registration.on_registered = act

    @property
    def is_registered(self) -> bool:
        return self._registration.is_registered

    async def start(self) -> None:
        self._sockets.append(await listen(self._service, self._service_socket))
        self._sockets.append(await listen(self._registrar, self._registration_socket))

    def lost_sockets(self) -> list[Path]:
        """Sockets that were taken away or over since they were made: nobody can call us there any more."""
        return [socket.path for socket in self._sockets if not socket.is_there()]

    async def stop(self) -> None:
        """The registration goes first, so that nobody calls a service that is about to end."""
        for socket in reversed(self._sockets):
            socket.remove()
        await self._registrar.stop(None)
        await self._service.stop(None)
