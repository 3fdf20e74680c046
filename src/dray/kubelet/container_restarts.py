"""Runs one container of a pod: pulls its image, starts it, waits for its end, and restarts it while its policy says so."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dray.api.core import Container, Pod, Probe
from dray.clock import Clock, rfc3339
from dray.kubelet.errors import ContainerError, SandboxGone
from dray.kubelet.pod_status import (
    ContainerProgress,
    state_document,
)
from dray.kubelet.pod_status_writer import PodStatusWriter
from dray.kubelet.probes import (
    HOOK_TIMEOUT_S,
    CommandableContainer,
    ContainerProbes,
    Handlers,
    ProbeFailure,
    stop_with_hook,
)
from dray.kubelet.runtime.interface import ContainerSpec, Exit, RunningContainer, Runtime

RESTART_START_S = 10.0
RESTART_CAP_S = 300.0
# A container that ran this long was healthy: its next crash is its first again.
RESTART_RESET_S = 600.0
DEFAULT_GRACE_S = 30.0

Restarts = Callable[[Exit], bool]


def _is_looked_after(container: Container) -> bool:
    probes = (container.startup_probe, container.readiness_probe, container.liveness_probe, container.lifecycle)
    return any(each is not None for each in probes)


class DescribeContainer(Protocol):
    def __call__(self, pod: Pod, container: Container, attempt: int, pod_ip: str) -> Awaitable[ContainerSpec]: ...


@dataclass(frozen=True, slots=True)
class ContainerRunner:
    """Runs and restarts the containers of one pod. `running` holds those that run now, by name."""

    clock: Clock
    runtime: Runtime
    describe: DescribeContainer
    report: PodStatusWriter
    running: dict[str, RunningContainer]
    # Sleeps until something may have changed, at most so many seconds.
    pause: Callable[[float], Awaitable[None]]
    count_start_error: Callable[[str, str], None]

    async def keep(
        self, container: Container, sandbox: str, restarts: Restarts, started: asyncio.Event | None = None
    ) -> None:
        """Run a container, again and again while its policy says so, slower each time it fails early."""
        report = self.report
        found = await self.runtime.find_container(report.pod, container.name)
        attempt = found[1] if found else 0
        wait_s = RESTART_START_S
        while True:
            running = found[0] if found else await self._start(container, sandbox, attempt, restarts)
            found = None
            if running is None:
                return
            self.running[container.name] = running
            report.note(
                container.name,
                replace(
                    report.of(container),
                    waiting="",
                    message="",
                    container_id=running.id,
                    started_at=running.started_at,
                    exit=None,
                    restarts=attempt,
                    has_started=container.startup_probe is None or not isinstance(running, CommandableContainer),
                    passes_probes=(container.startup_probe is None and container.readiness_probe is None)
                    or not isinstance(running, CommandableContainer),
                ),
            )
            if started is not None:
                started.set()
            begun = self.clock.monotonic()
            await report.write()
            ended = await self._end_of(container, running)
            self.running.pop(container.name, None)
            report.note(container.name, replace(report.of(container), exit=ended))
            if not restarts(ended):
                return
            await report.write()
            if self.clock.monotonic() - begun >= RESTART_RESET_S:
                wait_s = RESTART_START_S
            await self._wait_for_restart(container, wait_s)
            wait_s = min(wait_s * 2, RESTART_CAP_S) if attempt else wait_s
            attempt += 1

    async def _end_of(self, container: Container, running: RunningContainer) -> Exit:
        """Waits for the end, and looks after the container meanwhile as its probes and hooks say."""
        if not _is_looked_after(container) or not isinstance(running, CommandableContainer):
            return await running.wait()
        care = asyncio.create_task(self._look_after(container, running), name=f"probes of {container.name}")
        try:
            return await running.wait()
        finally:
            care.cancel()
            await asyncio.gather(care, return_exceptions=True)

    async def _look_after(self, container: Container, running: CommandableContainer) -> None:
        report, address = self.report, self.report.progress.pod_ip
        handlers = Handlers(container, running, address)

        def warn(reason: str, text: str) -> None:
            report.warn(reason, text, container)

        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        if hook is not None:
            try:
                await handlers.run(hook, HOOK_TIMEOUT_S)
            except ProbeFailure as failure:
                warn("FailedPostStartHook", f"PostStartHook failed: {failure}")
                report.tell("Killing", "FailedPostStartHook", container)
                await running.stop(self._grace_s(None))
                return

        def changed(has_started: bool, is_ready: bool) -> None:
            progress = replace(report.of(container), has_started=has_started, passes_probes=is_ready)
            report.note(container.name, progress)
            writes.append(asyncio.ensure_future(report.write()))

        writes: list[asyncio.Future[None]] = []
        probes = ContainerProbes(handlers, self.clock, changed, lambda text: warn("Unhealthy", text))
        failed = await probes.run()
        text = f"Container {container.name} failed {failed} probe, will be restarted"
        report.tell("Killing", text, container)
        probe = container.startup_probe if failed == "startup" else container.liveness_probe
        await stop_with_hook(running, container, address, self._grace_s(probe), warn)

    def _grace_s(self, probe: Probe | None) -> float:
        own = probe.termination_grace_period_seconds if probe is not None else None
        spec = self.report.pod.spec
        found = own if own is not None else spec.termination_grace_period_seconds
        return float(found if found is not None else DEFAULT_GRACE_S)

    async def _wait_for_restart(self, container: Container, wait_s: float) -> None:
        report = self.report
        progress = report.of(container)
        metadata = report.pod.metadata
        pod = f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        text = f"back-off {wait_s:.0f}s restarting failed container={container.name} pod={pod}"
        waiting = ContainerProgress(
            waiting="CrashLoopBackOff",
            message=text,
            last=state_document(progress),
            restarts=progress.restarts,
            container_id=progress.container_id,
        )
        # The first restart is at once, however the container ended.
        if not progress.restarts:
            report.note(container.name, replace(waiting, waiting="ContainerCreating", message=""))
            return
        report.note(container.name, waiting)
        await report.write()
        report.warn("BackOff", f"Back-off restarting failed container {container.name} in pod {pod}", container)
        await self.clock.sleep(wait_s)

    async def _start(
        self, container: Container, sandbox: str, attempt: int, restarts: Restarts
    ) -> RunningContainer | None:
        """Starts the container, or shows why it cannot be started and tries again; None if it never can be started."""
        wait_s = RESTART_START_S
        fails_since: float | None = None
        while True:
            try:
                return await self._start_once(container, sandbox, attempt)
            except ContainerError as error:
                if not await self.runtime.has_sandbox(self.report.pod.metadata.uid):
                    # With its sandbox the whole pod starts over: claims are prepared for the next one.
                    raise SandboxGone(str(error)) from error
                fails_since = self.clock.monotonic() if fails_since is None else fails_since
                now = rfc3339(self.clock.now())
                failed = Exit(128, reason=error.reason, message=str(error), finished_at=now)
                self._tell_failure(container, error)
                if not restarts(failed) and error.is_final(self.clock.monotonic() - fails_since):
                    self.report.note(container.name, replace(self.report.of(container), waiting="", exit=failed))
                    return None
                self._show_waiting(container, error.reason, str(error))
                await self.report.write()
                if error.reason == "ErrImagePull":
                    text = f'Back-off pulling image "{container.image}"'
                    self.report.tell("BackOff", text, container)
                    self._show_waiting(container, "ImagePullBackOff", f"{text}: ErrImagePull: {error}")
                    await self.report.write()
            await self.pause(wait_s)
            wait_s = min(wait_s * 2, RESTART_CAP_S)

    async def _start_once(self, container: Container, sandbox: str, attempt: int) -> RunningContainer:
        report = self.report
        await self._get_image(container)
        spec = await self.describe(report.pod, container, attempt, report.progress.pod_ip)
        running = await self.runtime.start_container(report.pod, sandbox, spec)
        report.tell("Created", "Container created", container)
        report.tell("Started", "Container started", container)
        return running

    async def _get_image(self, container: Container) -> None:
        image, policy, report = container.image, container.image_pull_policy, self.report
        is_present = not self.runtime.pulls_images or await self.runtime.has_image(image)
        if is_present and (policy != "Always" or not self.runtime.pulls_images):
            text = f'Container image "{image}" already present on machine and can be accessed by the pod'
            report.tell("Pulled", text, container)
            return
        if policy == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            raise ContainerError("ErrImageNeverPull", text)
        report.tell("Pulling", f'Pulling image "{image}"', container)
        begun = self.clock.monotonic()
        await self.runtime.pull_image(image)
        took = f"{self.clock.monotonic() - begun:.3g}s"
        report.tell("Pulled", f'Successfully pulled image "{image}" in {took} ({took} including waiting).', container)

    def _tell_failure(self, container: Container, error: ContainerError) -> None:
        report = self.report
        if error.reason == "ErrImageNeverPull":
            report.warn("ErrImageNeverPull", str(error), container)
        elif error.reason == "ErrImagePull":
            report.warn("Failed", f'Failed to pull image "{container.image}": {error}', container)
        report.warn("Failed", f"Error: {error.reason if error.reason.startswith('ErrImage') else error}", container)
        is_init = container in report.pod.spec.init_containers
        self.count_start_error("init_container" if is_init else "container", error.reason)

    def _show_waiting(self, container: Container, reason: str, message: str) -> None:
        shown = replace(self.report.of(container), waiting=reason, message=message, started_at=None)
        self.report.note(container.name, shown)
