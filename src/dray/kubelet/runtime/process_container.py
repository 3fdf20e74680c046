"""A container that runs as a group of local processes: its output on the way to the log, its state on disk, commands in it, how it is stopped, and how
it has ended.

A program of its own (`log_writer.py`) reads the pipe with the output of a container and writes the log file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.api.cdi import Hook
from dray.atomic_files import open_private
from dray.clock import Clock, rfc3339
from dray.kubelet.errors import ContainerError
from dray.kubelet.log_files import LogRequest, read_log
from dray.kubelet.runtime.cdi_hooks import oci_state, run_hook
from dray.kubelet.runtime.interface import Exit
from dray.kubelet.runtime.isolation import INIT, START

if TYPE_CHECKING:
    from dray.kubelet.runtime.process_terminals import HeldTerminal
    from dray.kubelet.streams.command_streams import CommandStreams

log = logging.getLogger(__name__)

ANOTHER_WRITER_AFTER_S = 0.2


class ContainerOutput:
    """Sees to it that the output of a running container is read.

    A writer that is killed, say by a machine that runs out of memory, gets a successor. Until then the agent's own end of the pipe keeps the
    container from a broken pipe: it waits, once the pipe is full.
    """

    def __init__(self, pid: int, writer: int, begin: Callable[[int], int]) -> None:
        """`pid` has the pipe as its output. `writer` is 0 if none runs; `begin` starts another one, which reads from the descriptor it is given."""
        self._writer = writer
        self._begin = begin
        self._reads = _reading_end(pid)

    async def keep(self) -> None:
        """Until all output is in the log."""
        try:
            while True:
                if self._writer:
                    await until_ended(self._writer)
                if self._reads == -1 or _is_at_end(self._reads):
                    return
                await self._begin_another()
        finally:
            self.close()

    async def _begin_another(self) -> None:
        # One that cannot start would end at once, again and again.
        await asyncio.sleep(ANOTHER_WRITER_AFTER_S)
        try:
            self._writer = self._begin(self._reads)
        except OSError as error:
            self._writer = 0
            log.warning("the output of a container is not read: %s", error)

    def close(self) -> None:
        if self._reads != -1:
            os.close(self._reads)
            self._reads = -1


def _reading_end(pid: int) -> int:
    """-1 if the process has ended: then nothing more is written."""
    try:
        # Not blocked by a process that ends just now. What is read by a writer blocks: it shares the descriptor's state.
        found = os.open(f"/proc/{pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    os.set_blocking(found, True)
    return found


def _is_at_end(reads: int) -> bool:
    """Whether nobody can write any more, and nothing is left to be read."""
    poll = select.poll()
    poll.register(reads, select.POLLIN)
    events = dict(poll.poll(0)).get(reads, 0)
    return bool(events & select.POLLHUP) and not events & select.POLLIN


async def until_ended(pid: int) -> None:
    """Returns at once if there is no such process."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            await until_ready(descriptor)
            reap(pid)
        finally:
            os.close(descriptor)


async def until_ready(descriptor: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)


def reap(pid: int) -> int | None:
    """The exit code of a child that has ended, as a shell would tell it; None for somebody else's child."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if found == 0:
        return None
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# How long output may still be written after the end of a container: a process that left its group may write for ever.
_LAST_OUTPUT_WITHIN_S = 2
# Programs that stand between the supervising shell and an isolated command.
_BETWEEN = (str(START).encode(), INIT.encode())


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
        signal_group(self._pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await asyncio.shield(ended)
            return
        signal_group(self._pid, signal.SIGKILL)
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
        log_file = Path(json.loads(state_file(self._folder).read_text())["log"])
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
            signal_group(self._pid, signal.SIGKILL)
            await asyncio.wait((keeping,), timeout=_LAST_OUTPUT_WITHIN_S)
        finally:
            keeping.cancel()
        self._ended()
        if self._terminal is not None:
            self._terminal.close()
        for hook in self._hooks:
            await run_hook(hook, oci_state(self.id, self._folder, "stopped"))
        code = exit_code(self._folder)
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


# --- state on disk -------------------------------------------------------------------------------------------------


def exit_file(folder: Path) -> Path:
    return folder / "exit-code"


def state_file(folder: Path) -> Path:
    return folder / "state.json"


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Whole or not at all: a container whose state cannot be read would run without anybody who looks after it."""
    path = state_file(folder)
    unfinished = path.with_suffix(".new")
    with open_private(unfinished, "w") as file:
        file.write(json.dumps(state))
    unfinished.replace(path)


def exit_code(folder: Path) -> int | None:
    try:
        return int(exit_file(folder).read_text())
    except (OSError, ValueError):
        return None


# --- processes -----------------------------------------------------------------------------------------------------


def start_time(pid: int) -> str:
    """What tells a process from a later one with the same number; empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


async def _until_gone(pid: int, folder: Path) -> int | None:
    """Wait for the end of a process, child or not; a child is reaped, and its exit code is the answer."""
    try:
        state = json.loads(state_file(folder).read_text())
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return None
    try:
        if start_time(pid) == state["start"]:
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
    shell = command_line(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found = command_line(int(child))
        if found in (b"", shell):
            continue
        if any(mark in found for mark in _BETWEEN):
            return _runs_a_command(int(child))
        return True
    return False


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
