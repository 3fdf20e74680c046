"""The border between a pod's worker and whatever runs its containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dray.accounting import CgroupValues
from dray.api.cdi import ContainerEdits
from dray.api.core import Pod

if TYPE_CHECKING:
    from dray.http.tunnel import ByteStream
    from dray.kubelet.streams.command_streams import CommandStreams


@dataclass(frozen=True, slots=True)
class VolumeFiles:
    """A folder or file of a volume, to be mounted. A container does not start without a required one."""

    folder: Path
    mount_path: str
    is_required: bool = False
    is_read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container, with everything resolved: nothing here refers to the API any more."""

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    working_dir: str
    env: Mapping[str, str]
    """As the pod describes it; what devices add is in `edits`."""
    cdi_device_ids: tuple[str, ...]
    edits: ContainerEdits
    log_path: Path
    attempt: int = 0
    volumes: tuple[VolumeFiles, ...] = ()
    cgroup: CgroupValues | None = None
    oom_score_adj: int | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    # Of an ephemeral container: the container whose processes it sees.
    target_container: str = ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class RunningContainer(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def started_at(self) -> str: ...

    async def wait(self) -> Exit:
        """The end of the container; may be asked for more than once."""
        ...

    async def stop(self, grace_s: float) -> None:
        """End it: politely, and after `grace_s` seconds for sure."""
        ...

    async def execute(self, command: Sequence[str], streams: CommandStreams) -> int:
        """Runs another command in the container; the exit code, or ContainerError."""
        ...

    async def attach(self, streams: CommandStreams) -> None:
        """Shows what the container writes from now on, until it ends."""
        ...


class Runtime(Protocol):
    name: str
    pulls_images: bool
    """Whether containers have a file system of their own, made from an image: then images are pulled, and all kinds of volumes served."""
    applies_cdi: bool
    """Whether CDI files are read behind this border; else containers come with the edits found in them."""
    writes_cri_logs: bool
    """Whether output is in CRI's format, or as containers wrote it."""

    async def version(self) -> str:
        """Name and version, as the Node tells them: `name://version`."""
        ...

    async def start_pod(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        """Get ready for the pod's containers; the answer names the sandbox. Idempotent."""
        ...

    async def has_sandbox(self, pod_uid: str) -> bool:
        """Whether `start_pod` was done for the pod, by an earlier life of this agent, and still holds."""
        ...

    async def sandbox_end(self, sandbox: str) -> None:
        """Returns when the sandbox no longer lives; never where nothing but the agent can end it."""
        ...

    async def pod_ip(self, sandbox: str) -> str:
        """The pod's own address; empty where it has the node's."""
        ...

    async def has_image(self, image: str) -> bool: ...

    async def pull_image(self, image: str) -> None: ...

    async def start_container(self, pod: Pod, sandbox: str, spec: ContainerSpec) -> RunningContainer: ...

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        """A container that an earlier life of this agent started, and its attempt."""
        ...

    async def stop_pod(self, pod_uid: str) -> None:
        """Remove everything of the pod; containers have been stopped before. Idempotent."""
        ...

    async def forward_ports(self, pod: Pod, client: ByteStream) -> None:
        """Serves the pod's ports to a client that speaks SPDY, until it goes."""
        ...

    async def memory_used(self) -> Mapping[str, int]:
        """Bytes that containers use now, by pod UID; pods of which the runtime does not know are left out."""
        ...

    async def known_pods(self) -> set[str]:
        """UIDs of pods that left traces, for cleaning up after a restart."""
        ...

    async def close(self) -> None: ...
