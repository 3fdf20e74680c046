"""Takes one pod from its arrival on the node to its end: admission, claims, containers, status, and back again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dray.api.core import Container, Pod
from dray.api.dra.pod_phase import is_finished
from dray.api.times import parse_time
from dray.client import Client, Recorder
from dray.clock import Clock, rfc3339
from dray.kubelet.admission import OF_THE_NODE, AdmissionRejection, PodAdmission
from dray.kubelet.claims import ClaimRefused
from dray.kubelet.container_restarts import DEFAULT_GRACE_S, ContainerRunner
from dray.kubelet.container_specs import ContainerSpecs
from dray.kubelet.errors import ContainerError, DriverError, SandboxGone
from dray.kubelet.pod_status import ContainerProgress, ephemeral_containers
from dray.kubelet.pod_status_writer import (
    DeviceStatuses,
    PodStatusWriter,
)
from dray.kubelet.prepare import PodClaims
from dray.kubelet.probes import CommandableContainer, stop_with_hook
from dray.kubelet.runtime.interface import Exit, RunningContainer, Runtime

log = logging.getLogger(__name__)

RETRY_START_S = 1.0
PREPARE_RETRY_CAP_S = 60.0
UNPREPARE_RETRY_CAP_S = 15.0
LEAST_GRACE_S = 2.0
LOOK_AT_DEADLINE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What all pods of a node share."""

    client: Client
    clock: Clock
    recorder: Recorder
    admission: PodAdmission
    claims: PodClaims
    runtime: Runtime
    specs: ContainerSpecs
    log_root: Path
    host_ip: str
    node: Callable[[], Any]
    read_node: Callable[[], Awaitable[Any]]
    device_statuses: DeviceStatuses = lambda pod, container: ()
    observe_operation: Callable[[str, bool, float], None] = lambda operation, is_error, seconds: None
    count_rejection: Callable[[str], None] = lambda reason: None
    count_start_error: Callable[[str, str], None] = lambda container_type, code: None


