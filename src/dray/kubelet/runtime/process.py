"""Runs containers as local processes: real commands, real environment, real exit codes, and as much isolation as `isolation.py` is asked for.

A container without a command is a placeholder that stays up. For each other container, a small program writes its output to the log
file (`log_writer.py`), and its exit code goes to a file. So containers outlive a restart of the agent, and the agent finds them again.
A container is held back until its state file is written. If the agent ends before that, the container ends without having begun.

`process_start` prepares the process of a container, with its mounts and its `cdi_hooks`. `process_container` is the container that
runs, and `process_commands` runs further commands in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.accounting import CgroupValues
from dray.api.core import Pod
from dray.api.cpuset import format_cpu_list
from dray.atomic_files import open_private, private_folder
from dray.clock import Clock, rfc3339
from dray.kubelet.errors import start_error
from dray.kubelet.log_files import LogTimesWriter
from dray.kubelet.runtime.cdi_hooks import oci_state, run_hook
from dray.kubelet.runtime.cgroup import CgroupTree, Cpusets
from dray.kubelet.runtime.interface import ContainerSpec, RunningContainer
from dray.kubelet.runtime.isolation import CLEAN_ENVIRONMENT, Isolation, uid_of
from dray.kubelet.runtime.log_writer import RotatingLog, full_files, times_path
from dray.kubelet.runtime.none import PlaceholderContainer, RuntimeWithoutImages
from dray.kubelet.runtime.process_container import (
    ContainerOutput,
    ProcessContainer,
    exit_code,
    exit_file,
    signal_group,
    start_time,
    state_file,
    write_state,
)
from dray.kubelet.runtime.process_start import (
    CPUS_PREFIX,
    MEMORY_NODES_PREFIX,
    ProcessStart,
    WaitingProcess,
    begin_with,
    check_reachable,
    environment_of,
    numbers_of_devices,
    run_hooks_inside,
    usable_cpus,
    usable_mounts,
    volume_mounts,
    with_mounts,
)

if TYPE_CHECKING:
    from dray.http.tunnel import ByteStream
    from dray.kubelet.runtime.process_terminals import HeldTerminal


log = logging.getLogger(__name__)

# Waits for a line before anything of the container begins. An agent that ends before it has written down what it started lets go of the
# other end of the pipe, and the container ends unbegun. The pipe takes the place of the errors, which need no descriptor of their own.
_HOLD = ("/bin/sh", "-c", 'read -r _ <&2 || exit 137; exec 2>&1; exec "$@"', "sh")
# Runs the command, leaves its exit code in a file, and passes the code on. The traps keep the shell alive until then.
_SUPERVISE = 'trap : TERM INT HUP; "$@"; code=$?; echo $code > "$DRAY_EXIT_FILE"; exit $code'
_BEFORE_THE_COMMAND = ("prestart", "createRuntime", "createContainer")
_LOG_WRITER = Path(__file__).parent / "log_writer.py"


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How long the log of a container gets, as a kubelet's containerLogMaxSize and containerLogMaxFiles. A negative size is no limit."""

    max_bytes: int = 10 * 1024 * 1024
    max_files: int = 5

    def __post_init__(self) -> None:
        if self.max_bytes == 0:
            raise ValueError("the size of a log file must not be 0; a negative one is no limit")
        if self.max_files < 2:
            raise ValueError(f"{self.max_files} log files: must be at least 2")


