"""How the process of a container is started: its mounts, its environment, its CPUs, and the namespaces in which it waits to become the command."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import stat
import sys
import termios
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.api.cdi import Hook, Mount
from dray.api.core import Pod
from dray.api.cpuset import parse_cpu_list
from dray.atomic_files import make_folder
from dray.kubelet.errors import start_error
from dray.kubelet.runtime.cdi_hooks import run_hook
from dray.kubelet.runtime.interface import ContainerSpec
from dray.kubelet.runtime.isolation import CLEAN_ENVIRONMENT, START, Isolation, uid_of
from dray.kubelet.runtime.process_container import command_line, signal_group, start_time

if TYPE_CHECKING:
    from dray.kubelet.runtime.process_terminals import HeldTerminal

log = logging.getLogger(__name__)

# Metadata files are mounted below this; other mount points must exist on the machine.
OWN_MOUNT_ROOT = "/var/run/kubernetes.io"


# --- mounts: which of them change something and can be made, and the command that makes them -------------------------


def volume_mounts(spec: ContainerSpec) -> list[Mount]:
    """A volume that the container cannot do without and that cannot be mounted fails its start."""
    for each in spec.volumes:
        if each.is_required and not (_may_mount() and _has_mount_point(each.mount_path)):
            raise start_error(
                f"volume {each.folder.name} cannot be mounted at {each.mount_path}: this needs root, unshare and a directory "
                f"that exists on this machine, or a path below {OWN_MOUNT_ROOT}"
            )
    return [Mount(str(each.folder), each.mount_path, ("ro",)) for each in spec.volumes]


def check_reachable(mounts: Iterable[Mount]) -> None:
    """Refuses a container that could not open what its devices put at its disposal.

    A pod with a user of its own sees the machine's files and may lack the permission to open them. A library that finds its
    daemon closed may go on without it: CUDA then ignores the limits of a share.
    """
    for mount in mounts:
        path = Path(mount.host_path)
        if mount.host_path == mount.container_path and not _is_open_to_all(path):
            raise start_error(
                f"a device needs {path}, which a pod with a user of its own cannot open; "
                "start the node agent with --isolation none"
            )


def _is_open_to_all(path: Path) -> bool:
    try:
        modes = [each.stat().st_mode for each in (path, *path.parents)]
    except OSError:
        return False
    may_read = bool(modes[0] & stat.S_IROTH) and (not stat.S_ISDIR(modes[0]) or bool(modes[0] & stat.S_IXOTH))
    return may_read and all(mode & stat.S_IXOTH for mode in modes[1:])


def usable_mounts(mounts: tuple[Mount, ...]) -> list[Mount]:
    """The mounts that change something and whose mount point exists or can be made."""
    # A process has the machine's files already: binding a path to itself would change nothing.
    mounts = tuple(mount for mount in mounts if mount.host_path != mount.container_path)
    usable = [mount for mount in mounts if _has_mount_point(mount.container_path)] if _may_mount() else []
    if len(usable) < len(mounts):
        log.info(
            "mounts %s are left out: they need root, unshare and an existing mount point",
            [mount.container_path for mount in mounts if mount not in usable],
        )
    if usable:
        make_folder(Path(OWN_MOUNT_ROOT), 0o755)
    return usable


def with_mounts(argv: list[str], usable: Sequence[Mount]) -> list[str]:
    """Bind mounts in a mount namespace of its own."""
    script = [f"mount -t tmpfs dray {OWN_MOUNT_ROOT}"]
    arguments: list[str] = []
    for mount in usable:
        arguments += [mount.host_path, mount.container_path]
        host, point = f"${{{len(arguments) - 1}}}", f"${{{len(arguments)}}}"
        make = f'if [ -d "{host}" ]; then mkdir -p "{point}"; else mkdir -p "$(dirname "{point}")"; [ -e "{point}" ] || : > "{point}"; fi'
        bind = f'mount --bind "{host}" "{point}"'
        read_only = f' && mount -o remount,ro,bind "{point}"' if "ro" in mount.options else ""
        script.append(f"{make}; {bind}{read_only}")
    script.append(f'shift {len(arguments)}; exec "$@"')
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "/bin/sh",
        "-ec",
        "\n".join(script),
        "sh",
        *arguments,
        *argv,
    ]


def _may_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("unshare") is not None


def _has_mount_point(path: str) -> bool:
    return os.path.normpath(path).startswith(f"{OWN_MOUNT_ROOT}/") or Path(path).exists()


# --- what devices give ----------------------------------------------------------------------------------------------

CPUS_PREFIX, MEMORY_NODES_PREFIX = "DRA_CPUSET_", "DRA_MEMSET_"
LIST_PREFIX = "DRA_LIST_"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READS_WHAT_TO_BECOME = b"\0".join((os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(START)))
_NAMESPACES_WITHIN_S = 10


def numbers_of_devices(spec: ContainerSpec, prefix: str) -> set[int]:
    """The CPUs or memory nodes that claims of the container were given; empty means that it may use all.

    Only devices count: a variable in the pod's own spec gives nothing.
    """
    numbers: set[int] = set()
    for entry in spec.edits.env:
        name, _, value = entry.partition("=")
        if name.startswith(prefix):
            with contextlib.suppress(ValueError):
                numbers |= parse_cpu_list(value)
    return numbers


def usable_cpus(spec: ContainerSpec) -> set[int]:
    """Where the machine has no CPU sets, a process binds itself to these: its devices' CPUs that the agent may use."""
    return numbers_of_devices(spec, CPUS_PREFIX) & os.sched_getaffinity(0)


