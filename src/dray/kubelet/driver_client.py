"""gRPC calls to one registered driver: its channel, the service version it speaks, and deadlines."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import grpc

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
)
from dray.telemetry import VerboseLog

log = VerboseLog(__name__)

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
        log.say(4, f"Calling {method} rpc", driver=self.driver, claims=lambda: [each.name for each in request.claims])
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
            log.say(4, f"Done calling {method} rpc", driver=self.driver, code=code)
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
