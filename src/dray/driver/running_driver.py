"""A driver at work on a node: its gRPC services, slices and claims, started and stopped together; `run` is the whole main program.

The services are registration, DRA v1 and v1beta1, and device health. Health is asked of the driver and streamed to every kubelet that listens.
"""

import argparse
import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import grpc

from dray.api.cdi import DYNAMIC_DIR
from dray.api.meta import OwnerReference
from dray.api.names import subdomain_problems
from dray.api.resource import AllocatedDeviceStatus, Device, DeviceAttribute, ResourceClaim
from dray.atomic_files import private_folder
from dray.client import CLAIMS, NODES, ApiError, Client, ServerUnreachable, connect
from dray.clock import Clock
from dray.driver.claim_files import CdiFiles, Checkpoint, DeviceMetadata, StoredClaim, StoredDevice
from dray.driver.plugin import AllocatedDevice, ClaimReference, DeviceHealth, Driver, Pool
from dray.driver.prepare import ClaimError, ClaimNotFound, ClaimPreparer
from dray.driver.publisher import SlicePublisher
from dray.driver.slices import PoolError, split_pool
from dray.driver.sockets import OwnSocket, listen, socket_paths
from dray.http.health import HealthAndMetrics, HealthChecks
from dray.http.server import HttpServer
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
from dray.signals import stop_signal
from dray.telemetry import Registry, set_up_logging

if TYPE_CHECKING:
    from dray.driver.device_status import StatusWriter

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


KUBELET_ROOT = Path("/var/lib/kubelet")
LOOK_AT_SOCKETS_EVERY_S = 5.0
WATCH_AGAIN_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class DriverPaths:
    """Where a driver meets its kubelet and its container runtime."""

    kubelet_root: Path = KUBELET_ROOT
    cdi_dir: Path = Path(DYNAMIC_DIR)

    def absolute(self) -> "DriverPaths":
        return DriverPaths(self.kubelet_root.absolute(), self.cdi_dir.absolute())

    def registry_dir(self) -> Path:
        return self.kubelet_root / "plugins_registry"

    def data_dir(self, driver: str) -> Path:
        return self.kubelet_root / "plugins" / driver


