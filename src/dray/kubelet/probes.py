"""Probes and lifecycle hooks of containers that can run further commands: startup, readiness and liveness; after the start and before the end."""

import asyncio
import contextlib
import http.client
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import grpc

from dray.api.core import (
    Container,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
    TCPSocketAction,
)
from dray.clock import Clock
from dray.kubelet.errors import ContainerError

PERIOD_S, TIMEOUT_S, FAILURES = 10, 1, 3
MAX_TEXT = 1024
# The longest time that a hook after the start may take.
HOOK_TIMEOUT_S = 600.0
LEAST_GRACE_S = 2.0


@runtime_checkable
class CommandableContainer(Protocol):
    """A container in which probes and hooks can run commands."""

    async def run_command(self, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Exit code and output of a command in the container; ContainerError if it could not run or took too long."""
        ...

    async def stop(self, grace_s: float) -> None: ...


class ProbeFailure(Exception):
    """What a handler has found wrong."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """Does what handlers of one running container describe."""

    container: Container
    running: CommandableContainer
    address: str

    async def run(self, handler: Probe | LifecycleHandler, timeout_s: float) -> None:
        """Raises ProbeFailure unless it succeeds in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._run(handler, timeout_s)
        except TimeoutError:
            raise ProbeFailure(f"timed out after {timeout_s:g}s") from None
        except (OSError, http.client.HTTPException, ContainerError) as error:
            raise ProbeFailure(str(error) or type(error).__name__) from error

    async def _run(self, handler: Probe | LifecycleHandler, timeout_s: float) -> None:
        if handler.exec is not None:
            await self._exec(handler.exec, timeout_s)
        elif handler.http_get is not None:
            await self._get(handler.http_get, timeout_s)
        elif handler.tcp_socket is not None:
            await self._connect(handler.tcp_socket)
        elif isinstance(handler, Probe) and handler.grpc is not None:
            await self._check_health(handler.grpc, timeout_s)
        elif isinstance(handler, LifecycleHandler) and handler.sleep is not None:
            await asyncio.sleep(handler.sleep.seconds)

    async def _exec(self, action: ExecAction, timeout_s: float) -> None:
        code, output = await self.running.run_command(action.command, timeout_s)
        if code != 0:
            raise ProbeFailure(output[:MAX_TEXT].rstrip() or f"command exited with {code}")

    async def _get(self, action: HTTPGetAction, timeout_s: float) -> None:
        host, port = action.host or self.address, self._port(action.port)
        headers = {each.name: each.value for each in action.http_headers}
        status = await asyncio.to_thread(
            _http_status, action.scheme == "HTTPS", host, port, action.path or "/", headers, timeout_s
        )
        if not 200 <= status < 400:
            raise ProbeFailure(f"HTTP probe failed with statuscode: {status}")

    async def _connect(self, action: TCPSocketAction) -> None:
        _, writer = await asyncio.open_connection(action.host or self.address, self._port(action.port))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _check_health(self, action: GRPCAction, timeout_s: float) -> None:
        service = (action.service or "").encode()
        request = b"\x0a" + bytes([len(service)]) + service if service else b""
        async with grpc.aio.insecure_channel(f"{self.address}:{action.port}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                answer = await check(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                raise ProbeFailure(f"error: {error.details()}") from error
        # The status is the first field: 1 stands for SERVING.
        if answer != b"\x08\x01":
            raise ProbeFailure("service unhealthy")

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        named = next((each.container_port for each in self.container.ports if each.name == port), None)
        if named is None:
            raise ProbeFailure(f"couldn't find port: {port}")
        return named


def _http_status(is_tls: bool, host: str, port: int, path: str, headers: dict[str, str], timeout_s: float) -> int:
    connection: http.client.HTTPConnection
    if is_tls:
        # As kubelets do: what a container presents is not checked, only that it answers.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"User-Agent": "kube-probe/1.37", "Connection": "close", **headers})
        return connection.getresponse().status


class ContainerProbes:
    """Asks the probes of one running container until it is cancelled, and tells what changes.

    `changed` hears whether the container has started and is ready; `unhealthy` that it must be restarted, and why.
    """

    def __init__(
        self,
        handlers: Handlers,
        clock: Clock,
        changed: Callable[[bool, bool], None],
        failed: Callable[[str], None],
    ) -> None:
        self._handlers = handlers
        self._container = handlers.container
        self._clock = clock
        self._changed = changed
        self._failed = failed

    async def run(self) -> str:
        """The kind of the probe because of which the container must be restarted."""
        startup, readiness = self._container.startup_probe, self._container.readiness_probe
        if startup is not None and not await self._succeeds(startup, "Startup"):
            return "startup"
        self._changed(True, readiness is None)
        tasks = []
        if readiness is not None:
            tasks.append(asyncio.create_task(self._follow(readiness)))
        if self._container.liveness_probe is not None:
            tasks.append(asyncio.create_task(self._stays_alive(self._container.liveness_probe)))
        if not tasks:
            await asyncio.Event().wait()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return "liveness"
        finally:
            for task in tasks:
                task.cancel()

    async def _succeeds(self, probe: Probe, kind: str) -> bool:
        """True at the first success; False after too many failures."""
        failures = 0
        await self._clock.sleep(probe.initial_delay_seconds)
        while True:
            if await self._ask(probe, kind):
                return True
            failures += 1
            if failures >= (probe.failure_threshold or FAILURES):
                return False
            await self._clock.sleep(probe.period_seconds or PERIOD_S)

    async def _stays_alive(self, probe: Probe) -> None:
        """Returns when the container has failed the probe too often in a row."""
        failures = 0
        await self._clock.sleep(probe.initial_delay_seconds)
        while failures < (probe.failure_threshold or FAILURES):
            failures = 0 if await self._ask(probe, "Liveness") else failures + 1
            if failures < (probe.failure_threshold or FAILURES):
                await self._clock.sleep(probe.period_seconds or PERIOD_S)

    async def _follow(self, probe: Probe) -> None:
        is_ready, in_a_row, last = False, 0, None
        await self._clock.sleep(probe.initial_delay_seconds)
        while True:
            found = await self._ask(probe, "Readiness")
            in_a_row, last = (in_a_row + 1 if found == last else 1), found
            enough = (probe.success_threshold or 1) if found else (probe.failure_threshold or FAILURES)
            if found != is_ready and in_a_row >= enough:
                is_ready = found
                self._changed(True, is_ready)
            await self._clock.sleep(probe.period_seconds or PERIOD_S)

    async def _ask(self, probe: Probe, kind: str) -> bool:
        try:
            await self._handlers.run(probe, probe.timeout_seconds or TIMEOUT_S)
        except ProbeFailure as failure:
            self._failed(f"{kind} probe failed: {failure}")
            return False
        return True


async def stop_with_hook(
    running: CommandableContainer, container: Container, address: str, grace_s: float, warn: Callable[[str, str], None]
) -> None:
    """Runs the hook before the end, within the time that the container has, and then stops it."""
    hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
    if hook is not None and grace_s > 0:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            await Handlers(container, running, address).run(hook, grace_s)
        except ProbeFailure as failure:
            warn("FailedPreStopHook", f"PreStopHook failed: {failure}")
        grace_s = max(grace_s - (loop.time() - begun), LEAST_GRACE_S)
    await running.stop(grace_s)
