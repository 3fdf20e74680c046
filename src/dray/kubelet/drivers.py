"""Drivers on this node: found by their registration sockets, registered, watched, chosen for calls, and called over gRPC.

`DriverClient` has the channel of one registered driver, the service version it speaks, and the deadlines of calls.
"""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from dray.api.names import subdomain_problems
from dray.atomic_files import private_folder
from dray.clock import Clock
from dray.kubelet.claims import CheckpointedDevice, PreparedClaim
from dray.kubelet.errors import DriverError, RegistrationError
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
from dray.telemetry import VerboseLog

decisions = VerboseLog(__name__)

CALL_TIMEOUT_S = 45.0
# A socket that was made anew under its old path is another one: never a connection that was there before.
CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)

# Service name as plugins list it: messages, stubs.
DRA_SERVICES: Mapping[str, tuple[ModuleType, ModuleType]] = {
    "v1.DRAPlugin": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1.DRAPlugin": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}
HEALTH_SERVICES: Mapping[str, tuple[ModuleType, ModuleType]] = {
    "v1.DRAResourceHealth": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1.DRAResourceHealth": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}

# A driver that restarts is back in a second or two; gRPC alone would wait up to two minutes between attempts.
_RECONNECT_QUICKLY = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

ObserveCall = Callable[[str, str, str, float], None]
"""Told of every call: driver, method path, gRPC status name, seconds."""


def choose_service(driver: str, endpoint: str, offered: Iterable[str]) -> str:
    """The first DRA service in the plugin's own order that we know."""
    offered = list(offered)
    prefix = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: "
    if not offered:
        raise RegistrationError(prefix + "empty list of supported gRPC services (aka supported versions)")
    for service in offered:
        if service in DRA_SERVICES:
            return service
    known = ", ".join(DRA_SERVICES)
    raise RegistrationError(
        f"{prefix}none of services supported by the plugin ({', '.join(offered)}) are supported by the kubelet ({known})"
    )


class DriverClient:
    """A driver instance that is registered. One channel serves prepare, unprepare and health."""

    def __init__(self, driver: str, path: str, service: str, health_service: str | None, observe: ObserveCall) -> None:
        self.driver = driver
        self.path = path
        self.service = service
        self.health_service = health_service
        self.is_connected = False
        self._observe = observe
        self._messages, stubs = DRA_SERVICES[service]
        self.channel = grpc.aio.insecure_channel(f"unix:{path}", options=(*CHANNEL_OPTIONS, *_RECONNECT_QUICKLY))
        self._stub = stubs.DRAPluginStub(self.channel)

    async def follow_connection(self, changed: Callable[[], None]) -> None:
        """Keep the channel connected for ever; tell of every change."""
        while True:
            state = self.channel.get_state(try_to_connect=True)
            is_connected = state is grpc.ChannelConnectivity.READY
            if is_connected != self.is_connected:
                self.is_connected = is_connected
                changed()
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self.channel.wait_for_state_change(state)

    async def close(self) -> None:
        await self.channel.close()

    async def prepare(
        self, claims: Iterable[PreparedClaim], timeout_s: float = CALL_TIMEOUT_S
    ) -> dict[str, list[CheckpointedDevice] | str]:
        """Per claim UID the devices, or the driver's reason why not."""
        request = self._messages.NodePrepareResourcesRequest(claims=self._references(claims))
        response = await self._call("NodePrepareResources", request, timeout_s)
        return {
            uid: answer.error or [self._device(device) for device in answer.devices]
            for uid, answer in response.claims.items()
        }

    async def unprepare(self, claims: Iterable[PreparedClaim], timeout_s: float = CALL_TIMEOUT_S) -> dict[str, str]:
        """Per claim UID an error text, empty when done."""
        request = self._messages.NodeUnprepareResourcesRequest(claims=self._references(claims))
        response = await self._call("NodeUnprepareResources", request, timeout_s)
        return {uid: answer.error for uid, answer in response.claims.items()}

    def watch_health(self) -> Any:
        """The stream of health reports; only for endpoints with a health service."""
        assert self.health_service is not None
        messages, stubs = HEALTH_SERVICES[self.health_service]
        return stubs.DRAResourceHealthStub(self.channel).NodeWatchResources(messages.NodeWatchResourcesRequest())

    async def _call(self, method: str, request: Any, timeout_s: float) -> Any:
        path = f"/{self._messages.DESCRIPTOR.package}.DRAPlugin/{method}"
        decisions.say(
            4, f"Calling {method} rpc", driver=self.driver, claims=lambda: [each.name for each in request.claims]
        )
        started = time.perf_counter()
        code = "OK"
        try:
            async with asyncio.timeout(timeout_s + 1):
                return await getattr(self._stub, method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            code = "".join(word.capitalize() for word in error.code().name.split("_"))
            raise DriverError(f"{method}: rpc error: code = {code} desc = {error.details()}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not we were cancelled, the call was: the driver was deregistered while it ran, which closes its channel.
            code = "Canceled"
            raise DriverError(f"{method}: rpc error: code = Canceled desc = driver {self.driver} went away") from error
        except TimeoutError as error:
            code = "DeadlineExceeded"
            raise DriverError(
                f"{method}: rpc error: code = DeadlineExceeded desc = no answer within {timeout_s:g} s"
            ) from error
        finally:
            decisions.say(4, f"Done calling {method} rpc", driver=self.driver, code=code)
            self._observe(self.driver, path, code, time.perf_counter() - started)

    def _references(self, claims: Iterable[PreparedClaim]) -> list[Any]:
        return [self._messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]

    @staticmethod
    def _device(device: Any) -> CheckpointedDevice:
        has_share = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
        return CheckpointedDevice(
            pool=device.pool_name,
            device=device.device_name,
            requests=tuple(device.request_names),
            cdi_device_ids=tuple(device.cdi_device_ids),
            share_id=device.share_id if has_share else None,
        )


log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"
MAX_NAME = 63
LOOK_EVERY_S = 0.25
DIAL_TIMEOUT_S = 10.0
GET_INFO_TIMEOUT_S = 1.0
NOTIFY_TIMEOUT_S = 5.0
RETRY_START_S = 0.5
RETRY_CAP_S = 60.0
WIPE_DELAY_S = 30.0
PATIENCE_S = 2.0

WipeSlices = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class _Socket:
    """A registration socket that was seen: which file it is, and what became of it."""

    identity: tuple[int, int]
    endpoint: DriverClient | None = None
    retry_at: float = 0.0
    failures: int = 0
    attempt: asyncio.Task[None] | None = None
    problem: str = ""


class Drivers:
    """The drivers of one node. `wipe_slices(driver)` is called when a driver stays away."""

    def __init__(
        self,
        registry_dir: Path,
        clock: Clock,
        wipe_slices: WipeSlices,
        observe: ObserveCall = lambda *_: None,
        on_registered: Callable[[DriverClient], None] = lambda _: None,
        on_deregistered: Callable[[DriverClient], None] = lambda _: None,
    ) -> None:
        self._registry_dir = registry_dir
        self._clock = clock
        self._wipe_slices = wipe_slices
        self._observe = observe
        self._on_registered = on_registered
        self._on_deregistered = on_deregistered
        self._sockets: dict[Path, _Socket] = {}
        # Endpoints by driver, oldest first: two of them while a driver is being updated.
        self._endpoints: dict[str, list[DriverClient]] = {}
        self._followers: dict[DriverClient, asyncio.Task[None]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}

    # --- asking

    def endpoint(self, driver: str) -> DriverClient:
        """The newest connected instance of a driver, else the newest; DriverError if there is none."""
        if not driver:
            raise DriverError("DRA driver name is empty")
        endpoints = self._endpoints.get(driver)
        if not endpoints:
            raise DriverError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(endpoints) if each.is_connected), endpoints[-1])

    def plugins(self) -> list[tuple[str, str]]:
        """Registration sockets, and whether the kubelet has registered what is behind each or only wants to."""
        return [(str(path), "actual" if each.endpoint else "desired") for path, each in sorted(self._sockets.items())]

    def problems(self) -> list[str]:
        """Why plugins that are there could not be registered, as of the last attempt."""
        return [f"{path.name}: {each.problem}" for path, each in sorted(self._sockets.items()) if each.problem]

    def names(self) -> list[str]:
        return sorted(self._endpoints)

    # --- life

    async def run(self) -> None:
        """Look for sockets until cancelled. Looking is cheap: names and inodes of one directory."""
        private_folder(self._registry_dir)
        try:
            while True:
                await self.look()
                await self._clock.sleep(LOOK_EVERY_S)
        finally:
            await self.close()

    async def close(self) -> None:
        for socket in list(self._sockets.values()):
            if socket.attempt is not None:
                socket.attempt.cancel()
            if socket.endpoint is not None:
                await self._deregister(socket.endpoint, plan_wipe=False)
        self._sockets.clear()
        for wipe in self._wipes.values():
            wipe.cancel()

    async def look(self) -> None:
        """Compare the directory with what is registered; register and deregister the difference."""
        found = dict(_sockets_below(self._registry_dir))
        for path, socket in list(self._sockets.items()):
            if found.get(path) != socket.identity:
                del self._sockets[path]
                if socket.endpoint is not None:
                    await self._deregister(socket.endpoint)
        attempts = []
        for path, identity in found.items():
            socket = self._sockets.setdefault(path, _Socket(identity))
            is_due = socket.attempt is None and self._clock.monotonic() >= socket.retry_at
            if socket.endpoint is None and is_due:
                socket.attempt = asyncio.create_task(
                    self._try_to_register(path, socket), name=f"registration at {path}"
                )
                attempts.append(socket.attempt)
        if attempts:
            # Who does not answer must not keep others waiting: its attempt goes on behind our back.
            await asyncio.wait(attempts, timeout=PATIENCE_S)

    async def _try_to_register(self, path: Path, socket: _Socket) -> None:
        try:
            socket.endpoint = await self._register(path)
            socket.failures = 0
            socket.problem = ""
            if self._sockets.get(path) is not socket:
                # Gone while it was being registered.
                await self._deregister(socket.endpoint)
        except (RegistrationError, grpc.aio.AioRpcError, TimeoutError, OSError) as error:
            socket.failures += 1
            wait_s = retry_after_s(socket.failures)
            socket.retry_at = self._clock.monotonic() + wait_s
            socket.problem = _told(error)
            log.error("plugin at %s cannot be registered: %s; next try in %.1f s", path, socket.problem, wait_s)
        finally:
            socket.attempt = None

    async def _register(self, path: Path) -> DriverClient:
        async with grpc.aio.insecure_channel(f"unix:{path.absolute()}", options=CHANNEL_OPTIONS) as channel:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await channel.channel_ready()
            stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=GET_INFO_TIMEOUT_S)
            try:
                endpoint = self._add(info, path)
            except RegistrationError as error:
                await self._notify(stub, error=str(error))
                raise
            try:
                await self._notify(stub)
            except (grpc.aio.AioRpcError, TimeoutError):
                await self._deregister(endpoint)
                raise
        log.info("driver %s registered at %s with %s", endpoint.driver, endpoint.path, endpoint.service)
        return endpoint

    @staticmethod
    async def _notify(stub: pluginregistration_pb2_grpc.RegistrationStub, error: str = "") -> None:
        status = pluginregistration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        await stub.NotifyRegistrationStatus(status, timeout=NOTIFY_TIMEOUT_S)

    def _add(self, info: pluginregistration_pb2.PluginInfo, socket: Path) -> DriverClient:
        if info.type != PLUGIN_TYPE:
            raise RegistrationError(
                f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {socket}"
            )
        path = info.endpoint or str(socket)
        _check_name(info.name, path)
        service = choose_service(info.name, path, info.supported_versions)
        known = self._endpoints.get(info.name, [])
        if any(each.path == path for each in known):
            raise RegistrationError(
                f"RegisterPlugin error -- plugin registration failed with err: endpoint {path} already registered for DRA driver plugin {info.name}"
            )
        health = next((each for each in HEALTH_SERVICES if each in info.supported_versions), None)
        endpoint = DriverClient(info.name, path, service, health, self._observe)
        self._endpoints.setdefault(info.name, []).append(endpoint)
        self._followers[endpoint] = asyncio.create_task(
            endpoint.follow_connection(lambda: self._connection_changed(info.name)), name=f"connection of {info.name}"
        )
        # One that never listens must not keep its slices either.
        self._connection_changed(info.name)
        self._on_registered(endpoint)
        return endpoint

    async def _deregister(self, endpoint: DriverClient, *, plan_wipe: bool = True) -> None:
        endpoints = self._endpoints.get(endpoint.driver, [])
        if endpoint in endpoints:
            endpoints.remove(endpoint)
        if not endpoints:
            self._endpoints.pop(endpoint.driver, None)
        follower = self._followers.pop(endpoint, None)
        if follower is not None:
            follower.cancel()
        endpoint.is_connected = False
        self._on_deregistered(endpoint)
        await endpoint.close()
        log.info("driver %s deregistered at %s", endpoint.driver, endpoint.path)
        if plan_wipe:
            self._connection_changed(endpoint.driver)

    # --- slices of drivers that stay away

    def _connection_changed(self, driver: str) -> None:
        is_usable = any(endpoint.is_connected for endpoint in self._endpoints.get(driver, ()))
        wipe = self._wipes.get(driver)
        if is_usable and wipe is not None:
            wipe.cancel()
            del self._wipes[driver]
        elif not is_usable and wipe is None:
            self._wipes[driver] = asyncio.create_task(self._wipe_later(driver), name=f"slices of {driver}")

    async def _wipe_later(self, driver: str) -> None:
        await self._clock.sleep(WIPE_DELAY_S)
        log.warning("driver %s stayed away for %.0f s: removing its ResourceSlices", driver, WIPE_DELAY_S)
        await self._wipe_slices(driver)
        self._wipes.pop(driver, None)


def retry_after_s(failures: int) -> float:
    """Longer with each failure, up to a minute, also after a thousand of them."""
    return min(RETRY_START_S * 2.0 ** min(failures - 1, 30), RETRY_CAP_S)


def _told(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or f"no answer ({type(error).__name__})"


def _check_name(driver: str, endpoint: str) -> None:
    """Names end up in paths, selectors and metrics: only what the API takes for a driver's name is let in."""
    problems = [] if len(driver) <= MAX_NAME else [f"must be no more than {MAX_NAME} characters"]
    problems += subdomain_problems(driver.lower()) if driver else ["must not be empty"]
    if not endpoint.startswith("/"):
        problems.append(f"endpoint {endpoint!r} must be an absolute path")
    if problems:
        text = f"invalid DRA driver plugin name {driver!r}: {'; '.join(problems)}"
        raise RegistrationError(f"RegisterPlugin error -- plugin validation failed with err: {text}")


def _sockets_below(directory: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Sockets with what makes each the same file as before; hidden names and other files do not count."""
    found: list[tuple[Path, tuple[int, int]]] = []
    for root, folders, names in os.walk(directory):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        for name in names:
            if name.startswith("."):
                continue
            path = Path(root, name)
            try:
                status = path.stat()
            except OSError:
                continue
            if stat.S_ISSOCK(status.st_mode):
                found.append((path, (status.st_ino, status.st_ctime_ns)))
    return sorted(found)
