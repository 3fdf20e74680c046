"""Containers as local processes: real commands, real environment, real exit codes, and as much isolation as `isolation.py` is asked for.

A container without a command is a placeholder that stays up. Each other one has a small program beside it that writes its output to
the log file (`log_writer.py`), and its exit code goes to a file, so containers outlive a restart of the agent and are found again.
A container is held back until its state file is written, and ends unbegun if the agent ends before.
"""

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
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.accounting import CgroupValues
from dray.api.cdi import Hook, Mount
from dray.api.core import Pod
from dray.api.cpuset import format_cpu_list, parse_cpu_list
from dray.atomic_files import make_folder, open_private, private_folder
from dray.clock import Clock, rfc3339
from dray.kubelet.errors import ContainerError
from dray.kubelet.log_files import LogRequest, LogTimesWriter, read_log
from dray.kubelet.runtime.cgroup import CgroupTree, Cpusets
from dray.kubelet.runtime.container_output import ContainerOutput, reap, until_ready
from dray.kubelet.runtime.interface import ContainerSpec, Exit, RunningContainer
from dray.kubelet.runtime.isolation import CLEAN_ENVIRONMENT, INIT, START, Isolation, uid_of
from dray.kubelet.runtime.log_writer import RotatingLog, full_files, times_path
from dray.kubelet.runtime.none import PlaceholderContainer, RuntimeWithoutImages

if TYPE_CHECKING:
    from dray.http.tunnel import ByteStream
    from dray.kubelet.runtime.process_terminals import HeldTerminal
    from dray.kubelet.streams.command_streams import CommandStreams

CPUS_PREFIX, MEMORY_NODES_PREFIX = "DRA_CPUSET_", "DRA_MEMSET_"
LIST_PREFIX = "DRA_LIST_"


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


log = logging.getLogger(__name__)

# Waits for a line before anything of the container begins. An agent that ends before it has written down what it started lets go of the
# other end of the pipe, and the container ends unbegun. The pipe takes the place of the errors, which need no descriptor of their own.
_HOLD = ("/bin/sh", "-c", 'read -r _ <&2 || exit 137; exec 2>&1; exec "$@"', "sh")
# Runs the command, leaves its exit code in a file, and passes the code on. The traps keep the shell alive until then.
_SUPERVISE = 'trap : TERM INT HUP; "$@"; code=$?; echo $code > "$DRAY_EXIT_FILE"; exit $code'
# Programs that stand between the supervising shell and an isolated command.
_BETWEEN = (str(START).encode(), INIT.encode())
_READS_WHAT_TO_BECOME = b"\0".join((os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(START)))
_BEFORE_THE_COMMAND = ("prestart", "createRuntime", "createContainer")
_NAMESPACES_WITHIN_S = 10
_LOG_WRITER = Path(__file__).parent / "log_writer.py"
# How long output may still be written after the end of a container: a process that left its group may write for ever.
_LAST_OUTPUT_WITHIN_S = 2
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Metadata files are mounted below this; other mount points must exist on the machine.
_OWN_MOUNT_ROOT = "/var/run/kubernetes.io"


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


