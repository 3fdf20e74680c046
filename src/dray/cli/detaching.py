"""Leaves a command running in the background once it is ready, and tells how it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from dray.atomic_files import open_private

# Of a child that does not become ready, the parent shows this much of the log.
SHOWN_LOG_LINES = 20


def fork_detached(log: Path) -> DetachedChild | Readiness:
    """Forks. The parent gets the child to wait for; the child gets what tells the parent that it is ready.

    The child has a session of its own, reads nothing, and prints to the log.
    """
    reader, writer = os.pipe()
    with open_private(log, "wb"):
        pass
    process = os.fork()
    if process:
        os.close(writer)
        return DetachedChild(process, reader, log)
    os.close(reader)
    os.setsid()
    _redirect(log)
    return Readiness(writer)


def _redirect(log: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with open(os.devnull, "rb") as nothing, open_private(log, "ab") as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


class Readiness:
    """In the child: hands the announcement to the parent, which prints it and ends."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __call__(self, announcement: str) -> None:
        click.echo(announcement)
        # A parent that was killed does not matter.
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._pipe, "w") as pipe:
            pipe.write(announcement)


class DetachedChild:
    """In the parent."""

    def __init__(self, process: int, pipe: int, log: Path) -> None:
        self._process = process
        self._pipe = pipe
        self._log = log

    def wait_until_ready(self) -> None:
        """Prints what the child announces, or its log and its exit code where it ended before."""
        try:
            with os.fdopen(self._pipe) as pipe:
                announcement = pipe.read()
        except KeyboardInterrupt:
            os.kill(self._process, signal.SIGTERM)
            os.waitpid(self._process, 0)
            raise
        if not announcement:
            self._report_failure()
        click.echo(announcement)

    def _report_failure(self) -> NoReturn:
        _, status = os.waitpid(self._process, 0)
        lines = self._log.read_text(errors="replace").splitlines()
        click.echo("\n".join(lines[-SHOWN_LOG_LINES:]), err=True)
        sys.exit(os.waitstatus_to_exitcode(status) or 1)