class RunningDriver:
    """`await start()`; `republish()` after devices changed; `await stop()`."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        node_name: str,
        paths: DriverPaths | None = None,
        *,
        instance: str = "",
        with_metadata: bool = True,
    ) -> None:
        if not driver.name:
            raise ValueError("driver name must be set")
        if len(driver.name) > 63 or subdomain_problems(driver.name):
            raise ValueError(f"driver name {driver.name!r} must be a DNS subdomain of at most 63 characters")
        self.driver = driver
        self._client = client
        self.node_name = node_name
        # gRPC takes the first part of a relative socket path for a host; CDI needs absolute paths as well.
        self.paths = paths = (paths or DriverPaths()).absolute()
        data_dir = paths.data_dir(driver.name)
        private_folder(data_dir)
        self._data_dir = data_dir
        sockets = socket_paths(driver.name, data_dir, paths.registry_dir(), instance)
        metadata = DeviceMetadata(driver.name, data_dir, paths.cdi_dir, self._attributes_of) if with_metadata else None
        self._preparer = ClaimPreparer(
            driver,
            self._fetch,
            Checkpoint(data_dir / "prepared.json"),
            CdiFiles(paths.cdi_dir, driver.name),
            metadata,
            lock_file=data_dir / "serialize.lock" if instance else None,
            has_device=self._has_device,
        )
        health = HealthReports(driver, client.clock) if reports_health(driver) else None
        self.server = DriverServer(driver.name, self._preparer, sockets.service, sockets.registration, health)
        self.publisher: SlicePublisher | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._statuses: StatusWriter | None = None
        self.metrics = Registry()
        """The driver's own, once it is restored: before that it has nothing to tell."""

    async def start(self) -> None:
        """Serve, register, publish; in this order, so that nothing is allocated that cannot be prepared."""
        loop = asyncio.get_running_loop()

        def report_status(claim: ClaimReference, devices: Sequence[AllocatedDeviceStatus]) -> None:
            loop.call_soon_threadsafe(self._report_status, claim, devices)

        self.driver.report_status = report_status
        await asyncio.to_thread(self.driver.restore, self._data_dir)
        self.driver.add_metrics(self.metrics)
        # Before the first call: a claim is refused if its devices are not among these.
        self.driver.published_pools = await self._pools()
        await self.server.start()
        owner = await self._owner()
        self._in_background(self._give_back_leftovers(), f"leftovers of {self.driver.name}")
        self.publisher = SlicePublisher(self._client, self.driver.name, self.node_name, owner)
        await self.publisher.start()
        self.server.when_registered(self.publisher.kubelet_came)
        await self.republish()
        self._in_background(self._watch(), f"watch of {self.driver.name}")

    def _report_status(self, claim: ClaimReference, devices: Sequence[AllocatedDeviceStatus]) -> None:
        if self._statuses is None:
            from dray.driver.device_status import StatusWriter

            self._statuses = StatusWriter(self._client, self.driver.name)
            self._in_background(self._statuses.run(), f"device status of {self.driver.name}")
        self._statuses.put(claim, devices)

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _watch(self) -> None:
        """Lets the driver look after its devices, and publishes them again when it says so."""
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def republish() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._in_background(self._publish_changes(changed), f"changes of {self.driver.name}")
        while True:
            try:
                await self.driver.watch(republish)
                return
            except Exception:
                log.exception("driver %s stopped watching its devices; it begins anew", self.driver.name)
            await self._client.clock.sleep(WATCH_AGAIN_AFTER_S)

    async def _publish_changes(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self.republish()
            except Exception:
                log.exception("driver %s cannot describe its devices; what was published stays", self.driver.name)

    async def _owner(self) -> OwnerReference:
        """The Node, which owns the slices; a driver may be there before its node, or before the API server."""
        wait_s = 1.0
        while True:
            try:
                node = await self._client.get(NODES, self.node_name)
                break
            except ServerUnreachable as error:
                problem = str(error)
            except ApiError as error:
                if not (error.is_transient or error.is_not_found):
                    raise
                problem = str(error)
            log.warning("driver %s waits for node %s: %s", self.driver.name, self.node_name, problem)
            await self._client.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, 10.0)
        return OwnerReference(
            api_version="v1", kind="Node", name=self.node_name, uid=node.metadata.uid, controller=True
        )

    async def _give_back_leftovers(self) -> None:
        """Claims that went away while this driver, or its whole node, was down: nobody will ask to give them back."""
        try:
            await self._preparer.give_back_leftovers(self._is_gone)
        except (ApiError, ServerUnreachable) as error:
            log.warning("driver %s: claims of an earlier life could not be looked up: %s", self.driver.name, error)

    async def _is_gone(self, reference: ClaimReference) -> bool:
        claim = await self._client.find(CLAIMS, reference.name, reference.namespace)
        return claim is None or claim.metadata.uid != reference.uid or claim.status.allocation is None

    async def republish(self) -> None:
        """Ask the driver for its devices again and publish what changed."""
        assert self.publisher is not None, "start the driver first"
        pools = await self._pools()
        self.publisher.publish(pools)
        self.driver.published_pools = pools

    async def _pools(self) -> tuple[Pool, ...]:
        pools = tuple(await asyncio.to_thread(lambda: list(self.driver.pools(self.node_name))))
        for pool in pools:
            if not isinstance(pool, Pool):
                kind = type(pool).__name__
                raise PoolError(f"pools() of driver {self.driver.name} must answer with a list of Pool, not of {kind}")
        return pools

    async def published(self) -> None:
        """Wait until the API has every device as described."""
        assert self.publisher is not None, "start the driver first"
        await self.publisher.settled()

    async def broken(self) -> str:
        """Waits until the driver cannot go on, which is usually never; the answer says why."""
        assert self.publisher is not None, "start the driver first"
        while True:
            lost = self.server.lost_sockets()
            if lost:
                return f"socket {lost[0]} was removed, or another driver listens there now"
            if not self.publisher.is_running:
                return "publishing ResourceSlices ended unexpectedly"
            await self._client.clock.sleep(LOOK_AT_SOCKETS_EVERY_S)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self.publisher is not None:
                await self.publisher.stop()
        finally:
            await self.server.stop()

    async def _fetch(self, reference: ClaimReference) -> ResourceClaim:
        return await self._client.get(CLAIMS, reference.name, reference.namespace)

    def _has_device(self, pool: str, name: str) -> bool:
        return self._published_device(pool, name) is not None

    def _attributes_of(self, allocated: AllocatedDevice) -> dict[str, DeviceAttribute]:
        device = self._published_device(allocated.pool, allocated.device)
        return dict(device.attributes) if device is not None else {}

    def _published_device(self, pool_name: str, name: str) -> Device | None:
        for pool in self.driver.published_pools:
            if pool.name == pool_name:
                devices = (device for each in split_pool(pool) for device in each.devices)
                return next((device for device in devices if device.name == name), None)
        return None


