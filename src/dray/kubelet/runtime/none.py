"""A runtime that runs nothing: containers exist as status only. For simulating many nodes in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dray import __version__
from dray.accounting import CgroupValues
from dray.api.core import Pod
from dray.clock import Clock, rfc3339
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.interface import ContainerSpec, Exit, RunningContainer

if TYPE_CHECKING:
    from dray.http.tunnel import ByteStream
    from dray.kubelet.streams.command_streams import CommandStreams

NOTHING_RUNS = "this container exists as a status only: no process runs in it"


class PlaceholderContainer:
    """A container with nothing to run: it stays up until it is told to stop."""

    def __init__(self, id_: str, started_at: str, clock: Clock) -> None:
        self.id = id_
        self.started_at = started_at
        self._clock = clock
        self._ended = asyncio.Event()
        self._exit = Exit(0)

    async def wait(self) -> Exit:
        await self._ended.wait()
        return self._exit

    async def stop(self, grace_s: float) -> None:
        if not self._ended.is_set():
            self._exit = Exit(0, finished_at=rfc3339(self._clock.now()))
            self._ended.set()

    async def execute(self, command: Sequence[str], streams: CommandStreams) -> int:
        raise ContainerError("ExecError", NOTHING_RUNS)

    async def attach(self, streams: CommandStreams) -> None:
        raise ContainerError("AttachError", NOTHING_RUNS)


class RuntimeWithoutImages:
    """The common part of runtimes without images and networks."""

    name = ""
    pulls_images = False
    applies_cdi = False
    writes_cri_logs = False

    async def version(self) -> str:
        return f"{self.name}://{__version__}"

    async def sandbox_end(self, sandbox: str) -> None:
        await asyncio.Event().wait()

    async def pod_ip(self, sandbox: str) -> str:
        return ""

    async def has_image(self, image: str) -> bool:
        return True

    async def pull_image(self, image: str) -> None:
        return None

    async def memory_used(self) -> Mapping[str, int]:
        return {}


class NoRuntime(RuntimeWithoutImages):
    name = "none"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sandboxes: set[str] = set()

    async def start_pod(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        self._sandboxes.add(pod.metadata.uid)
        return pod.metadata.uid

    async def has_sandbox(self, pod_uid: str) -> bool:
        return pod_uid in self._sandboxes

    async def start_container(self, pod: Pod, sandbox: str, spec: ContainerSpec) -> RunningContainer:
        return PlaceholderContainer(
            f"none://{sandbox}/{spec.name}/{spec.attempt}", rfc3339(self._clock.now()), self._clock
        )

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        return None

    async def stop_pod(self, pod_uid: str) -> None:
        self._sandboxes.discard(pod_uid)

    async def forward_ports(self, pod: Pod, client: ByteStream) -> None:
        from dray.kubelet.streams.port_forward import PortForward

        async def refuse(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            raise OSError("the pod exists as a status only: no process listens in it")

        await PortForward(client, refuse).run()

    async def known_pods(self) -> set[str]:
        return set()

    async def close(self) -> None:
        return None
