"""Waits for the end of processes, our children or not, and reaps those that are."""

import asyncio
import contextlib
import os


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