class ProcessContainer:
    """A process group led by the supervising shell; ours, or found after a restart."""

    def __init__(
        self,
        id_: str,
        started_at: str,
        pid: int,
        folder: Path,
        clock: Clock,
        hooks: tuple[Hook, ...] = (),
        ended: Callable[[], None] = lambda: None,
        place: Mapping[str, Any] | None = None,
        terminal: HeldTerminal | None = None,
        output: ContainerOutput | None = None,
    ) -> None:
        """`place` is where further commands run, as the container's state file has it; `terminal` what people attach to, if it has one."""
        self.id = id_
        self.started_at = started_at
        self._pid = pid
        self._folder = folder
        self._clock = clock
        self._hooks = hooks
        self._ended = ended
        self._place = place
        self._terminal = terminal
        self._output = output
        self._exit: asyncio.Task[Exit] | None = None

    async def wait(self) -> Exit:
        if self._exit is None:
            self._exit = asyncio.create_task(self._watch(), name=f"container {self.id}")
        return await asyncio.shield(self._exit)

    async def stop(self, grace_s: float) -> None:
        ended = asyncio.ensure_future(self.wait())
        await _until_command_runs(self._pid)
        _signal_group(self._pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await asyncio.shield(ended)
            return
        _signal_group(self._pid, signal.SIGKILL)
        await ended

    async def execute(self, command: Sequence[str], streams: CommandStreams) -> int:
        from dray.kubelet.runtime.process_commands import ContainerPlace, run_command

        if self._place is None:
            raise ContainerError(
                "ExecError", "the container was started by an older agent; it runs no further commands"
            )
        # Before that its namespaces are not all there.
        await _until_command_runs(self._pid)
        return await run_command(ContainerPlace(self._pid, **self._place), command, streams)

    async def attach(self, streams: CommandStreams) -> None:
        """Output and errors of a container are in one file, so both come as output."""
        if self._terminal is not None and self._terminal.has_terminal:
            await self._terminal.attach(streams)
            return
        feeding = asyncio.ensure_future(self._terminal.feed(streams)) if self._terminal is not None else None
        log_file = Path(json.loads(_state_file(self._folder).read_text())["log"])
        ended = asyncio.ensure_future(self.wait())
        try:
            request = LogRequest(tail_lines=0, follow=True)
            async for chunk in read_log(log_file, request, lambda: not ended.done()):
                await streams.write_stdout(chunk)
        finally:
            ended.cancel()
            if feeding is not None:
                feeding.cancel()

    async def _all_written(self) -> None:
        if self._output is not None:
            await self._output.keep()
        if self._terminal is not None:
            await self._terminal.until_read()

    async def _watch(self) -> Exit:
        keeping = asyncio.create_task(self._all_written(), name=f"output of {self.id}")
        try:
            status = await _until_gone(self._pid, self._folder)
            _signal_group(self._pid, signal.SIGKILL)
            await asyncio.wait((keeping,), timeout=_LAST_OUTPUT_WITHIN_S)
        finally:
            keeping.cancel()
        self._ended()
        if self._terminal is not None:
            self._terminal.close()
        for hook in self._hooks:
            await _run_hook(hook, _oci_state(self.id, self._folder, "stopped"))
        code = _exit_code(self._folder)
        if code is None and status is not None:
            code = status
        finished = rfc3339(self._clock.now())
        if code is None:
            return Exit(137, signal=9, reason="Error", finished_at=finished)
        return Exit(
            code,
            signal=code - 128 if code > 128 else 0,
            reason="Completed" if code == 0 else "Error",
            finished_at=finished,
        )


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
        _exit_file(folder).unlink(missing_ok=True)
        hooks = [hook for hook in spec.edits.hooks if hook.hook_name in _BEFORE_THE_COMMAND]
        if self._isolation is None:
            # There are no namespaces but the agent's own.
            await _run_hooks(hooks, _oci_state(id_, folder, "creating", os.getpid()))
        cpuset_file = self._placed(pod, spec)
        terminal = self._terminal_of(spec)
        waiting = self._spawn(pod, spec, folder, terminal, cpuset_file)
        pid = waiting.pid
        state: dict[str, Any] = {
            "pid": pid,
            "start": _start_time(pid),
            "attempt": spec.attempt,
            "startedAt": started_at,
            "id": id_,
            "log": str(spec.log_path),
            "logWriter": [waiting.log_writer, _start_time(waiting.log_writer)],
            "place": self._place_of(pod, spec, cpuset_file),
        }
        try:
            self._confine(pod, spec, pid)
            _write_state(folder, state)
            waiting.begin()
            if self._isolation is not None:
                await _run_hooks_inside(waiting, hooks, _oci_state(id_, folder, "created"))
        except BaseException:
            waiting.end()
            _state_file(folder).unlink(missing_ok=True)
            raise
        waiting.become()
        poststart = [hook for hook in spec.edits.hooks if hook.hook_name == "poststart"]
        await _run_hooks(poststart, _oci_state(id_, folder, "running", pid))
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
            raise _start_error(f"CPUs {format_cpu_list(cpus) or 'of all containers'}: {error}") from error

    def _place_of(self, pod: Pod, spec: ContainerSpec, cpuset_file: str) -> Mapping[str, Any]:
        return {
            "environment": _environment(spec),
            "working_dir": spec.working_dir or "/",
            "uid": uid_of(pod.metadata.uid) if self._isolation is not None else None,
            "own_network": self._isolation is not None and not pod.spec.host_network,
            "cgroup_file": self._cgroups.members_file(pod.metadata.uid, spec.name) if self._cgroups is not None else "",
            "cpuset_file": cpuset_file,
            "cpus": [] if cpuset_file else sorted(_usable_cpus(spec)),
        }

    def _follow_log(self, path: Path) -> Callable[[], None]:
        """Note when lines are written; the answer ends that."""
        self._log_times.follow(path)
        return lambda: self._log_times.unfollow(path)

    def _spawn(
        self, pod: Pod, spec: ContainerSpec, folder: Path, terminal: HeldTerminal | None, cpuset_file: str
    ) -> _WaitingProcess:
        environment = _environment(spec)
        command = [*spec.command, *spec.args]
        program = shutil.which(command[0], path=environment["PATH"])
        if program is None:
            raise _start_error(f'exec: "{command[0]}": executable file not found in $PATH')
        if spec.working_dir and not Path(spec.working_dir).is_dir():
            raise _start_error(f'working directory "{spec.working_dir}" does not exist on this machine')
        command[0] = program
        start = _Start(command, environment, spec.working_dir or "/")
        mounts = _usable_mounts((*spec.edits.mounts, *_volume_mounts(spec)))
        if self._isolation is not None:
            _check_reachable(spec.edits.mounts)
            if spec.target_container:
                start = start.joined(pod, self._pid_of(pod, spec.target_container))
            else:
                start = start.isolated(self._isolation, pod, mounts)
            mounts = []
        argv = ["/bin/sh", "-c", _SUPERVISE, "sh", *start.command]
        if mounts:
            argv = _with_mounts(argv, mounts)
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
                    env={**start.environment, "DRAY_EXIT_FILE": str(_exit_file(folder))},
                    start_new_session=True,
                    pass_fds=[told] if start.told else [],
                    preexec_fn=_begin_with(set() if cpuset_file else _usable_cpus(spec), cpuset_file, terminal),
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                if terminal is not None:
                    terminal.close()
                raise _start_error(f"{spec.command[0]}: {error}") from error
            finally:
                if terminal is not None:
                    terminal.started()
            in_vain.pop_all()
            return _WaitingProcess(process.pid, let_go, tell, start.told, log_writer)

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
            raise _start_error(f"the log cannot be written: {error}") from error
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
            state["logWriter"] = [found, _start_time(found)]
            # The pod may have been removed just now.
            with contextlib.suppress(OSError):
                _write_state(folder, state)
            return found

        return ContainerOutput(state["pid"], writer if _start_time(writer) == begun else 0, begin)

    def _terminal_of(self, spec: ContainerSpec) -> HeldTerminal | None:
        if not spec.stdin and not spec.tty:
            return None
        from dray.kubelet.runtime.process_terminals import HeldTerminal

        output = RotatingLog(str(spec.log_path), self._log_limits.max_bytes, self._log_limits.max_files)
        return HeldTerminal(output, spec.name, tty=spec.tty, stdin_once=spec.stdin_once)

    def _pid_of(self, pod: Pod, container: str) -> int:
        try:
            state = json.loads(_state_file(self._root / pod.metadata.uid / "containers" / container).read_text())
            return int(state["pid"])
        except (OSError, ValueError, KeyError) as error:
            raise _start_error(f"container {container}, whose processes are to be seen, does not run") from error

    def _confine(self, pod: Pod, spec: ContainerSpec, pid: int) -> None:
        """Limit what can be limited without being a container engine."""
        if self._cgroups is not None:
            self._cgroups.apply_container(pod.metadata.uid, spec, pid)

    async def find_container(self, pod: Pod, spec_name: str) -> tuple[RunningContainer, int] | None:
        folder = self._root / pod.metadata.uid / "containers" / spec_name
        try:
            state = json.loads(_state_file(folder).read_text())
        except (OSError, ValueError):
            return None
        if _exit_code(folder) is None and _start_time(state["pid"]) != state["start"]:
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
        for state_file in folder.glob("containers/*/state.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(state_file.read_text())
                if _start_time(state["pid"]) == state["start"]:
                    _signal_group(state["pid"], signal.SIGKILL)
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
        for state_file in (self._root / pod_uid).glob("containers/*/state.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(state_file.read_text())
                if _start_time(state["pid"]) == state["start"]:
                    yield state["pid"]

    async def known_pods(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    async def close(self) -> None:
        self._log_times.close()


@dataclass(frozen=True, slots=True)
class _WaitingProcess:
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
        _signal_group(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    async def inner_pid(self) -> int:
        """The number of the process that will become the command. It exists once all namespaces do."""
        for _ in range(_NAMESPACES_WITHIN_S * 100):
            found = _inner_process(self.pid)
            if found is not None:
                return found
            if not _start_time(self.pid):
                break
            await asyncio.sleep(0.01)
        raise _start_error("the namespaces of the container cannot be made")


@dataclass(frozen=True, slots=True)
class _Start:
    """How a command is started. `told` is what it reads from the descriptor in its last argument."""

    command: list[str]
    environment: Mapping[str, str]
    working_dir: str
    told: bytes = b""

    def isolated(self, isolation: Isolation, pod: Pod, mounts: Sequence[Mount]) -> _Start:
        """The same with fewer rights: nothing of the container counts before it has given up root."""
        own_network = not pod.spec.host_network
        wanted = {
            "command": self.command,
            "env": self.environment,
            "workingDir": self.working_dir,
            "uid": uid_of(pod.metadata.uid),
            "ownNetwork": own_network,
            "joins": False,
            "mountRoot": _OWN_MOUNT_ROOT,
            "mounts": [
                {"host": each.host_path, "point": each.container_path, "readOnly": "ro" in each.options}
                for each in mounts
            ],
        }
        command = isolation.wrapped(own_network=own_network)
        return _Start(command, CLEAN_ENVIRONMENT, "/", json.dumps(wanted).encode())

    def joined(self, pod: Pod, pid: int) -> _Start:
        """The same among the processes of a container."""
        from dray.kubelet.runtime.process_commands import joined

        uid = uid_of(pod.metadata.uid)
        wanted = {"command": self.command, "env": self.environment, "workingDir": self.working_dir, "uid": uid}
        argv, told = joined(pid, wanted, own_network=not pod.spec.host_network)
        return _Start(argv, CLEAN_ENVIRONMENT, "/", told)


# --- processes -------------------------------------------------------------------------------------------------------


def _pipe(of_reader: contextlib.ExitStack, of_writer: contextlib.ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    of_reader.callback(os.close, reads)
    of_writer.callback(os.close, writes)
    return reads, writes


def _environment(spec: ContainerSpec) -> dict[str, str]:
    """What devices say comes last and wins."""
    of_devices = dict(entry.partition("=")[::2] for entry in spec.edits.env)
    environment = {"PATH": _DEFAULT_PATH, "HOME": "/", **spec.env, **of_devices}
    return environment | joined_lists(environment)


def _start_error(message: str) -> ContainerError:
    return ContainerError("StartError", message, final_after_s=0.0)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def _exit_file(folder: Path) -> Path:
    return folder / "exit-code"


def _state_file(folder: Path) -> Path:
    return folder / "state.json"


def _write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Whole or not at all: a container whose state cannot be read would run without anybody who looks after it."""
    path = _state_file(folder)
    unfinished = path.with_suffix(".new")
    with open_private(unfinished, "w") as file:
        file.write(json.dumps(state))
    unfinished.replace(path)


def _exit_code(folder: Path) -> int | None:
    try:
        return int(_exit_file(folder).read_text())
    except (OSError, ValueError):
        return None


def _start_time(pid: int) -> str:
    """What tells a process from a later one with the same number; empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _memory_by_session() -> dict[str, int]:
    """Bytes in memory of all processes, by session: each container is one."""
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[str, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            found[fields[3]] = found.get(fields[3], 0) + int(fields[21]) * page
    return found


async def _until_gone(pid: int, folder: Path) -> int | None:
    """Wait for the end of a process, child or not; a child is reaped, and its exit code is the answer."""
    try:
        state = json.loads(_state_file(folder).read_text())
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return None
    try:
        if _start_time(pid) == state["start"]:
            await until_ready(descriptor)
        return reap(pid)
    finally:
        os.close(descriptor)


async def _until_command_runs(pid: int) -> None:
    """Shells between the agent and the command let signals pass: one that comes before there is a command would be lost."""
    for _ in range(100):
        try:
            if _runs_a_command(pid):
                return
        except OSError:
            return
        await asyncio.sleep(0.01)


def _runs_a_command(pid: int) -> bool:
    """Whether the last shell below the supervising one has a child that is not a copy of itself."""
    shell = _command_line(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found = _command_line(int(child))
        if found in (b"", shell):
            continue
        if any(mark in found for mark in _BETWEEN):
            return _runs_a_command(int(child))
        return True
    return False


def _inner_process(pid: int) -> int | None:
    """The process below `pid` that reads what to become: the last of a chain of programs that become each other."""
    try:
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if _command_line(child).startswith(_READS_WHAT_TO_BECOME):
                return child
            below = _inner_process(child)
            if below is not None:
                return below
    except OSError:
        return None
    return None


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _remove_logs_before_the_last(spec: ContainerSpec) -> None:
    """Of the attempts before this one the last one's output can be asked for."""
    for path in spec.log_path.parent.glob("*.log"):
        if path.stem.isdecimal() and int(path.stem) < spec.attempt - 1:
            for each in (str(path), times_path(str(path)), *full_files(str(path))):
                Path(each).unlink(missing_ok=True)


def _usable_cpus(spec: ContainerSpec) -> set[int]:
    """Where there are no CPU sets a process binds itself, to CPUs that the agent may use."""
    return numbers_of_devices(spec, CPUS_PREFIX) & os.sched_getaffinity(0)


def _begin_with(cpus: set[int], cpuset_file: str, terminal: HeldTerminal | None) -> Callable[[], None] | None:
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


def _oci_state(id_: str, folder: Path, status: str, pid: int = 0) -> dict[str, Any]:
    """What a hook reads from its input, as the OCI runtime specification has it."""
    return {"ociVersion": "1.0.2", "id": id_, "status": status, "pid": pid, "bundle": str(folder)}


async def _run_hooks(hooks: Iterable[Hook], state: Mapping[str, Any]) -> None:
    for hook in hooks:
        await _run_hook(hook, state)


async def _run_hooks_inside(waiting: _WaitingProcess, hooks: Sequence[Hook], state: dict[str, Any]) -> None:
    """Runs the hooks while the process waits in its namespaces. They may change those, by the number in the state.

    Without hooks, too, the container has started only when its namespaces are there: further commands run in them.
    """
    await _run_hooks(hooks, state | {"pid": await waiting.inner_pid()})


async def _run_hook(hook: Hook, state: Mapping[str, Any]) -> None:
    """A CDI hook; one that fails before the start fails the container, later ones are only reported."""
    environment: Mapping[str, str] = dict(entry.partition("=")[::2] for entry in hook.env)
    problem = ""
    try:
        process = await asyncio.create_subprocess_exec(
            hook.path,
            *hook.args[1:],
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(hook.timeout or 30):
                _, said = await process.communicate(json.dumps(state).encode())
        except TimeoutError:
            process.kill()
            problem = "no end within its timeout"
        else:
            words = said.decode(errors="replace").strip()
            problem = (f"exit code {process.returncode}" + f": {words}" * bool(words)) * bool(process.returncode)
    except OSError as error:
        problem = str(error.strerror)
    if problem and hook.hook_name in ("poststart", "poststop"):
        log.warning("CDI hook %s (%s): %s", hook.path, hook.hook_name, problem)
    elif problem:
        raise _start_error(f"CDI hook {hook.path} ({hook.hook_name}): {problem}")


def _may_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("unshare") is not None


def _has_mount_point(path: str) -> bool:
    return os.path.normpath(path).startswith(f"{_OWN_MOUNT_ROOT}/") or Path(path).exists()


def _volume_mounts(spec: ContainerSpec) -> list[Mount]:
    """A volume that the container cannot do without and that cannot be mounted fails its start."""
    for each in spec.volumes:
        if each.is_required and not (_may_mount() and _has_mount_point(each.mount_path)):
            raise _start_error(
                f"volume {each.folder.name} cannot be mounted at {each.mount_path}: this needs root, unshare and a directory "
                f"that exists on this machine, or a path below {_OWN_MOUNT_ROOT}"
            )
    return [Mount(str(each.folder), each.mount_path, ("ro",)) for each in spec.volumes]


def _check_reachable(mounts: Iterable[Mount]) -> None:
    """Refuses a container that could not open what its devices put at its disposal.

    A pod with a user of its own sees the machine's files and may lack the permission to open them. A library that finds its
    daemon closed may go on without it: CUDA then ignores the limits of a share.
    """
    for mount in mounts:
        path = Path(mount.host_path)
        if mount.host_path == mount.container_path and not _is_open_to_all(path):
            raise _start_error(
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


def _usable_mounts(mounts: tuple[Mount, ...]) -> list[Mount]:
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
        make_folder(Path(_OWN_MOUNT_ROOT), 0o755)
    return usable


def _with_mounts(argv: list[str], usable: Sequence[Mount]) -> list[str]:
    """Bind mounts in a mount namespace of its own."""
    script = [f"mount -t tmpfs dray {_OWN_MOUNT_ROOT}"]
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
