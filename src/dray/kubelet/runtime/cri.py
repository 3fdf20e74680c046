"""Containers through a CRI runtime such as containerd: sandboxes, images, containers, and CDI names passed on."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from dray.accounting import CgroupValues
from dray.api.core import Pod
from dray.clock import rfc3339
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import ContainerSpec, Exit, RunningContainer
from dray.proto import cri_v1_pb2 as cri
from dray.proto import cri_v1_pb2_grpc

log = logging.getLogger(__name__)

LABEL_UID = "io.kubernetes.pod.uid"
LABEL_NAME = "io.kubernetes.pod.name"
LABEL_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_CONTAINER = "io.kubernetes.container.name"
POLL_S = 0.5
CALL_TIMEOUT_S = 120.0
PERIOD_US = 100_000


class CriContainer:
    """A container of the runtime; its end is found by asking."""

    def __init__(self, runtime: "CriRuntime", id_: str, started_at: str) -> None:
        self.id = id_
        self.started_at = started_at
        self._runtime = runtime

    async def wait(self) -> Exit:
        while True:
            try:
                status = await self._runtime.status(self.id)
            except grpc.aio.AioRpcError as error:
                # A runtime that restarts is away for a moment; its containers are not.
                log.info("status of container %s: %s", self.id, error.details())
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
        await self._runtime.stop_container(self.id, grace_s)


class CriRuntime:
    name = "cri"

    def __init__(self, socket: str, log_root: Path | None = None) -> None:
        self._log_root = log_root.absolute() if log_root is not None else None
        self._channel = grpc.aio.insecure_channel(f"unix:{Path(socket).absolute()}")
        self._runtime = cri_v1_pb2_grpc.RuntimeServiceStub(self._channel)
        self._images = cri_v1_pb2_grpc.ImageServiceStub(self._channel)
        # Sandboxes by pod, so that containers can be created with the same config.
        self._configs: dict[str, Any] = {}

    async def start_pod(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        config = sandbox_config(pod, cgroup)
        if self._log_root is not None:
            metadata = pod.metadata
            config.log_directory = str(self._log_root / f"{metadata.namespace}_{metadata.name}_{metadata.uid}")
        self._configs[pod.metadata.uid] = config
        for sandbox in await self._sandboxes(pod.metadata.uid):
            if sandbox.state == cri.SANDBOX_READY:
                return str(sandbox.id)
        response = await _call(
            "RunPodSandbox",
            self._runtime.RunPodSandbox(cri.RunPodSandboxRequest(config=config), timeout=CALL_TIMEOUT_S),
        )
        return str(response.pod_sandbox_id)

    async def has_sandbox(self, pod_uid: str) -> bool:
        return any(each.state == cri.SANDBOX_READY for each in await self._sandboxes(pod_uid))

    async def start_container(self, pod: Pod, sandbox: str, spec: ContainerSpec) -> RunningContainer:
        await self._pull(spec.image)
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=container_config(pod, spec), sandbox_config=self._configs[pod.metadata.uid]
        )
        created = await _call("CreateContainer", self._runtime.CreateContainer(request, timeout=CALL_TIMEOUT_S))
        start = cri.StartContainerRequest(container_id=created.container_id)
        await _call("StartContainer", self._runtime.StartContainer(start, timeout=CALL_TIMEOUT_S))
        status = await self.status(created.container_id)
        started_at = _time(status.started_at) if status is not None else None
        return CriContainer(self, created.container_id, started_at or rfc3339(datetime.now(UTC)))

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        wanted = {LABEL_UID: pod.metadata.uid, LABEL_CONTAINER: spec_name}
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=wanted))
        found = (await _call("ListContainers", self._runtime.ListContainers(request))).containers
        newest = max(found, key=lambda each: each.metadata.attempt, default=None)
        if newest is None:
            return None
        status = await self.status(newest.id)
        started_at = _time(status.started_at) if status is not None else None
        return CriContainer(self, newest.id, started_at or ""), newest.metadata.attempt

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

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        request = cri.StopContainerRequest(container_id=container_id, timeout=int(grace_s))
        await _call("StopContainer", self._runtime.StopContainer(request, timeout=grace_s + CALL_TIMEOUT_S))

    async def stop_pod(self, pod_uid: str) -> None:
        for sandbox in await self._sandboxes(pod_uid):
            stop = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
            await _call("StopPodSandbox", self._runtime.StopPodSandbox(stop, timeout=CALL_TIMEOUT_S))
            remove = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
            await _call("RemovePodSandbox", self._runtime.RemovePodSandbox(remove, timeout=CALL_TIMEOUT_S))
        self._configs.pop(pod_uid, None)

    async def known_pods(self) -> set[str]:
        request = cri.ListPodSandboxRequest()
        response = await _call("ListPodSandbox", self._runtime.ListPodSandbox(request, timeout=CALL_TIMEOUT_S))
        return {sandbox.metadata.uid for sandbox in response.items if sandbox.labels.get(LABEL_UID)}

    async def close(self) -> None:
        await self._channel.close()

    async def _sandboxes(self, pod_uid: str) -> list[Any]:
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector={LABEL_UID: pod_uid}))
        return list(
            (await _call("ListPodSandbox", self._runtime.ListPodSandbox(request, timeout=CALL_TIMEOUT_S))).items
        )

    async def _pull(self, image: str) -> None:
        spec = cri.ImageSpec(image=image, user_specified_image=image)
        known = await _call(
            "ImageStatus", self._images.ImageStatus(cri.ImageStatusRequest(image=spec), timeout=CALL_TIMEOUT_S)
        )
        if known.HasField("image") and known.image.id:
            return
        try:
            await self._images.PullImage(cri.PullImageRequest(image=spec), timeout=600)
        except grpc.aio.AioRpcError as error:
            raise ContainerError("ErrImagePull", f"image {image}: {error.details()}") from error


def sandbox_config(pod: Pod, cgroup: CgroupValues | None) -> Any:
    metadata = pod.metadata
    linux = cri.LinuxPodSandboxConfig()
    if cgroup is not None:
        linux.resources.CopyFrom(_resources(cgroup, None))
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=metadata.name, uid=metadata.uid, namespace=metadata.namespace),
        hostname=metadata.name[:63],
        labels={
            **metadata.labels,
            LABEL_UID: metadata.uid,
            LABEL_NAME: metadata.name,
            LABEL_NAMESPACE: metadata.namespace,
        },
        linux=linux,
    )


def container_config(pod: Pod, spec: ContainerSpec) -> Any:
    """The edits of CDI are the runtime's to apply: it gets the names, and the environment without them."""
    from_devices = {entry.partition("=")[0] for entry in spec.edits.env}
    labels = {
        LABEL_UID: pod.metadata.uid,
        LABEL_NAME: pod.metadata.name,
        LABEL_NAMESPACE: pod.metadata.namespace,
        LABEL_CONTAINER: spec.name,
    }
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[
            cri.KeyValue(key=key, value=value.encode()) for key, value in spec.env.items() if key not in from_devices
        ],
        labels=labels,
        log_path=f"{spec.name}/{spec.attempt}.log",
        CDI_devices=[cri.CDIDevice(name=name) for name in spec.cdi_device_ids],
    )
    if spec.cgroup is not None:
        config.linux.resources.CopyFrom(_resources(spec.cgroup, spec.oom_score_adj))
    return config


def _resources(values: CgroupValues, oom_score_adj: int | None) -> Any:
    return cri.LinuxContainerResources(
        cpu_period=PERIOD_US,
        cpu_quota=values.cpu_quota_us,
        cpu_shares=values.cpu_shares,
        memory_limit_in_bytes=values.memory_max or 0,
        oom_score_adj=oom_score_adj or 0,
        hugepage_limits=[cri.HugepageLimit(page_size=size, limit=limit) for size, limit in values.hugetlb.items()],
    )


def _time(nanoseconds: int) -> str | None:
    return rfc3339(datetime.fromtimestamp(nanoseconds / 1e9, UTC)) if nanoseconds else None


async def _call(what: str, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        reason = "CreateContainerError" if what == "CreateContainer" else "RunContainerError"
        raise ContainerError(reason, f"{what}: {error.details()}") from error