class PodWorker:
    """Runs until the pod has left the node; `update` gives it newer versions of the pod meanwhile."""

    def __init__(self, context: NodeContext, pod: Pod) -> None:
        self._context = context
        self._report = PodStatusWriter(
            context.client,
            context.recorder,
            pod,
            context.host_ip,
            context.device_statuses,
            context.specs.qos_class,
        )
        self._running: dict[str, RunningContainer] = {}
        self._keeper = ContainerRunner(
            context.clock,
            context.runtime,
            context.specs.of,
            self._report,
            self._running,
            self._pause_for,
            context.count_start_error,
        )
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._evicted = asyncio.Event()
        self._has_lived = False
        # Set when the pod may have got further ephemeral containers.
        self._updated = asyncio.Event()
        self.update(pod)

    @property
    def pod(self) -> Pod:
        """As the API has shown it last."""
        return self._report.pod

    def update(self, pod: Pod) -> None:
        self._report.pod = pod
        self._updated.set()
        self._changed.set()
        if pod.metadata.deletion_timestamp is not None:
            self._stopping.set()

    @property
    def running(self) -> Mapping[str, RunningContainer]:
        """Containers that run now, by name."""
        return self._running

    def runs(self, container: str) -> bool:
        return container in self._running

    def waits_for(self, container: str) -> str:
        """Why a container that has not been started waits."""
        progress = self._report.progress.containers.get(container, ContainerProgress())
        return progress.waiting if progress.started_at is None else ""

    def wake(self) -> None:
        """What it waits for may be there now."""
        self._changed.set()

    def evict(self, message: str) -> None:
        """The node needs its memory for others: the pod ends now, and as failed."""
        if is_finished(self.pod) or self._evicted.is_set():
            return
        self._report.warn("Evicted", message)
        self._report.change(reason="Evicted", message=message, is_evicted=True)
        self._evicted.set()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or will."""
        return not (is_finished(self.pod) or self._stopping.is_set() or self._evicted.is_set())

    def remove(self) -> None:
        """The pod vanished from the API: somebody deleted it without waiting for the node."""
        self._report.is_deleted = True
        self._stopping.set()

    async def run(self) -> None:
        """The pod's whole life here. What was prepared is given back, whatever happened before."""
        try:
            if not is_finished(self.pod) and not self._has_lived:
                await self._live_until_stopped()
            self._has_lived = True
            await self._end()
        finally:
            self._report.close()

    async def _live_until_stopped(self) -> None:
        life = asyncio.create_task(self._live_for_sure(), name=f"pod {self.pod.metadata.name}")
        ends = [asyncio.create_task(each) for each in (self._stopping.wait(), self._evicted.wait(), self._deadline())]
        try:
            await asyncio.wait({life, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (life, *ends):
                task.cancel()
            await asyncio.gather(life, *ends, return_exceptions=True)

    async def _deadline(self) -> None:
        """Until the pod was here for longer than it may be, which is never for most; the time allowed may change."""
        while True:
            allowed_s, started = self.pod.spec.active_deadline_seconds, self._report.progress.start_time
            left_s = LOOK_AT_DEADLINE_EVERY_S
            if allowed_s is not None and started is not None:
                active_s = (self._context.clock.now() - parse_time(started)).total_seconds()
                left_s = allowed_s - active_s
            if left_s <= 0:
                break
            await self._context.clock.sleep(min(left_s, LOOK_AT_DEADLINE_EVERY_S))
        text = "Pod was active on the node longer than the specified deadline"
        self._report.tell_pod("DeadlineExceeded", text)
        self._report.change(reason="DeadlineExceeded", message=text)

    async def _live_for_sure(self) -> None:
        """A runtime or disk that fails is no fault of the pod: it is tried again, and finds what it started before."""
        wait_s = RETRY_START_S
        while True:
            try:
                await self._live()
                return
            except SandboxGone as error:
                log.warning("pod %s: its sandbox is gone, a new one is made: %s", self.pod.metadata.name, error)
                self._report.tell_pod("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
                self._report.change(has_sandbox=False)
                await self._stop_containers()
            except (ContainerError, OSError) as error:
                log.warning("pod %s: %s", self.pod.metadata.name, error)
                self._report.warn("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            except Exception:
                log.exception("pod %s: its worker failed and starts again", self.pod.metadata.name)
            await self._context.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, PREPARE_RETRY_CAP_S)

    # --- living

    async def _rejection(self) -> AdmissionRejection | None:
        """The scheduler may have seen labels and taints that are newer than those read last: nobody is turned away because of old ones."""
        admission = self._context.admission
        rejection = admission.admit(self.pod, self._context.node())
        if rejection is None or rejection.reason not in OF_THE_NODE:
            return rejection
        return admission.admit(self.pod, await self._context.read_node())

    async def _live(self) -> None:
        rejection = await self._rejection()
        if rejection is not None:
            await self._reject(rejection)
            return
        self._report.change(start_time=self.pod.status.start_time or rfc3339(self._context.clock.now()))
        # After a restart of the node agent there is nothing to tell before the containers are found again.
        is_back = self.pod.status.phase == "Running"
        if not is_back:
            await self._report.write()
        # Containers of a sandbox that lives were prepared for; their restarts need neither the API nor the drivers.
        has_sandbox = await self._context.runtime.has_sandbox(self.pod.metadata.uid)
        if has_sandbox and self._context.claims.knows_claims_of(self.pod):
            await self._context.specs.remember_claims(self.pod)
        else:
            await self._wait_for_volumes()
            await self._prepare()
        cgroup = self._context.specs.pod_cgroup(self.pod)
        sandbox = await self._context.runtime.start_pod(self.pod, cgroup)
        pod_ip = await self._context.runtime.pod_ip(sandbox) or self._context.host_ip
        self._report.change(has_sandbox=True, pod_ip=pod_ip)
        try:
            await self._run_containers(sandbox, tells_start=not is_back)
        except ExceptionGroup as group:
            raise _first_cause(group) from None

    async def _run_containers(self, sandbox: str, *, tells_start: bool) -> None:
        """Init containers, then the others; sidecars beside all of them. One that fails here ends all of them."""
        async with asyncio.TaskGroup() as group:
            sidecars: list[asyncio.Task[None]] = []
            watch = group.create_task(self._watch_sandbox(sandbox))
            ephemeral = group.create_task(self._run_ephemeral_containers(sandbox, group, sidecars))
            try:
                if await self._run_init_containers(sandbox, group, sidecars):
                    self._report.change(is_initialized=True)
                    if tells_start:
                        await self._report.write()
                    keep = self._keeper.keep
                    main = [keep(each, sandbox, self._main_restarts) for each in self.pod.spec.containers]
                    await asyncio.gather(*map(group.create_task, main))
            finally:
                for task in (watch, ephemeral, *sidecars):
                    task.cancel()

    async def _run_ephemeral_containers(
        self, sandbox: str, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]
    ) -> None:
        """Starts them as they are added to the pod; each runs once."""
        known = {
            each.name for each in self.pod.status.ephemeral_container_statuses if each.state.terminated is not None
        }
        while True:
            self._updated.clear()
            for container in ephemeral_containers(self.pod):
                if container.name not in known:
                    known.add(container.name)
                    tasks.append(group.create_task(self._run_once(container, sandbox)))
            await self._updated.wait()

    async def _run_once(self, container: Container, sandbox: str) -> None:
        await self._keeper.keep(container, sandbox, lambda ended: False)
        await self._report.write()

    async def _watch_sandbox(self, sandbox: str) -> None:
        await self._context.runtime.sandbox_end(sandbox)
        raise SandboxGone("the runtime says that it is no longer ready")

    async def _reject(self, rejection: AdmissionRejection) -> None:
        self._report.change(is_finished=True, reason=rejection.reason, message=f"Pod was rejected: {rejection.message}")
        self._report.warn(rejection.reason, rejection.message)
        self._context.count_rejection(rejection.reason)
        await self._report.write()

    async def _wait_for_volumes(self) -> None:
        """Until the ConfigMaps and Secrets of its volumes are there, however long it takes."""
        wait_s = RETRY_START_S
        while True:
            self._changed.clear()
            problem = await self._context.specs.why_not_mounted(self.pod)
            if not problem:
                return
            log.warning("pod %s: %s", self.pod.metadata.name, problem)
            self._report.warn("FailedMount", problem)
            await self._pause(wait_s)
            wait_s = min(wait_s * 2, PREPARE_RETRY_CAP_S)

    async def _prepare(self) -> None:
        """Prepare the claims, however long it takes; a change of the pod is a reason to try at once."""
        wait_s = RETRY_START_S
        while True:
            started = self._context.clock.monotonic()
            self._changed.clear()
            try:
                await self._context.claims.prepare(self.pod)
                self._context.observe_operation("PrepareResources", False, self._context.clock.monotonic() - started)
                return
            except (ClaimRefused, DriverError) as error:
                self._context.observe_operation("PrepareResources", True, self._context.clock.monotonic() - started)
                text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
                log.warning("pod %s: %s", self.pod.metadata.name, text)
                self._report.warn("FailedPrepareDynamicResources", text)
            await self._pause(wait_s)
            wait_s = min(wait_s * 2, PREPARE_RETRY_CAP_S)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but wake when the pod changes."""
        sleep = asyncio.ensure_future(self._context.clock.sleep(seconds))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({sleep, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            change.cancel()

    # --- containers

    async def _run_init_containers(
        self, sandbox: str, group: asyncio.TaskGroup, sidecars: list[asyncio.Task[None]]
    ) -> bool:
        """One after the other; sidecars only have to be started. False when one failed for good."""
        for container in self.pod.spec.init_containers:
            if container.restart_policy == "Always":
                started = asyncio.Event()
                sidecars.append(group.create_task(self._keeper.keep(container, sandbox, lambda ended: True, started)))
                await started.wait()
                continue
            before = next(
                (each for each in self.pod.status.init_container_statuses if each.name == container.name), None
            )
            if before is not None and before.state.terminated is not None and before.state.terminated.exit_code == 0:
                self._report.note(
                    container.name,
                    ContainerProgress(exit=Exit(0, reason="Completed"), started_at=before.state.terminated.started_at),
                )
                continue
            await self._keeper.keep(container, sandbox, self._init_restarts)
            ended = self._report.progress.containers[container.name].exit
            if ended is None or ended.code != 0:
                return False
        return True

    def _main_restarts(self, ended: Exit) -> bool:
        policy = self.pod.spec.restart_policy or "Always"
        return policy == "Always" or (policy == "OnFailure" and ended.code != 0)

    def _init_restarts(self, ended: Exit) -> bool:
        return ended.code != 0 and self.pod.spec.restart_policy != "Never"

    async def _pause_for(self, seconds: float) -> None:
        self._changed.clear()
        await self._pause(seconds)

    # --- the end

    async def _end(self) -> None:
        """Stop what runs, give claims back, report the end, and let the API forget the pod if it is being deleted."""
        await self._stop_containers()
        if self._report.progress.containers and not is_finished(self.pod):
            await self._report.write()
        await self._unprepare()
        await self._context.runtime.stop_pod(self.pod.metadata.uid)
        self._context.specs.forget(self.pod.metadata.uid)
        self._context.admission.release(self.pod)
        self._report.change(is_finished=True, has_sandbox=False)
        if not is_finished(self.pod):
            await self._report.write_for_sure()
        if not self._stopping.is_set():
            await self._stopping.wait()
        if not self._report.is_deleted:
            await self._report.delete()

    async def _stop_containers(self) -> None:
        await self._find_containers()
        grace = self.pod.metadata.deletion_grace_period_seconds
        grace_s = float(
            grace if grace is not None else self.pod.spec.termination_grace_period_seconds or DEFAULT_GRACE_S
        )
        if self._report.is_deleted or self._evicted.is_set():
            grace_s = min(grace_s, 1.0)
        sidecars = [each.name for each in self.pod.spec.init_containers if each.restart_policy == "Always"]
        main = [name for name in self._running if name not in sidecars]
        deadline = self._context.clock.monotonic() + grace_s
        await asyncio.gather(*(self._stop(name, grace_s) for name in main))
        for name in reversed(sidecars):
            if name in self._running:
                # Sidecars have what the others left of the time, and a moment in any case.
                left_s = deadline - self._context.clock.monotonic()
                await self._stop(name, min(grace_s, max(left_s, LEAST_GRACE_S)))

    async def _find_containers(self) -> None:
        """Those of an earlier life of this agent, which ended before it could stop them, get their grace as well."""
        if is_finished(self.pod):
            return
        for container in (*self.pod.spec.containers, *self.pod.spec.init_containers):
            if container.name in self._running or container.name in self._report.progress.containers:
                continue
            try:
                found = await self._context.runtime.find_container(self.pod, container.name)
            except ContainerError as error:
                log.warning("pod %s, container %s: %s", self.pod.metadata.name, container.name, error)
                continue
            if found is not None:
                running, attempt = found
                self._running[container.name] = running
                progress = ContainerProgress(
                    container_id=running.id, started_at=running.started_at or None, restarts=attempt
                )
                self._report.note(container.name, progress)

    async def _stop(self, name: str, grace_s: float) -> None:
        running = self._running[name]
        spec = self.pod.spec
        every = (*spec.containers, *spec.init_containers, *ephemeral_containers(self.pod))
        container = next(each for each in every if each.name == name)
        self._report.tell("Killing", f"Stopping container {name}", container)
        if container.lifecycle is not None and isinstance(running, CommandableContainer):
            address = self._report.progress.pod_ip
            await stop_with_hook(
                running, container, address, grace_s, lambda reason, text: self._report.warn(reason, text, container)
            )
        else:
            await running.stop(grace_s)
        ended = await running.wait()
        self._running.pop(name, None)
        self._report.note(name, replace(self._report.of(container), exit=ended))

    async def _unprepare(self) -> None:
        """For ever, if need be: a claim that a driver still holds must not look free."""
        wait_s = RETRY_START_S
        while self._context.claims.has_claims(self.pod.metadata.uid):
            started = self._context.clock.monotonic()
            try:
                await self._context.claims.unprepare(self.pod.metadata.uid)
            except DriverError as error:
                log.warning("pod %s: unprepare dynamic resources: %s", self.pod.metadata.name, error)
                self._context.observe_operation("UnprepareResources", True, self._context.clock.monotonic() - started)
                await self._pause_for(wait_s)
                wait_s = min(wait_s * 2, UNPREPARE_RETRY_CAP_S)
            else:
                self._context.observe_operation("UnprepareResources", False, self._context.clock.monotonic() - started)

    async def report(self) -> None:
        await self._report.write()


def _first_cause(group: ExceptionGroup[Exception]) -> Exception:
    """What went wrong, rather than what was cancelled because of it."""
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, ExceptionGroup) else first