def joined_lists(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to which several devices add: `DRA_LIST_NAME__KEY=value` of each device make `NAME=value,value`.

    A process sees every device of the machine. Lists such as CUDA_VISIBLE_DEVICES narrow that to the devices of its claims.
    """
    lists: dict[str, list[str]] = {}
    for variable, value in sorted(environment.items()):
        name, separator, _ = variable.removeprefix(LIST_PREFIX).partition("__")
        if variable.startswith(LIST_PREFIX) and separator and name:
            lists.setdefault(name, []).append(value)
    return {name: ",".join(values) for name, values in lists.items()}


def environment_of(spec: ContainerSpec) -> dict[str, str]:
    """The variables of the container's spec and of its devices; a device's variable replaces one of the same name."""
    of_devices = dict(entry.partition("=")[::2] for entry in spec.edits.env)
    environment = {"PATH": _DEFAULT_PATH, "HOME": "/", **spec.env, **of_devices}
    return environment | joined_lists(environment)


# --- the process ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """The program to start and its environment. The program reads `told` from the descriptor in its last argument."""

    command: list[str]
    environment: Mapping[str, str]
    working_dir: str
    told: bytes = b""

    def isolated(self, isolation: Isolation, pod: Pod, mounts: Sequence[Mount]) -> ProcessStart:
        """The same with fewer rights: the environment and the folder of the container apply only after the process has given up root."""
        own_network = not pod.spec.host_network
        wanted = {
            "command": self.command,
            "env": self.environment,
            "workingDir": self.working_dir,
            "uid": uid_of(pod.metadata.uid),
            "ownNetwork": own_network,
            "joins": False,
            "mountRoot": OWN_MOUNT_ROOT,
            "mounts": [
                {"host": each.host_path, "point": each.container_path, "readOnly": "ro" in each.options}
                for each in mounts
            ],
        }
        command = isolation.wrapped(own_network=own_network)
        return ProcessStart(command, CLEAN_ENVIRONMENT, "/", json.dumps(wanted).encode())

    def joined(self, pod: Pod, pid: int) -> ProcessStart:
        """The same among the processes of a container."""
        from dray.kubelet.runtime.process_commands import joined

        uid = uid_of(pod.metadata.uid)
        wanted = {"command": self.command, "env": self.environment, "workingDir": self.working_dir, "uid": uid}
        argv, told = joined(pid, wanted, own_network=not pod.spec.host_network)
        return ProcessStart(argv, CLEAN_ENVIRONMENT, "/", told)


@dataclass(frozen=True, slots=True)
class WaitingProcess:
    """A process that is held back until it may begin, and then waits in its namespaces until it is told what to become; without isolation
    it does not wait there."""

    pid: int
    let_go: int
    tell: int
    told: bytes
    log_writer: int

    def begin(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.let_go, b"\n")

    def become(self) -> None:
        os.close(self.let_go)
        with open(self.tell, "wb") as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(self.told)

    def end(self) -> None:
        os.close(self.let_go)
        os.close(self.tell)
        signal_group(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    async def inner_pid(self) -> int:
        """The number of the process that will become the command. It exists once all namespaces do."""
        for _ in range(_NAMESPACES_WITHIN_S * 100):
            found = _inner_process(self.pid)
            if found is not None:
                return found
            if not start_time(self.pid):
                break
            await asyncio.sleep(0.01)
        raise start_error("the namespaces of the container cannot be made")


def _inner_process(pid: int) -> int | None:
    """The process below `pid` that reads what to become: the last of a chain of programs that become each other."""
    try:
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if command_line(child).startswith(_READS_WHAT_TO_BECOME):
                return child
            below = _inner_process(child)
            if below is not None:
                return below
    except OSError:
        return None
    return None


async def run_hooks_inside(waiting: WaitingProcess, hooks: Sequence[Hook], state: dict[str, Any]) -> None:
    """Runs the hooks while the process waits in its namespaces. They may change those, by the number in the state.

    Without hooks, too, the container has started only when its namespaces are there: further commands run in them.
    """
    pid = await waiting.inner_pid()
    for hook in hooks:
        await run_hook(hook, state | {"pid": pid})


def begin_with(cpus: set[int], cpuset_file: str, terminal: HeldTerminal | None) -> Callable[[], None] | None:
    """What the new process does before it becomes the command: go to its CPUs, and take its terminal."""
    has_terminal = terminal is not None and terminal.has_terminal

    def begin() -> None:
        if cpuset_file:
            Path(cpuset_file).write_text("0")
        if cpus:
            os.sched_setaffinity(0, cpus)
        if has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return begin if cpus or cpuset_file or has_terminal else None
