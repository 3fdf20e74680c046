"""The pipe with the output of a container, and the program that writes what comes out of it to the log file (`log_writer.py`)."""

import asyncio
import contextlib
import logging
import os
import select
from collections.abc import Callable

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
