"""Writes a pod's status to the API when it changes, and records events about the pod."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from dray.api.core import Container, Pod
from dray.client import (
    NORMAL,
    PODS,
    STRATEGIC_PATCH,
    WARNING,
    ApiError,
    Client,
    Recorder,
    ServerUnreachable,
    reference_to,
)
from dray.clock import rfc3339
from dray.kubelet.pod_status import (
    ContainerProgress,
    PodProgress,
    status_document,
)

log = logging.getLogger(__name__)

RETRY_START_S = 1.0
RETRY_CAP_S = 15.0

DeviceStatuses = Callable[[Pod, Container], Iterable[dict[str, Any]]]
"""Health of the devices of a container, as its status shows it."""


class PodStatusWriter:
    """Holds the progress of one pod and reports it to the API. `pod` is the newest version that the API has shown."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        pod: Pod,
        host_ip: str,
        devices: DeviceStatuses,
        qos_class: Callable[[Pod], str] = lambda pod: pod.status.qos_class,
    ) -> None:
        self.pod = pod
        self.progress = PodProgress(host_ip=host_ip)
        # The API no longer has the pod, so there is nothing left to report.
        self.is_deleted = False
        self._client = client
        self._recorder = recorder
        self._device_statuses = devices
        self._qos_class = qos_class
        # A server that holds the class of a pod fixed, as Kubernetes does, is asked once.
        self._may_change_class = True
        self._written: dict[str, Any] = {}
        self._writing = asyncio.Lock()
        self._late: asyncio.Task[None] | None = None

    # --- what is known

    def of(self, container: Container) -> ContainerProgress:
        return self.progress.containers.get(container.name, ContainerProgress())

    def note(self, container: str, progress: ContainerProgress) -> None:
        self.change(containers={**self.progress.containers, container: progress})

    def change(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)

    # --- events

    def warn(self, reason: str, message: str, container: Container | None = None) -> None:
        self._event(WARNING, reason, message, container)

    def tell_pod(self, reason: str, message: str) -> None:
        self._event(NORMAL, reason, message, None)

    def tell(self, reason: str, message: str, container: Container) -> None:
        self._event(NORMAL, reason, message, container)

    def _event(self, type_: str, reason: str, message: str, container: Container | None) -> None:
        reference = reference_to(PODS, self.pod)
        if container is not None:
            part = "initContainers" if container in self.pod.spec.init_containers else "containers"
            if container.name in {each.name for each in self.pod.spec.ephemeral_containers}:
                part = "ephemeralContainers"
            reference = structs.replace(reference, field_path=f"spec.{part}{{{container.name}}}")
        self._recorder.event(reference, type_, reason, message)

    # --- the status

    async def write(self) -> None:
        """Writes the status now, or as soon as the API can be reached again; the pod does not wait for it."""
        try:
            await self._write()
        except (ApiError, ServerUnreachable) as error:
            log.info("pod %s: its status could not be written now: %s", self.pod.metadata.name, error)
            if self._late is None or self._late.done():
                self._late = asyncio.create_task(self.write_for_sure(), name=f"status of pod {self.pod.metadata.name}")

    async def write_for_sure(self) -> None:
        await self.retry("status of pod", self._write)

    def close(self) -> None:
        if self._late is not None:
            self._late.cancel()

    async def _write(self) -> None:
        """One after the other, and what was begun is waited for even if the pod is stopped meanwhile.

        Otherwise a write that is on its way could arrive after the last one, and a pod that has ended would look alive.
        """
        writing = asyncio.ensure_future(self._write_in_turn())
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(writing)

    async def _write_in_turn(self) -> None:
        async with self._writing:
            await self._write_now()

    async def _write_now(self) -> None:
        if self.is_deleted:
            return
        self._take_device_health()
        now = rfc3339(self._client.clock.now())
        document = status_document(self.pod, self.progress, now, self._written.get("conditions", ()))
        if self._may_change_class and (applied := self._qos_class(self.pod)) != self.pod.status.qos_class:
            document["qosClass"] = applied
        if document == self._written:
            return
        try:
            await self._patch(document)
        except ApiError as error:
            if "qosClass" not in document or "status.qosClass" not in error.message:
                raise
            self._may_change_class = False
            del document["qosClass"]
            await self._patch(document)
        self._written = document

    async def _patch(self, status: dict[str, Any]) -> None:
        metadata = self.pod.metadata
        await self._client.patch(
            PODS,
            metadata.name,
            {"status": status},
            metadata.namespace,
            patch_type=STRATEGIC_PATCH,
            subresource="status",
            uid=metadata.uid,
        )

    def _take_device_health(self) -> None:
        """With every status: a pod that came after its devices' last change has their health, too."""
        containers = dict(self.progress.containers)
        for container in self.pod.spec.containers:
            progress = containers.get(container.name)
            if progress is not None:
                statuses = tuple(self._device_statuses(self.pod, container))
                containers[container.name] = replace(progress, resources_status=statuses)
        self.change(containers=containers)

    async def delete(self) -> None:
        """Deletes the pod from the API."""
        metadata = self.pod.metadata

        async def delete() -> None:
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid, grace_seconds=0)

        await self.retry("delete pod", delete)

    async def retry(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """Until it worked, or the pod is no longer there."""
        wait_s = RETRY_START_S
        while not self.is_deleted:
            try:
                await act()
                return
            except ApiError as error:
                if error.is_not_found or error.is_conflict:
                    return
                log.warning("%s %s: %s", what, self.pod.metadata.name, error)
            except ServerUnreachable as error:
                log.warning("%s %s: %s", what, self.pod.metadata.name, error)
            await self._client.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_CAP_S)
