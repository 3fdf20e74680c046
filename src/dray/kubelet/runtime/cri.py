"""Containers through a CRI runtime such as containerd: sandboxes, images, containers, and CDI names passed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import msgspec

from dray.accounting import CgroupValues
from dray.api.core import Pod
from dray.atomic_files import private_folder
from dray.clock import rfc3339
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.cgroup import MOUNT, CgroupTree, is_version_2
from dray.kubelet.runtime.cri_security import check_user, check_users_of_pod, container_security, sandbox_security
from dray.kubelet.runtime.interface import ContainerSpec, Exit, RunningContainer
from dray.proto import cri_v1_pb2 as cri
from dray.proto import cri_v1_pb2_grpc

if TYPE_CHECKING:
    from dray.http.tunnel import ByteStream
    from dray.kubelet.streams.command_streams import CommandStreams

LABEL_UID = "io.kubernetes.pod.uid"
LABEL_NAME = "io.kubernetes.pod.name"
LABEL_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_CONTAINER = "io.kubernetes.container.name"
ANNOTATION_HASH = "io.kubernetes.container.hash"
ANNOTATION_RESTARTS = "io.kubernetes.container.restartCount"
ANNOTATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
ANNOTATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
ANNOTATION_GRACE = "io.kubernetes.pod.terminationGracePeriod"
PERIOD_US = 100_000


def pod_labels(pod: Pod) -> dict[str, str]:
    metadata = pod.metadata
    return {LABEL_UID: metadata.uid, LABEL_NAME: metadata.name, LABEL_NAMESPACE: metadata.namespace}


def container_hash(name: str, image: str) -> str:
    """The kubelet's fingerprint of a container, by which one that takes over the node knows that the container need not restart.

    It is FNV-1a, in 32 bits, of the way in which Go prints the bytes of a JSON document.
    """
    printed = " ".join(map(str, msgspec.json.encode({"image": image, "name": name})))
    value = 0x811C9DC5
    for byte in f"([]uint8)[{printed}]".encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:x}"


def container_annotations(pod: Pod, spec: ContainerSpec) -> dict[str, str]:
    """What a kubelet that takes over the node wants to know of a container."""
    found = {
        ANNOTATION_HASH: container_hash(spec.name, spec.image),
        ANNOTATION_RESTARTS: str(spec.attempt),
        ANNOTATION_MESSAGE_PATH: spec.termination_message_path,
        ANNOTATION_MESSAGE_POLICY: spec.termination_message_policy,
    }
    grace_s = pod.spec.termination_grace_period_seconds
    return found if grace_s is None else found | {ANNOTATION_GRACE: str(grace_s)}


def sandbox_config(
    pod: Pod, cgroup: CgroupValues | None, attempt: int = 0, log_directory: str = "", cgroup_parent: str = ""
) -> Any:
    """`attempt` tells a sandbox from the ones the same pod had before: runtimes refuse a name that was used before."""
    metadata = pod.metadata
    linux = cri.LinuxPodSandboxConfig(
        cgroup_parent=cgroup_parent, security_context=sandbox_security(pod, namespaces(pod))
    )
    if cgroup is not None:
        linux.resources.CopyFrom(resources(cgroup, None))
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=metadata.name, uid=metadata.uid, namespace=metadata.namespace, attempt=attempt
        ),
        # A pod in the node's network has the node's name, too.
        hostname="" if pod.spec.host_network else metadata.name[:63],
        log_directory=log_directory,
        labels={**metadata.labels, **pod_labels(pod)},
        annotations=metadata.annotations,
        linux=linux,
    )


def container_config(pod: Pod, spec: ContainerSpec) -> Any:
    """The runtime itself applies the CDI edits: it gets the CDI names, and an environment without the edits."""
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in spec.env.items()],
        labels={**pod_labels(pod), LABEL_CONTAINER: spec.name},
        annotations=container_annotations(pod, spec),
        log_path=f"{spec.name}/{spec.attempt}.log",
        mounts=[
            cri.Mount(container_path=each.mount_path, host_path=str(each.folder), readonly=each.is_read_only)
            for each in spec.volumes
        ],
        CDI_devices=[cri.CDIDevice(name=name) for name in spec.cdi_device_ids],
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=cri.LinuxContainerConfig(security_context=container_security(pod, spec.name, namespaces(pod))),
    )
    if spec.cgroup is not None:
        config.linux.resources.CopyFrom(resources(spec.cgroup, spec.oom_score_adj))
    return config


def namespaces(pod: Pod) -> Any:
    spec = pod.spec
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        pid=cri.NODE if spec.host_pid else cri.CONTAINER,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
    )


def resources(values: CgroupValues, oom_score_adj: int | None, mount: Path = MOUNT) -> Any:
    # Memory that the kernel leaves to the container under pressure; CRI has no field of its own for it. Runtimes refuse
    # containers with such values on a machine with cgroup v1.
    unified = {"memory.min": str(values.memory_min)} if values.memory_min and is_version_2(mount) else {}
    return cri.LinuxContainerResources(
        cpu_period=PERIOD_US,
        cpu_quota=values.cpu_quota_us,
        cpu_shares=values.cpu_shares,
        memory_limit_in_bytes=values.memory_max or 0,
        oom_score_adj=oom_score_adj or 0,
        unified=unified,
        hugepage_limits=[cri.HugepageLimit(page_size=size, limit=limit) for size, limit in values.hugetlb.items()],
    )


log = logging.getLogger(__name__)

POLL_S = 0.5
SANDBOX_POLL_S = 1.0
CALL_TIMEOUT_S = 120.0
PULL_TIMEOUT_S = 600.0


class CriContainer:
    """A container of the runtime; its end is found by asking."""

    def __init__(self, runtime: CriRuntime, id_: str, started_at: str) -> None:
        self.id = f"{runtime.scheme}://{id_}"
        self.started_at = started_at
        self._id = id_
        self._runtime = runtime

    async def wait(self) -> Exit:
        while True:
            try:
                status = await self._runtime.status(self._id)
            except grpc.aio.AioRpcError as error:
                # A runtime that restarts is away for a moment; its containers are not.
                log.info("status of container %s: %s", self._id, error.details())
                await asyncio.sleep(POLL_S)
                continue
            if status is None:
                return Exit(137, reason="ContainerStatusUnknown")
            if status.state == cri.CONTAINER_EXITED:
                return Exit(
                    status.exit_code,
                    reason=status.reason or ("Completed" if status.exit_code == 0 else "Error"),
                    finished_at=_time(status.finished_at),
                )
            await asyncio.sleep(POLL_S)

    async def stop(self, grace_s: float) -> None:
        await self._runtime.stop_container(self._id, grace_s)

    async def run_command(self, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        return await self._runtime.run_command(self._id, command, timeout_s)

    async def execute(self, command: Sequence[str], streams: CommandStreams) -> int:
        from dray.kubelet.runtime.cri_streams import run_command

        return await run_command(await self._runtime.exec_url(self._id, command, streams), streams)

    async def attach(self, streams: CommandStreams) -> None:
        from dray.kubelet.runtime.cri_streams import run_command

        await run_command(await self._runtime.attach_url(self._id, streams), streams)


class CriRuntime:
    name = "cri"
    pulls_images = True
    applies_cdi = True
    writes_cri_logs = True

    def __init__(self, socket: str, log_root: Path | None = None, cgroups: CgroupTree | None = None) -> None:
        self._cgroups = cgroups
        self._log_root = log_root.absolute() if log_root is not None else None
        self._channel = grpc.aio.insecure_channel(f"unix:{Path(socket).absolute()}")
        self._runtime = cri_v1_pb2_grpc.RuntimeServiceStub(self._channel)
        self._images = cri_v1_pb2_grpc.ImageServiceStub(self._channel)
        # Sandboxes by pod, so that containers can be created with the same config.
        self._configs: dict[str, Any] = {}
        # What container IDs begin with: the runtime's own name, once it was asked.
        self.scheme = "cri"
        # The next look at all sandboxes, which everybody waits for who watches one.
        self._look: asyncio.Task[set[str] | None] | None = None

    async def version(self) -> str:
        answer = await _call("Version", self._runtime.Version(cri.VersionRequest(), timeout=CALL_TIMEOUT_S))
        self.scheme = answer.runtime_name or self.scheme
        return f"{self.scheme}://{answer.runtime_version}"

    # --- pods

    async def start_pod(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        check_users_of_pod(pod)
        await self.version()
        found = await self._sandboxes(pod.metadata.uid)
        ready = next((each for each in found if each.state == cri.SANDBOX_READY), None)
        attempt = max((each.metadata.attempt for each in found), default=-1) + 1
        parent = await self._apply_cgroup(pod, cgroup)
        attempt = ready.metadata.attempt if ready else attempt
        config = sandbox_config(pod, cgroup, attempt, self._log_directory(pod), parent)
        self._configs[pod.metadata.uid] = config
        if ready is not None:
            return str(ready.id)
        request = cri.RunPodSandboxRequest(config=config)
        response = await _call("RunPodSandbox", self._runtime.RunPodSandbox(request, timeout=CALL_TIMEOUT_S))
        return str(response.pod_sandbox_id)

    async def _apply_cgroup(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        """Makes the pod's group below that of its QoS class, and says which it is.

        Only for a runtime that takes groups by their path: one with the systemd driver wants slices, and makes groups of its own.
        """
        if self._cgroups is None or cgroup is None or not await self._takes_paths():
            return ""
        self._cgroups.apply_pod(pod.metadata.uid, cgroup)
        return self._cgroups.path_of(pod.metadata.uid)

    async def _takes_paths(self) -> bool:
        try:
            answer = await self._runtime.RuntimeConfig(cri.RuntimeConfigRequest(), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.info("the runtime does not say how it takes cgroups: %s", error.details())
            return False
        return bool(answer.linux.cgroup_driver == cri.CGROUPFS)

    def _log_directory(self, pod: Pod) -> str:
        if self._log_root is None:
            return ""
        metadata = pod.metadata
        return str(self._log_root / f"{metadata.namespace}_{metadata.name}_{metadata.uid}")

    async def has_sandbox(self, pod_uid: str) -> bool:
        return any(each.state == cri.SANDBOX_READY for each in await self._sandboxes(pod_uid))

    async def sandbox_end(self, sandbox: str) -> None:
        while True:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_later())
            ready = await asyncio.shield(self._look)
            # A runtime that restarts is away for a moment; its sandboxes are not.
            if ready is not None and sandbox not in ready:
                return

    async def _look_later(self) -> set[str] | None:
        """The sandboxes that are ready a moment from now; None if the runtime does not say."""
        await asyncio.sleep(SANDBOX_POLL_S)
        try:
            answer = await self._runtime.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.info("list of sandboxes: %s", error.details())
            return None
        return {each.id for each in answer.items if each.state == cri.SANDBOX_READY}

    async def pod_ip(self, sandbox: str) -> str:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        answer = await _call("PodSandboxStatus", self._runtime.PodSandboxStatus(request, timeout=CALL_TIMEOUT_S))
        return str(answer.status.network.ip)

    async def stop_pod(self, pod_uid: str) -> None:
        for sandbox in await self._sandboxes(pod_uid):
            stop = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
            await _call("StopPodSandbox", self._runtime.StopPodSandbox(stop, timeout=CALL_TIMEOUT_S))
            remove = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
            await _call("RemovePodSandbox", self._runtime.RemovePodSandbox(remove, timeout=CALL_TIMEOUT_S))
        self._configs.pop(pod_uid, None)
        if self._cgroups is not None:
            self._cgroups.remove_pod(pod_uid)

    async def memory_used(self) -> Mapping[str, int]:
        request = cri.ListContainerStatsRequest()
        answer = await _call("ListContainerStats", self._runtime.ListContainerStats(request, timeout=CALL_TIMEOUT_S))
        used: dict[str, int] = {}
        for each in answer.stats:
            uid = each.attributes.labels.get(LABEL_UID)
            if uid:
                used[uid] = used.get(uid, 0) + each.memory.working_set_bytes.value
        return used

    async def known_pods(self) -> set[str]:
        request = cri.ListPodSandboxRequest()
        response = await _call("ListPodSandbox", self._runtime.ListPodSandbox(request, timeout=CALL_TIMEOUT_S))
        return {sandbox.metadata.uid for sandbox in response.items if sandbox.labels.get(LABEL_UID)}

    async def _sandboxes(self, pod_uid: str) -> list[Any]:
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector={LABEL_UID: pod_uid}))
        answer = await _call("ListPodSandbox", self._runtime.ListPodSandbox(request, timeout=CALL_TIMEOUT_S))
        return list(answer.items)

    # --- images

    async def has_image(self, image: str) -> bool:
        return bool((await self._image(image)).id)

    async def _image(self, image: str) -> Any:
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image, user_specified_image=image))
        known = await _call("ImageStatus", self._images.ImageStatus(request, timeout=CALL_TIMEOUT_S))
        return known.image

    async def pull_image(self, image: str) -> None:
        spec = cri.ImageSpec(image=image, user_specified_image=image)
        try:
            await self._images.PullImage(cri.PullImageRequest(image=spec), timeout=PULL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            text = f'failed to pull image "{image}": {error.details()}'
            raise ContainerError("ErrImagePull", text) from error

    # --- containers

    async def start_container(self, pod: Pod, sandbox: str, spec: ContainerSpec) -> RunningContainer:
        config = self._configs[pod.metadata.uid]
        image = await self._image(spec.image)
        check_user(pod, spec.name, image.uid.value if image.HasField("uid") else None, image.username)
        if config.log_directory:
            # The runtime makes the file, and nobody but us its directory.
            private_folder(Path(config.log_directory, spec.name))
        own = container_config(pod, spec)
        if spec.target_container:
            options = own.linux.security_context.namespace_options
            options.pid, options.target_id = cri.TARGET, await self._id_of(pod, spec.target_container)
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=own, sandbox_config=config)
        created = await _call("CreateContainer", self._runtime.CreateContainer(request, timeout=CALL_TIMEOUT_S))
        start = cri.StartContainerRequest(container_id=created.container_id)
        try:
            await _call("StartContainer", self._runtime.StartContainer(start, timeout=CALL_TIMEOUT_S))
        except ContainerError:
            await self._remove(created.container_id)
            raise
        status = await self.status(created.container_id)
        started_at = _time(status.started_at) if status is not None else None
        return CriContainer(self, created.container_id, started_at or rfc3339(datetime.now(UTC)))

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        wanted = {LABEL_UID: pod.metadata.uid, LABEL_CONTAINER: spec_name}
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=wanted))
        answer = await _call("ListContainers", self._runtime.ListContainers(request, timeout=CALL_TIMEOUT_S))
        newest = max(answer.containers, key=lambda each: each.metadata.attempt, default=None)
        if newest is None:
            return None
        if newest.state == cri.CONTAINER_CREATED:
            # An earlier life of this agent ended between creating and starting it: its name is needed again.
            await self._remove(newest.id)
            return await self.find_container(pod, spec_name)
        status = await self.status(newest.id)
        started_at = _time(status.started_at) if status is not None else None
        return CriContainer(self, newest.id, started_at or ""), newest.metadata.attempt

    async def _id_of(self, pod: Pod, name: str) -> str:
        wanted = {LABEL_UID: pod.metadata.uid, LABEL_CONTAINER: name}
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=wanted))
        answer = await _call("ListContainers", self._runtime.ListContainers(request, timeout=CALL_TIMEOUT_S))
        running = [each.id for each in answer.containers if each.state == cri.CONTAINER_RUNNING]
        if not running:
            raise ContainerError(
                "CreateContainerError", f"container {name}, whose processes are to be seen, does not run"
            )
        return str(running[0])

    async def status(self, container_id: str) -> Any | None:
        try:
            response = await self._runtime.ContainerStatus(
                cri.ContainerStatusRequest(container_id=container_id), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return response.status

    async def run_command(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        request = cri.ExecSyncRequest(container_id=container_id, cmd=command, timeout=max(1, int(timeout_s)))
        answer = await _call("ExecSync", self._runtime.ExecSync(request, timeout=timeout_s + CALL_TIMEOUT_S))
        return answer.exit_code, (answer.stdout + answer.stderr).decode(errors="replace")

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        request = cri.StopContainerRequest(container_id=container_id, timeout=int(grace_s))
        await _call("StopContainer", self._runtime.StopContainer(request, timeout=grace_s + CALL_TIMEOUT_S))

    # --- streams

    async def exec_url(self, container_id: str, command: Sequence[str], streams: CommandStreams) -> str:
        wants = streams.options
        request = cri.ExecRequest(
            container_id=container_id,
            cmd=command,
            tty=wants.tty,
            stdin=wants.stdin,
            stdout=wants.stdout,
            stderr=wants.stderr,
        )
        return str((await _call("Exec", self._runtime.Exec(request, timeout=CALL_TIMEOUT_S))).url)

    async def attach_url(self, container_id: str, streams: CommandStreams) -> str:
        wants = streams.options
        request = cri.AttachRequest(
            container_id=container_id, tty=wants.tty, stdin=wants.stdin, stdout=wants.stdout, stderr=wants.stderr
        )
        return str((await _call("Attach", self._runtime.Attach(request, timeout=CALL_TIMEOUT_S))).url)

    async def forward_ports(self, pod: Pod, client: ByteStream) -> None:
        from dray.kubelet.runtime.cri_streams import forward_ports

        ready = [each for each in await self._sandboxes(pod.metadata.uid) if each.state == cri.SANDBOX_READY]
        if not ready:
            raise ContainerError("PortForwardError", "the pod has no sandbox that runs")
        request = cri.PortForwardRequest(pod_sandbox_id=ready[0].id)
        answer = await _call("PortForward", self._runtime.PortForward(request, timeout=CALL_TIMEOUT_S))
        await forward_ports(answer.url, client)

    async def _remove(self, container_id: str) -> None:
        request = cri.RemoveContainerRequest(container_id=container_id)
        await _call("RemoveContainer", self._runtime.RemoveContainer(request, timeout=CALL_TIMEOUT_S))

    async def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        await self._channel.close()


def _time(nanoseconds: int) -> str | None:
    return rfc3339(datetime.fromtimestamp(nanoseconds / 1e9, UTC)) if nanoseconds else None


async def _call(what: str, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        reason = "CreateContainerError" if what == "CreateContainer" else "RunContainerError"
        raise ContainerError(reason, f"{what}: {error.details()}") from error