def run(driver: Driver, arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. Options come from the command line, or from the environment of a pod."""
    parser = _parser(driver)
    options = parser.parse_args(arguments)
    set_up_logging(options.verbose)
    try:
        driver.configure(options)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(serve(driver, options))


class DriverFailed(OSError):
    """The driver cannot go on and should be started again."""


async def serve(driver: Driver, options: argparse.Namespace) -> None:
    stopping = stop_signal()
    client = connect(options.kubeconfig, context=options.context, component=driver.name)
    running = RunningDriver(
        driver,
        client,
        options.node_name,
        DriverPaths(options.kubelet_root, options.cdi_dir),
        instance=options.instance,
    )
    try:
        async with serve_health_and_metrics(running, options.metrics_address):
            await _until_stopped(running, stopping)
    finally:
        await running.stop()
        await client.close()


@asynccontextmanager
async def serve_health_and_metrics(running: RunningDriver, address: str) -> AsyncIterator[int]:
    """Serves `/healthz` (whether the kubelet has taken the driver in) and `/metrics` while the block runs; gives the port.

    Without an address nothing is served, and the port is 0.
    """
    if not address:
        yield 0
        return

    async def is_registered() -> bool:
        return running.server.is_registered

    host, _, port = address.rpartition(":")
    server = HttpServer(HealthAndMetrics(HealthChecks({"registered": is_registered}), running.metrics.text))
    _, found = await server.start(host or "127.0.0.1", int(port))
    try:
        yield found
    finally:
        await server.stop()


async def _until_stopped(running: RunningDriver, stopping: asyncio.Event) -> None:
    """A signal counts at any time, also while the driver waits for its node."""
    stopped = asyncio.create_task(stopping.wait())
    life = asyncio.create_task(_live(running))
    try:
        await asyncio.wait({stopped, life}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
    finally:
        for task in (stopped, life):
            task.cancel()
        await asyncio.gather(stopped, life, return_exceptions=True)


async def _live(running: RunningDriver) -> None:
    await running.start()
    raise DriverFailed(f"driver {running.driver.name}: {await running.broken()}")


def _absolute(text: str) -> Path:
    """Others read the paths we write down, from directories of their own."""
    return Path(text).absolute()


def _address(text: str) -> str:
    if not text.rpartition(":")[2].isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def _parser(driver: Driver) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"DRA driver {driver.name}")
    node_name = os.environ.get("NODE_NAME")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"), help="in a pod: left out")
    parser.add_argument("--context", default="", help="of the kubeconfig; default: its current one")
    parser.add_argument("--node-name", default=node_name, required=node_name is None, help="default: $NODE_NAME")
    parser.add_argument("--kubelet-root", type=_absolute, default=KUBELET_ROOT)
    parser.add_argument("--cdi-dir", type=_absolute, default=Path("/var/run/cdi"))
    parser.add_argument("--instance", default=os.environ.get("POD_UID", ""), help="the pod's UID, for rolling updates")
    parser.add_argument(
        "--metrics-address", default="", help="HOST:PORT for /metrics and /healthz; default: not served"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0)
    driver.add_options(parser)
    return parser