class ProcessRuntime(RuntimeWithoutImages):
    name = "process"

    def __init__(
        self,
        root: Path,
        clock: Clock,
        cgroups: CgroupTree | None = None,
        isolation: Isolation | None = None,
        cpusets: Cpusets | None = None,
        log_limits: LogLimits = LogLimits(),
    ) -> None:
        # Containers are told paths, and have working directories of their own.
        self._root = root.absolute() / "pods"
        self._clock = clock
        self._cgroups = cgroups
        self._cpusets = cpusets
        self._isolation = isolation
        self._log_times = LogTimesWriter()
        self._log_limits = log_limits

    async def start_pod(self, pod: Pod, cgroup: CgroupValues | None) -> str:
        private_folder(self._root)
        folder = self._root / pod.metadata.uid
        private_folder(folder)
        with open_private(folder / "boot", "w") as file:
            file.write(_boot_id())
        if self._cgroups is not None and cgroup is not None:
            self._cgroups.apply_pod(pod.metadata.uid, cgroup)
        return str(folder)

    async def has_sandbox(self, pod_uid: str) -> bool:
        """A reboot ends every process, and with it CDI files and whatever else drivers had set up."""
        try:
            return (self._root / pod_uid / "boot").read_text() == _boot_id()
        except OSError:
            return False

    async def start_container(self, pod: Pod, sandbox: str, spec: ContainerSpec) -> RunningContainer:
        id_ = f"process://{pod.metadata.uid}/{spec.name}/{spec.attempt}"
        started_at = rfc3339(self._clock.now())
        private_folder(spec.log_path.parent)
        _remove_logs_before_the_last(spec)
        open_private(spec.log_path, "ab").close()
        if not spec.command:
            return PlaceholderContainer(id_, started_at, self._clock)
        folder = Path(sandbox) / "containers" / spec.name
        private_folder(folder)
        exit_file(folder).unlink(missing_ok=True)
        hooks = [hook for hook in spec.edits.hooks if hook.hook_name in _BEFORE_THE_COMMAND]
        if self._isolation is None:
            # There are no namespaces but the agent's own.
            for hook in hooks:
                await run_hook(hook, oci_state(id_, folder, "creating", os.getpid()))
        cpuset_file = self._placed(pod, spec)
        terminal = self._terminal_of(spec)
        waiting = self._spawn(pod, spec, folder, terminal, cpuset_file)
        pid = waiting.pid
        state: dict[str, Any] = {
            "pid": pid,
            "start": start_time(pid),
            "attempt": spec.attempt,
            "startedAt": started_at,
            "id": id_,
            "log": str(spec.log_path),
            "logWriter": [waiting.log_writer, start_time(waiting.log_writer)],
            "place": self._place_of(pod, spec, cpuset_file),
        }
        try:
            self._confine(pod, spec, pid)
            write_state(folder, state)
            waiting.begin()
            if self._isolation is not None:
                await run_hooks_inside(waiting, hooks, oci_state(id_, folder, "created"))
        except BaseException:
            waiting.end()
            state_file(folder).unlink(missing_ok=True)
            raise
        waiting.become()
        for hook in spec.edits.hooks:
            if hook.hook_name == "poststart":
                await run_hook(hook, oci_state(id_, folder, "running", pid))
        poststop = tuple(hook for hook in spec.edits.hooks if hook.hook_name == "poststop")
        ended = self._follow_log(spec.log_path)
        output = self._output_of(folder, state)
        return ProcessContainer(
            id_, started_at, pid, folder, self._clock, poststop, ended, state["place"], terminal, output
        )

    def _placed(self, pod: Pod, spec: ContainerSpec) -> str:
        """The file through which a process enters the container's CPU set; empty if there is none."""
        if self._cpusets is None:
            return ""
        cpus, nodes = numbers_of_devices(spec, CPUS_PREFIX), numbers_of_devices(spec, MEMORY_NODES_PREFIX)
        try:
            return self._cpusets.place(pod.metadata.uid, spec.name, cpus, nodes)
        except OSError as error:
            raise start_error(f"CPUs {format_cpu_list(cpus) or 'of all containers'}: {error}") from error

    def _place_of(self, pod: Pod, spec: ContainerSpec, cpuset_file: str) -> Mapping[str, Any]:
        return {
            "environment": environment_of(spec),
            "working_dir": spec.working_dir or "/",
            "uid": uid_of(pod.metadata.uid) if self._isolation is not None else None,
            "own_network": self._isolation is not None and not pod.spec.host_network,
            "cgroup_file": self._cgroups.members_file(pod.metadata.uid, spec.name) if self._cgroups is not None else "",
            "cpuset_file": cpuset_file,
            "cpus": [] if cpuset_file else sorted(usable_cpus(spec)),
        }

    def _follow_log(self, path: Path) -> Callable[[], None]:
        """Note when lines are written; the answer ends that."""
        self._log_times.follow(path)
        return lambda: self._log_times.unfollow(path)

    def _spawn(
        self, pod: Pod, spec: ContainerSpec, folder: Path, terminal: HeldTerminal | None, cpuset_file: str
    ) -> WaitingProcess:
        environment = environment_of(spec)
        command = [*spec.command, *spec.args]
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise start_error(f'exec: "{command[0]}": executable file not found in $PATH')
        if spec.working_dir and not Path(spec.working_dir).is_dir():
            raise start_error(f'working directory "{spec.working_dir}" does not exist on this machine')
        command[0] = program
        start = ProcessStart(command, environment, spec.working_dir or "/")
        mounts = usable_mounts((*spec.edits.mounts, *volume_mounts(spec))) if spec.edits.mounts or spec.volumes else []
        if self._isolation is not None:
            check_reachable(spec.edits.mounts)
            if spec.target_container:
                start = start.joined(pod, self._pid_of(pod, spec.target_container))
            else:
                start = start.isolated(self._isolation, pod, mounts)
            mounts = []
        argv = ["/bin/sh", "-c", _SUPERVISE, "sh", *start.command]
        if mounts:
            argv = with_mounts(argv, mounts)
        with contextlib.ExitStack() as in_vain, contextlib.ExitStack() as theirs:
            held, let_go = _pipe(theirs, in_vain)
            told, tell = _pipe(theirs, in_vain)
            output, log_writer = theirs.enter_context(self._output(spec, terminal))
            try:
                process = subprocess.Popen(
                    [*_HOLD, *argv, str(told)] if start.told else [*_HOLD, *argv],
                    stdin=terminal.theirs if terminal is not None else subprocess.DEVNULL,
                    stdout=output,
                    stderr=held,
                    cwd=start.working_dir,
                    env={**start.environment, "DRAY_EXIT_FILE": str(exit_file(folder))},
                    start_new_session=True,
                    pass_fds=[told] if start.told else [],
                    preexec_fn=begin_with(set() if cpuset_file else usable_cpus(spec), cpuset_file, terminal),
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                if terminal is not None:
                    terminal.close()
                raise start_error(f"{spec.command[0]}: {error}") from error
            finally:
                if terminal is not None:
                    terminal.started()
            in_vain.pop_all()
            return WaitingProcess(process.pid, let_go, tell, start.told, log_writer)

    @contextlib.contextmanager
    def _output(self, spec: ContainerSpec, terminal: HeldTerminal | None) -> Iterator[tuple[int, int]]:
        """The descriptor that a container writes to, and the process that reads it; none where the agent reads the container's terminal."""
        if terminal is not None and terminal.has_terminal:
            yield terminal.theirs, 0
            return
        reads, writes = os.pipe()
        try:
            yield writes, self._begin_log_writer(str(spec.log_path), reads)
        except OSError as error:
            raise start_error(f"the log cannot be written: {error}") from error
        finally:
            os.close(reads)
            os.close(writes)

    def _begin_log_writer(self, path: str, reads: int) -> int:
        limits = self._log_limits
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _LOG_WRITER, path, str(limits.max_bytes), str(limits.max_files)],
            stdin=reads,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            start_new_session=True,
        ).pid

    def _output_of(self, folder: Path, state: dict[str, Any]) -> ContainerOutput | None:
        """None where the agent reads a terminal, or where an older agent let the container write its log itself."""
        writer, begun = state.get("logWriter", (0, ""))
        if not writer:
            return None

        def begin(reads: int) -> int:
            found = self._begin_log_writer(state["log"], reads)
            state["logWriter"] = [found, start_time(found)]
            # The pod may have been removed just now.
            with contextlib.suppress(OSError):
                write_state(folder, state)
            return found

        return ContainerOutput(state["pid"], writer if start_time(writer) == begun else 0, begin)

    def _terminal_of(self, spec: ContainerSpec) -> HeldTerminal | None:
        if not spec.stdin and not spec.tty:
            return None
        from dray.kubelet.runtime.process_terminals import HeldTerminal

        output = RotatingLog(str(spec.log_path), self._log_limits.max_bytes, self._log_limits.max_files)
        return HeldTerminal(output, spec.name, tty=spec.tty, stdin_once=spec.stdin_once)

    def _pid_of(self, pod: Pod, container: str) -> int:
        try:
            state = json.loads(state_file(self._root / pod.metadata.uid / "containers" / container).read_text())
            return int(state["pid"])
        except (OSError, ValueError, KeyError) as error:
            raise start_error(f"container {container}, whose processes are to be seen, does not run") from error

    def _confine(self, pod: Pod, spec: ContainerSpec, pid: int) -> None:
        """Limit what can be limited without being a container engine."""
        if self._cgroups is not None:
            self._cgroups.apply_container(pod.metadata.uid, spec, pid)

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        folder = self._root / pod.metadata.uid / "containers" / spec_name
        try:
            state = json.loads(state_file(folder).read_text())
        except (OSError, ValueError):
            return None
        if exit_code(folder) is None and start_time(state["pid"]) != state["start"]:
            return None
        ended = self._follow_log(Path(state["log"])) if "log" in state else lambda: None
        container = ProcessContainer(
            state["id"],
            state["startedAt"],
            state["pid"],
            folder,
            self._clock,
            ended=ended,
            place=state.get("place"),
            output=self._output_of(folder, state),
        )
        return container, state["attempt"]

    async def stop_pod(self, pod_uid: str) -> None:
        folder = self._root / pod_uid
        for pid in self._processes_of(pod_uid):
            signal_group(pid, signal.SIGKILL)
        if self._cgroups is not None:
            self._cgroups.remove_pod(pod_uid)
        if self._cpusets is not None and self._cpusets is not self._cgroups:
            self._cpusets.remove_pod(pod_uid)
        shutil.rmtree(folder, ignore_errors=True)

    async def forward_ports(self, pod: Pod, client: ByteStream) -> None:
        from dray.kubelet.runtime.process_commands import connect_to_port
        from dray.kubelet.streams.port_forward import PortForward

        async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            """Each container has a network of its own: the first one where somebody listens is it."""
            problem = OSError("no container of the pod runs")
            for pid in self._processes_of(pod.metadata.uid):
                try:
                    return await connect_to_port(pid, port)
                except OSError as error:
                    problem = error
            raise problem

        await PortForward(client, connect).run()

    async def memory_used(self) -> Mapping[str, int]:
        """By the pod's cgroup; without cgroups by what the processes of its containers have in memory."""
        used: dict[str, int] = {}
        by_session: Mapping[str, int] | None = None
        for uid in await self.known_pods():
            found = self._cgroups.memory_of(uid) if self._cgroups is not None else None
            if found is None:
                if by_session is None:
                    by_session = await asyncio.to_thread(_memory_by_session)
                found = sum(by_session.get(str(pid), 0) for pid in self._processes_of(uid))
            used[uid] = found
        return used

    def _processes_of(self, pod_uid: str) -> Iterator[int]:
        for path in (self._root / pod_uid).glob("containers/*/state.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(path.read_text())
                if start_time(state["pid"]) == state["start"]:
                    yield state["pid"]

    async def known_pods(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    async def close(self) -> None:
        self._log_times.close()


def _pipe(of_reader: contextlib.ExitStack, of_writer: contextlib.ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    of_reader.callback(os.close, reads)
    of_writer.callback(os.close, writes)
    return reads, writes


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def _memory_by_session() -> dict[str, int]:
    """Bytes in memory of all processes, by session: each container is one."""
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[str, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            found[fields[3]] = found.get(fields[3], 0) + int(fields[21]) * page
    return found


def _remove_logs_before_the_last(spec: ContainerSpec) -> None:
    """Of the attempts before this one the last one's output can be asked for."""
    for path in spec.log_path.parent.glob("*.log"):
        if path.stem.isdecimal() and int(path.stem) < spec.attempt - 1:
            for each in (str(path), times_path(str(path)), *full_files(str(path))):
                Path(each).unlink(missing_ok=True)
