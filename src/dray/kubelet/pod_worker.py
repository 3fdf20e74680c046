"""One pod, from its arrival on the node to its end: admission, claims, containers, status, and all of it back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dray.api.core import Container, Pod
from dray.client import PODS, STRATEGIC_PATCH, WARNING, ApiError, Client, Recorder, ServerUnreachable, reference_to
from dray.clock import Clock, rfc3339
from dray.kubelet.admission import Admission, Rejection
from dray.kubelet.claims import ClaimRefused
from dray.kubelet.containers import ContainerSpecs
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.prepare import PodClaims
from dray.kubelet.runtime.interface import Exit, RunningContainer, Runtime
from dray.kubelet.status import ContainerProgress, PodProgress, state_document, status_document

log = logging.getLogger(__name__)

RETRY_START_S = 1.0
PREPARE_RETRY_CAP_S = 60.0
UNPREPARE_RETRY_CAP_S = 15.0
RESTART_START_S = 10.0
RESTART_CAP_S = 300.0
# A container that ran this long was healthy: its next crash is its first again.
RESTART_RESET_S = 600.0
DEFAULT_GRACE_S = 30.0
LEAST_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What all pods of a node share."""

    client: Client
    clock: Clock
    recorder: Recorder
    admission: Admission
    claims: PodClaims
    runtime: Runtime
    specs: ContainerSpecs
    log_root: Path
    host_ip: str
    node: Callable[[], Any]
    # Health of the devices of a container, as its status shows it.
    device_statuses: Callable[[Pod, Container], Iterable[dict[str, Any]]] = lambda pod, container: ()
    observe_operation: Callable[[str, bool, float], None] = lambda operation, is_error, seconds: None
    count_rejection: Callable[[str], None] = lambda reason: None
    count_start_error: Callable[[str, str], None] = lambda container_type, code: None


