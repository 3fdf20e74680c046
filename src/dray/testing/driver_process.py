"""A driver as a process of its own: any command, a Python file or module, or one of those that come with Dray."""

import asyncio
import contextlib
import importlib.machinery
import os
import shlex
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from dray.driver.example import DRIVERS, DRIVERS_OF_HARDWARE
from dray.testing.logged_exceptions import LoggedException, exceptions_in

PLACEHOLDERS = ("{kubeconfig}", "{node}", "{root}", "{cdi}")


class UnknownTarget(ValueError):
    """Nothing that could be started."""


@dataclass(frozen=True, slots=True)
class Target:
    """How a driver is started. Without placeholders in its command it gets the options that `dray.driver.run` takes."""

    command: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Target":
        if text in DRIVERS or text in DRIVERS_OF_HARDWARE:
            return cls((sys.executable, "-m", "dray", "driver", text))
        words = tuple(shlex.split(text))
        if not words:
            raise UnknownTarget("nothing to start")
        if words[0].endswith(".py"):
            return cls((sys.executable, str(_existing(words[0])), *words[1:]))
        if shutil.which(words[0]) is not None:
            return cls(words)
        if "/" in words[0]:
            raise UnknownTarget(f"{_existing(words[0])} is not a program: its permissions do not let it be executed")
        if len(words) == 1 and _is_module(text):
            return cls((sys.executable, "-m", text))
        raise UnknownTarget(f"{words[0]}: no driver of Dray, no Python module, and no command on the PATH")

    def arguments(self, kubeconfig: Path, node: str, root: Path, cdi: Path) -> list[str]:
        values = dict(zip(PLACEHOLDERS, (str(kubeconfig), node, str(root), str(cdi)), strict=True))
        if any(placeholder in word for word in self.command for placeholder in PLACEHOLDERS):
            return [_filled(word, values) for word in self.command]
        options = [
            "--kubeconfig",
            str(kubeconfig),
            "--node-name",
            node,
            "--kubelet-root",
            str(root),
            "--cdi-dir",
            str(cdi),
        ]
        return [*self.command, *options]


def _existing(name: str) -> Path:
    path = Path(name).absolute()
    if not path.is_file():
        raise UnknownTarget(f"{name}: {'is a directory' if path.is_dir() else 'no such file'}")
    return path


def _is_module(name: str) -> bool:
    """Whether `python -m` finds its first part; looking further would import it."""
    first = name.partition(".")[0]
    return first.isidentifier() and importlib.machinery.PathFinder.find_spec(first, ["", *sys.path]) is not None


def _filled(word: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


class DriverProcess:
    def __init__(self, target: Target, log: Path, kubeconfig: Path, node: str, root: Path, cdi: Path) -> None:
        self._arguments = target.arguments(kubeconfig, node, root, cdi)
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "NODE_NAME": node, "POD_UID": ""}
        self._log = log
        # Where the output of this life begins in the log.
        self._life = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as output:
            self._life = output.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    async def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself; a process that has just crashed is known to have only after a moment."""
        if self._process is None:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self.has_ended

    async def kill(self) -> None:
        await self._end(signal.SIGKILL, 10.0)

    async def terminate(self, timeout_s: float) -> int | None:
        """Ask it to end; its exit code, or None if it had to be killed."""
        if not await self._end(signal.SIGTERM, timeout_s):
            await self.kill()
            return None
        return self.exit_code

    async def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        process = self._process
        if process is None or process.returncode is not None:
            return True
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            return False
        return True

    def last_words(self, count: int = 5) -> str:
        """The end of its output, on one line."""
        return " | ".join(self._output(self._life).splitlines()[-count:])

    def exceptions(self) -> list[LoggedException]:
        """Python exceptions of all its lives, in the order in which they were logged."""
        return exceptions_in(self._output(0))

    def fatal_exception(self) -> LoggedException | None:
        """The last exception of this life."""
        return next(reversed(exceptions_in(self._output(self._life))), None)

    def _output(self, start: int) -> str:
        try:
            return self._log.read_bytes()[start:].decode(errors="replace")
        except OSError:
            return ""
