"""The kubelet of one node: gives each pod a worker, finds drivers, keeps the Node object, and cleans up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dray.accounting import Enforcement
from dray.api.core import Container, Node, Pod
from dray.api.dra.pod_phase import is_finished
from dray.api.resource import Device
from dray.atomic_files import make_folder, private_folder
from dray.client import NODES, PODS, ApiError, Client, EventRecorder, Handler, Informer, ServerUnreachable
from dray.clock import Clock
from dray.features import FeatureGates
from dray.kubelet.admission import PodAdmission
from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.container_specs import CdiDirectories, ContainerSpecs
from dray.kubelet.device_health import DeviceHealthCache, DeviceKey, HealthFile
from dray.kubelet.drivers import CALL_TIMEOUT_S, DriverClient, Drivers
from dray.kubelet.errors import ContainerError, DriverError
from dray.kubelet.eviction import MemoryState, Threshold, is_short, next_eviction
from dray.kubelet.health_server import HealthServer
from dray.kubelet.log_files import remove_logs_of_deleted_pods
from dray.kubelet.log_server import (
    LogServer,
    LogSource,
)
from dray.kubelet.metrics import KubeletMetrics
from dray.kubelet.node import RENEW_EVERY_S, NodeDescription, NodeRegistration, available_memory
from dray.kubelet.node_slices import NodeSlices
from dray.kubelet.pod_resources import PodResourcesServer
from dray.kubelet.pod_worker import NodeContext, PodWorker
from dray.kubelet.prepare import PodClaims
from dray.kubelet.runtime.interface import Runtime
from dray.kubelet.serving_certificate import CertificateSubject, ServingCertificate
from dray.telemetry import Registry

if TYPE_CHECKING:
    from dray.kubelet.streams.node_streams import StreamTarget

log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 60.0
LOOK_AT_HEALTH_EVERY_S = 1.0
REGISTER_RETRY_CAP_S = 10.0
LOOK_AT_MEMORY_EVERY_S = 10.0
READ_NODE_AGAIN_S = 1.0
# As long the node says that it was short of memory, after it last was.
PRESSURE_LASTS_S = 300.0


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Where things are on this node, and how it behaves."""

    node: NodeDescription
    root_dir: Path
    cdi_dirs: tuple[Path, ...]
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    enforcement: Enforcement = Enforcement.KEP
    call_timeout_s: float = CALL_TIMEOUT_S
    # Whoever the cluster's CA vouches for as its API server may read logs; without a CA nobody can.
    cluster_ca: bytes = b""
    # Metrics and health on the loopback interface: 0 takes a free port, None serves none.
    healthz_port: int | None = None
    # Pods are driven out while less memory is left than this; None leaves that to the kernel.
    eviction: Threshold | None = None

    @property
    def registry_dir(self) -> Path:
        return self.root_dir / "plugins_registry"

    @property
    def log_root(self) -> Path:
        return self.root_dir / "logs"