class PodWorker:
    """Runs until the pod is gone from the node; `update` tells it what the API says of the pod meanwhile."""

    def __init__(self, context: NodeContext, pod: Pod) -> None:
        self.pod = pod
        self._context = context
        self._progress = PodProgress(host_ip=context.host_ip)
        self._running: dict[str, RunningContainer] = {}
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._reported: dict[str, Any] = {}
        self._writing = asyncio.Lock()
        self._late_report: asyncio.Task[None] | None = None
        self._is_deleted = False
        self._has_lived = False
        self.update(pod)

    def update(self, pod: Pod) -> None:
        self.pod = pod
        self._changed.set()
        if pod.metadata.deletion_timestamp is not None:
            self._stopping.set()

    def runs(self, container: str) -> bool:
        return container in self._running

    def wake(self) -> None:
        """What it waits for may be there now."""
        self._changed.set()

    def remove(self) -> None:
        """The pod vanished from the API: somebody deleted it without waiting for the node."""
        self._is_deleted = True
        self._stopping.set()

    async def run(self) -> None:
        """The pod's whole life here. What was prepared is given back, whatever happened before."""
        try:
            if self.pod.status.phase not in ("Succeeded", "Failed") and not self._has_lived:
                await self._live_until_stopped()
            self._has_lived = True
            await self._end()
        finally:
            if self._late_report is not None:
                self._late_report.cancel()

    async def _live_until_stopped(self) -> None:
        life = asyncio.create_task(self._live_for_sure(), name=f"pod {self.pod.metadata.name}")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({life, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def _live_for_sure(self) -> None:
        """A runtime or disk that fails is no fault of the pod: it is tried again, and finds what it started before."""
        wait_s = RETRY_START_S
        while True:
            try:
                await self._live()
                return
            except (ContainerError, OSError) as error:
                log.warning("pod %s: %s", self.pod.metadata.name, error)
                self._event("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            except Exception:
                log.exception("pod %s: its worker failed and starts again", self.pod.metadata.name)
            await self._context.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, PREPARE_RETRY_CAP_S)

    # --- living

    async def _live(self) -> None:
        rejection = self._context.admission.admit(self.pod, self._context.node())
        if rejection is not None:
            await self._reject(rejection)
            return
        self._set(start_time=self.pod.status.start_time or rfc3339(self._context.clock.now()))
        # After a restart of the node agent there is nothing to tell before the containers are found again.
        is_back = self.pod.status.phase == "Running"
        if not is_back:
            await self._report()
        # Containers of a sandbox that lives were prepared for; their restarts need neither the API nor the drivers.
        has_sandbox = await self._context.runtime.has_sandbox(self.pod.metadata.uid)
        if not (has_sandbox and self._context.claims.knows_claims_of(self.pod)):
            await self._prepare()
        cgroup = self._context.specs.pod_cgroup(self.pod)
        sandbox = await self._context.runtime.start_pod(self.pod, cgroup)
        self._set(pod_ip=self._context.host_ip)
        async with asyncio.TaskGroup() as sidecars:
            helpers: list[asyncio.Task[None]] = []
            try:
                if await self._run_init_containers(sandbox, sidecars, helpers):
                    self._set(is_initialized=True)
                    if not is_back:
                        await self._report()
                    await asyncio.gather(
                        *(self._keep(each, sandbox, self._main_restarts) for each in self.pod.spec.containers)
                    )
            finally:
                for helper in helpers:
                    helper.cancel()

    async def _reject(self, rejection: Rejection) -> None:
        self._set(is_finished=True, reason=rejection.reason, message=f"Pod was rejected: {rejection.message}")
        self._event(rejection.reason, rejection.message)
        self._context.count_rejection(rejection.reason)
        await self._report()

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
                self._event("FailedPrepareDynamicResources", text)
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
        self, sandbox: str, sidecars: asyncio.TaskGroup, helpers: list[asyncio.Task[None]]
    ) -> bool:
        """One after the other; sidecars only have to be started. False when one failed for good."""
        for container in self.pod.spec.init_containers:
            if container.restart_policy == "Always":
                started = asyncio.Event()
                helpers.append(sidecars.create_task(self._keep(container, sandbox, lambda ended: True, started)))
                await started.wait()
                continue
            before = next(
                (each for each in self.pod.status.init_container_statuses if each.name == container.name), None
            )
            if before is not None and before.state.terminated is not None and before.state.terminated.exit_code == 0:
                self._note(
                    container,
                    ContainerProgress(exit=Exit(0, reason="Completed"), started_at=before.state.terminated.started_at),
                )
                continue
            await self._keep(container, sandbox, self._init_restarts)
            ended = self._progress.containers[container.name].exit
            if ended is None or ended.code != 0:
                return False
        return True

    def _main_restarts(self, ended: Exit) -> bool:
        policy = self.pod.spec.restart_policy or "Always"
        return policy == "Always" or (policy == "OnFailure" and ended.code != 0)

    def _init_restarts(self, ended: Exit) -> bool:
        return ended.code != 0 and self.pod.spec.restart_policy != "Never"

    async def _keep(
        self, container: Container, sandbox: str, restarts: Callable[[Exit], bool], started: asyncio.Event | None = None
    ) -> None:
        """Run a container, again and again while its policy says so, slower each time it fails early."""
        found = await self._context.runtime.find_container(self.pod, container.name)
        attempt = found[1] if found else 0
        wait_s = RESTART_START_S
        while True:
            running = found[0] if found else await self._start(container, sandbox, attempt, restarts)
            found = None
            if running is None:
                return
            self._running[container.name] = running
            self._note(
                container,
                replace(
                    self._of(container),
                    waiting="",
                    message="",
                    container_id=running.id,
                    started_at=running.started_at,
                    exit=None,
                    restarts=attempt,
                ),
            )
            if started is not None:
                started.set()
            begun = self._context.clock.monotonic()
            await self._report()
            ended = await running.wait()
            self._running.pop(container.name, None)
            self._note(container, replace(self._of(container), exit=ended))
            if not restarts(ended):
                return
            await self._report()
            if self._context.clock.monotonic() - begun >= RESTART_RESET_S:
                wait_s = RESTART_START_S
            await self._wait_for_restart(container, wait_s)
            wait_s = min(wait_s * 2, RESTART_CAP_S) if attempt else wait_s
            attempt += 1

    async def _wait_for_restart(self, container: Container, wait_s: float) -> None:
        progress = self._of(container)
        metadata = self.pod.metadata
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
        if progress.restarts:
            self._note(container, waiting)
            await self._report()
            self._event("BackOff", f"Back-off restarting failed container {container.name} in pod {pod}")
            await self._context.clock.sleep(wait_s)
        else:
            self._note(container, replace(waiting, waiting="ContainerCreating", message=""))

    async def _start(
        self, container: Container, sandbox: str, attempt: int, restarts: Callable[[Exit], bool]
    ) -> RunningContainer | None:
        """Start the container, or show why it cannot be started and try again; None when it never will be."""
        wait_s = RESTART_START_S
        while True:
            try:
                spec = await self._context.specs.of(self.pod, container, attempt)
                return await self._context.runtime.start_container(self.pod, sandbox, spec)
            except ContainerError as error:
                self._event("Failed", f"Error: {error}")
                is_init = container in self.pod.spec.init_containers
                self._context.count_start_error("init_container" if is_init else "container", error.reason)
                failed = Exit(128, reason=error.reason, finished_at=rfc3339(self._context.clock.now()))
                if not restarts(failed) and error.reason == "StartError":
                    self._note(container, replace(self._of(container), waiting="", exit=failed))
                    return None
                self._note(
                    container, replace(self._of(container), waiting=error.reason, message=str(error), started_at=None)
                )
            await self._report()
            await self._pause_for(wait_s)
            wait_s = min(wait_s * 2, RESTART_CAP_S)

    async def _pause_for(self, seconds: float) -> None:
        self._changed.clear()
        await self._pause(seconds)

    # --- the end

    async def _end(self) -> None:
        """Stop what runs, give claims back, report the end, and let the API forget the pod if it is being deleted."""
        await self._stop_containers()
        if self._progress.containers and self.pod.status.phase not in ("Succeeded", "Failed"):
            await self._report()
        await self._unprepare()
        await self._context.runtime.stop_pod(self.pod.metadata.uid)
        self._context.admission.release(self.pod)
        self._set(is_finished=True)
        if self.pod.status.phase not in ("Succeeded", "Failed"):
            await self._report_until_done()
        if not self._stopping.is_set():
            await self._stopping.wait()
        if not self._is_deleted:
            await self._retry("delete pod", self._delete)

    async def _stop_containers(self) -> None:
        grace = self.pod.metadata.deletion_grace_period_seconds
        grace_s = float(
            grace if grace is not None else self.pod.spec.termination_grace_period_seconds or DEFAULT_GRACE_S
        )
        if self._is_deleted:
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

    async def _stop(self, name: str, grace_s: float) -> None:
        running = self._running[name]
        await running.stop(grace_s)
        ended = await running.wait()
        self._running.pop(name, None)
        progress = self._progress.containers.get(name, ContainerProgress())
        self._set(containers={**self._progress.containers, name: replace(progress, exit=ended)})

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

    async def _delete(self) -> None:
        metadata = self.pod.metadata
        await self._context.client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_seconds=0)

    # --- telling

    def _of(self, container: Container) -> ContainerProgress:
        return self._progress.containers.get(container.name, ContainerProgress())

    def _note(self, container: Container, progress: ContainerProgress) -> None:
        self._set(containers={**self._progress.containers, container.name: progress})

    def _set(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)

    def _take_device_health(self) -> None:
        """With every status: a pod that came after its devices' last change has their health, too."""
        containers = dict(self._progress.containers)
        for container in self.pod.spec.containers:
            progress = containers.get(container.name)
            if progress is not None:
                statuses = tuple(self._context.device_statuses(self.pod, container))
                containers[container.name] = replace(progress, resources_status=statuses)
        self._set(containers=containers)

    async def report(self) -> None:
        await self._report()

    async def _report(self) -> None:
        """Tell the API now, or as soon as it is there again: the pod does not wait for that."""
        try:
            await self._write_status()
        except (ApiError, ServerUnreachable) as error:
            log.info("pod %s: its status could not be written now: %s", self.pod.metadata.name, error)
            if self._late_report is None or self._late_report.done():
                self._late_report = asyncio.create_task(
                    self._report_until_done(), name=f"status of pod {self.pod.metadata.name}"
                )

    async def _report_until_done(self) -> None:
        await self._retry("status of pod", self._write_status)

    async def _write_status(self) -> None:
        """One after the other, and what was begun is waited for even if the pod is stopped meanwhile.

        Otherwise a write that is on its way could arrive after the last one, and a pod that has ended would look alive.
        """
        writing = asyncio.ensure_future(self._write_status_in_turn())
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(writing)

    async def _write_status_in_turn(self) -> None:
        async with self._writing:
            await self._write_status_now()

    async def _write_status_now(self) -> None:
        if self._is_deleted:
            return
        self._take_device_health()
        now = rfc3339(self._context.clock.now())
        document = status_document(self.pod, self._progress, now, self._reported.get("conditions", ()))
        if document == self._reported:
            return
        metadata = self.pod.metadata
        await self._context.client.patch(
            PODS,
            metadata.name,
            {"status": document},
            metadata.namespace,
            patch_type=STRATEGIC_PATCH,
            subresource="status",
            uid=metadata.uid,
        )
        self._reported = document

    async def _retry(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """Until it worked, or the pod is no longer there."""
        wait_s = RETRY_START_S
        while not self._is_deleted:
            try:
                await act()
                return
            except ApiError as error:
                if error.is_not_found or error.is_conflict:
                    return
                log.warning("%s %s: %s", what, self.pod.metadata.name, error)
            except ServerUnreachable as error:
                log.warning("%s %s: %s", what, self.pod.metadata.name, error)
            await self._context.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, UNPREPARE_RETRY_CAP_S)

    def _event(self, reason: str, message: str) -> None:
        self._context.recorder.event(reference_to(PODS, self.pod), WARNING, reason, message)