class Kubelet:
    """`start()`, then it runs in the background until `stop()`."""

    def __init__(
        self, client: Client, options: KubeletOptions, runtime: Runtime, registry: Registry | None = None
    ) -> None:
        self._client = client
        self._clock: Clock = client.clock
        # gRPC takes the first part of a relative socket path for a host.
        options = replace(options, root_dir=options.root_dir.absolute())
        self._options = options
        self._runtime = runtime
        name = options.node.name
        self._registration = NodeRegistration(client, options.node)
        self._node: Node | None = None
        self._recorder = EventRecorder(client, "kubelet", host=name)
        self.metrics = KubeletMetrics(registry or Registry())
        self._health = DeviceHealthCache(self._clock, self._health_changed)
        self._health_file = HealthFile(options.root_dir)
        # A container may wait for an attribute that is published now.
        self._slices = NodeSlices(client, name, self._wake_all)
        self.drivers = Drivers(
            options.registry_dir,
            self._clock,
            self._slices.wipe,
            self.metrics.observe_call,
            on_registered=self._driver_came,
            on_deregistered=self._health.unfollow,
        )
        self._pods: Informer[Pod] = Informer(client, PODS, field_selector=f"spec.nodeName={name}")
        # Before that nobody knows which pods are gone.
        self._takes_pods = False
        # When the node last was short of memory.
        self._short_at: float | None = None
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._logs: LogServer | None = None
        self.pod_resources: PodResourcesServer | None = None
        self.health_port: HealthServer | None = None
        self.claims: PodClaims
        self._context: NodeContext

    @property
    def name(self) -> str:
        return self._options.node.name

    async def start(self) -> None:
        """Register the node, remove slices of an earlier life, then take pods."""
        options = self._options
        make_folder(options.root_dir, 0o700)
        # Drivers make what is inside: the folder is closed before the first of them comes.
        private_folder(options.root_dir / "plugins")
        private_folder(options.log_root)
        self.claims = PodClaims(
            self._client,
            self.drivers,
            CheckpointFile(options.root_dir),
            is_enabled=options.gates.enabled("DynamicResourceAllocation"),
            keeps_share_ids=options.gates.enabled("DRAConsumableCapacity"),
            may_skip_operations=options.gates.enabled("DRAOptionalNodeOperations"),
            call_timeout_s=options.call_timeout_s,
            count_skip=self.metrics.count_skip,
        )
        if options.gates.enabled("ResourceHealthStatus"):
            self._health.restore(self._health_file.read())
        self.metrics.claims_in_use = self.claims.claims_in_use
        self.metrics.plugins = self.drivers.plugins
        self._context = self._make_context()
        await self._name_runtime()
        await self._serve_logs()
        await self._serve_neighbours()
        self._node = await self._register()
        # At once, so that nothing is allocated before its driver is back; later if that does not work.
        if not await self._slices.wipe_once():
            self._run(self._slices.wipe(""), "slices")
        self._slices.start()
        self._run(self.drivers.run(), "drivers")
        self._pods.start()
        await asyncio.gather(self._slices.synced(), self._pods.synced())
        self._take_pods()
        self._run(self._beat(), "heartbeat")
        self._run(self._watch_leases(), "device health")
        self._run(self._reconcile_for_ever(), "claims")
        if options.eviction is not None:
            self._run(self._watch_memory(options.eviction), "memory")

    async def _register(self) -> Node:
        """However long it takes: a node agent may start before the API server, or while it is away."""
        wait_s = 1.0
        while True:
            try:
                node = await self._registration.register()
                await self._registration.renew()
                return node
            except (ApiError, ServerUnreachable) as error:
                if isinstance(error, ApiError) and not (error.is_transient or error.is_conflict):
                    raise
                log.warning("node %s cannot be registered now: %s", self.name, error)
            await self._clock.sleep(wait_s)
            wait_s = min(wait_s * 2, REGISTER_RETRY_CAP_S)

    async def _name_runtime(self) -> None:
        try:
            version = await self._runtime.version()
        except ContainerError as error:
            log.warning("node %s: the container runtime does not answer: %s", self.name, error)
            self._registration.problem = f"container runtime is down: {error}"
            return
        self._options = replace(self._options, node=replace(self._options.node, runtime=version))
        self._registration = NodeRegistration(self._client, self._options.node)

    async def _serve_logs(self) -> None:
        node = self._options.node
        if not self._options.cluster_ca:
            return
        serving = ServingCertificate(
            self._client, CertificateSubject(node.name, node.address), self._options.cluster_ca
        )
        source = LogSource(
            self._options.log_root,
            self._runtime.writes_cri_logs,
            self._is_written,
            self._waits_for,
            self._stream_target,
            self.metrics.registry.text,
        )
        self._logs = LogServer(source, serving.tls, node.address)
        await self._logs.start()
        self._run(serving.run(), "serving certificate")
        problem = self._registration.problem
        self._registration = NodeRegistration(self._client, replace(node, port=self._logs.port))
        self._registration.problem = problem

    async def _serve_neighbours(self) -> None:
        """Metrics, health and pod resources, for others on this machine; the node works without them, too."""
        self.pod_resources = PodResourcesServer(
            self._options.root_dir, lambda: [each.pod for each in self._workers.values()], self.claims.cache
        )
        self.health_port = HealthServer(
            self.metrics.registry.text, lambda: self.claims.problem, self._options.healthz_port or 0
        )
        if self._options.healthz_port is not None:
            await self._try_to_serve(self.health_port.start(), "metrics and health")
        await self._try_to_serve(self.pod_resources.start(), "pod resources")

    async def _try_to_serve(self, start: Awaitable[None], what: str) -> None:
        try:
            await start
        except (OSError, RuntimeError) as error:
            log.warning("node %s: %s are not served: %s", self.name, what, error)

    def _is_written(self, log_file: Path) -> bool:
        """Whether the container whose output this is runs, in this attempt."""
        uid = log_file.parent.parent.name.rsplit("_", 1)[-1]
        worker = self._workers.get(uid)
        newer = log_file.with_name(f"{int(log_file.stem) + 1}.log")
        return worker is not None and worker.runs(log_file.parent.name) and not newer.exists()

    def _waits_for(self, namespace: str, pod: str, container: str) -> str:
        """Why a container has not been started yet."""
        for worker in self._workers.values():
            if (worker.pod.metadata.namespace, worker.pod.metadata.name) == (namespace, pod):
                return worker.waits_for(container)
        return ""

    def _stream_target(self, namespace: str, name: str) -> StreamTarget | None:
        from dray.kubelet.streams.node_streams import StreamTarget

        for worker in self._workers.values():
            metadata = worker.pod.metadata
            if (metadata.namespace, metadata.name) == (namespace, name):
                return StreamTarget(worker.running, partial(self._runtime.forward_ports, worker.pod))
        return None

    def _make_context(self) -> NodeContext:
        options = self._options
        counts_claims = options.gates.enabled("DRANodeAllocatableResources")
        specs = ContainerSpecs(
            self._client,
            self.claims.cache,
            None if self._runtime.applies_cdi else CdiDirectories(options.cdi_dirs),
            options.log_root,
            options.root_dir / "volumes",
            self._slices.look_up_device,
            host_ip=options.node.address,
            allocatable=options.node.capacity,
            claims_enabled=options.gates.enabled("DynamicResourceAllocation"),
            device_attributes_enabled=options.gates.enabled("DRADownwardDeviceAttributes"),
            enforcement=options.enforcement,
            counts_claims=counts_claims,
            serves_volumes=self._runtime.pulls_images,
        )
        return NodeContext(
            client=self._client,
            clock=self._clock,
            recorder=self._recorder,
            admission=PodAdmission(self.name, options.node.capacity, counts_claims=counts_claims),
            claims=self.claims,
            runtime=self._runtime,
            specs=specs,
            log_root=options.log_root,
            host_ip=options.node.address,
            node=lambda: self._node,
            read_node=self._read_node,
            device_statuses=self._device_statuses,
            observe_operation=self.metrics.observe_operation,
            count_rejection=self.metrics.count_rejection,
            count_start_error=self.metrics.count_start_error,
        )

    async def stop(self) -> None:
        """Stop looking after pods. Containers and prepared claims stay as they are: a restart finds them."""
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pods.stop()
        await self._slices.stop()
        await self._recorder.stop()
        for server in (self._logs, self.pod_resources, self.health_port):
            if server is not None:
                await server.stop()
        await self._runtime.close()

    def _run(self, coroutine: object, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=f"{self.name} {name}")  # type: ignore[arg-type]
        task.add_done_callback(_report_failure)
        self._background.append(task)

    # --- pods

    def _take_pods(self) -> None:
        """Pods that were let in before a restart keep their place; only then are new ones asked whether they fit."""
        for pod in self._pods:
            if pod.status.start_time is not None and not is_finished(pod):
                self._context.admission.let_back_in(pod)
        self._pods.add_handler(Handler(on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_gone))
        self._takes_pods = True

    def _pod_added(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in self._workers:
            self._workers[uid].update(pod)
            return
        worker = PodWorker(self._context, pod)
        self._workers[uid] = worker
        self._tasks[uid] = asyncio.create_task(self._work(worker), name=f"{self.name} pod {pod.metadata.name}")

    def _pod_updated(self, old: Pod, pod: Pod) -> None:
        self._pod_added(pod)

    def _pod_gone(self, pod: Pod) -> None:
        worker = self._workers.get(pod.metadata.uid)
        if worker is not None:
            worker.remove()

    async def _work(self, worker: PodWorker) -> None:
        """Until the pod is done with; a worker that fails starts again and finds what it left behind."""
        uid = worker.pod.metadata.uid
        wait_s = 1.0
        try:
            while True:
                try:
                    await worker.run()
                    return
                except Exception:
                    log.exception("pod %s: its worker ended unexpectedly", worker.pod.metadata.name)
                await self._clock.sleep(wait_s)
                wait_s = min(wait_s * 2, RECONCILE_EVERY_S)
        finally:
            self._workers.pop(uid, None)
            self._tasks.pop(uid, None)

    # --- loops

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(RENEW_EVERY_S)
            try:
                await self._registration.renew()
                self._registration.problem = await self._runtime_problem()
                self._node = await self._registration.refreshed()
            except (ApiError, ServerUnreachable) as error:
                log.warning("node %s: heartbeat: %s", self.name, error)

    async def _read_node(self) -> Node | None:
        """The Node as it is now, however long the server is away; the one known last if somebody has deleted it."""
        while True:
            try:
                self._node = await self._client.find(NODES, self.name) or self._node
                return self._node
            except (ApiError, ServerUnreachable) as error:
                log.warning("node %s: its labels and taints cannot be read: %s", self.name, error)
            await self._clock.sleep(READ_NODE_AGAIN_S)

    async def _runtime_problem(self) -> str:
        try:
            await self._runtime.version()
        except ContainerError as error:
            return f"container runtime is down: {error}"
        return ""

    async def _watch_leases(self) -> None:
        """Drivers that fall silent: their devices' health is not known any more. What is known goes to disk."""
        while True:
            await self._clock.sleep(LOOK_AT_HEALTH_EVERY_S)
            self._health.expire()
            entries = self._health.to_save()
            if entries is not None:
                await asyncio.to_thread(self._health_file.write, entries)

    async def _reconcile_for_ever(self) -> None:
        while True:
            try:
                await self.reconcile()
            except Exception:
                log.exception("node %s: traces of pods that are gone could not be removed", self.name)
            await self._clock.sleep(RECONCILE_EVERY_S)

    async def _watch_memory(self, threshold: Threshold) -> None:
        while True:
            await self._clock.sleep(LOOK_AT_MEMORY_EVERY_S)
            try:
                await self.relieve(threshold)
            except (ContainerError, OSError) as error:
                log.warning("node %s: its memory cannot be looked at: %s", self.name, error)

    async def relieve(self, threshold: Threshold) -> None:
        """Drives one pod out if the node is short of memory. The next look sees whether that was enough."""
        state = await self._memory_state()
        if is_short(state, threshold):
            self._short_at = self._clock.monotonic()
        is_recent = self._short_at is not None and self._clock.monotonic() - self._short_at < PRESSURE_LASTS_S
        self._registration.has_memory_pressure = self._context.admission.has_memory_pressure = is_recent
        alive = {uid: worker for uid, worker in self._workers.items() if worker.is_alive}
        pods = [(worker.pod, self._context.specs.charges_of(worker.pod)) for worker in alive.values()]
        if eviction := next_eviction(pods, state, threshold):
            log.warning("pod %s is driven out: %s", eviction.pod.metadata.name, eviction.message)
            alive[eviction.pod.metadata.uid].evict(eviction.message)

    async def _memory_state(self) -> MemoryState:
        """What is left of the machine's memory, or of the node's capacity where that is less."""
        used = await self._runtime.memory_used()
        memory = self._options.node.capacity.get("memory")
        capacity = memory.value() if memory is not None else 0
        return MemoryState(capacity, min(available_memory(), capacity - sum(used.values())), used)

    def _driver_came(self, endpoint: DriverClient) -> None:
        """A driver that is back can be told what to give back, and pods that waited for it need not wait on."""
        self._health.follow(endpoint)
        self._wake_all()
        self._run(self.reconcile(), "claims")

    def _wake_all(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    async def reconcile(self) -> None:
        """Give back claims and traces of pods that are gone: force-deleted, or deleted while nobody looked."""
        if not self._takes_pods:
            return
        for uid in self.claims.cache.pod_uids() - set(self._workers):
            try:
                await self.claims.unprepare(uid)
            except DriverError as error:
                log.warning("claims of pod %s, which is gone: unprepare dynamic resources: %s", uid, error)
        for uid in await self._runtime.known_pods() - set(self._workers):
            await self._runtime.stop_pod(uid)
        for uid in self._context.specs.volumes.pod_uids() - set(self._workers):
            self._context.specs.forget(uid)
        known = {pod.metadata.uid for pod in self._pods} | set(self._workers)
        remove_logs_of_deleted_pods(self._options.log_root, known)

    # --- devices

    def find_device(self, driver: str, pool: str, name: str) -> Device | None:
        return self._slices.find_device(driver, pool, name)

    def _health_changed(self, devices: set[DeviceKey]) -> None:
        affected = {
            uid
            for state in self.claims.cache
            for driver, driver_state in state.drivers.items()
            if any((driver, device.pool, device.device) in devices for device in driver_state.devices)
            for uid in state.pod_uids
        }
        for uid in affected:
            worker = self._workers.get(uid)
            if worker is not None:
                self._background.append(asyncio.create_task(worker.report(), name=f"health of pod {uid}"))
        self._background = [task for task in self._background if not task.done()]

    def _device_statuses(self, pod: Pod, container: Container) -> list[dict[str, object]]:
        if not self._options.gates.enabled("ResourceHealthStatus"):
            return []
        return self._health.statuses(pod, container, self.claims.cache)


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("%s ended unexpectedly", task.get_name(), exc_info=task.exception())
