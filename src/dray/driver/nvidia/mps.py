"""Shares of a card through CUDA MPS: one control daemon for each shared card, started, watched and stopped by the driver.

The daemon outlives the driver, so that a restart of the driver disturbs nobody. Its folder tells the next life of the
driver where to find it. MPS changes no setting of the card.
"""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dray.driver.plugin import PrepareError

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
_PID_FILE = f"{CONTROL}.pid"
_START_WITHIN_S = 10.0
_STOP_WITHIN_S = 5.0
_ANSWER_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02
_LONGEST_SOCKET_PATH = 107


class MpsDaemon:
    """The control daemon of one card. All methods block; the kit calls them in threads."""

    def __init__(self, program: Path, folder: Path, uuid: str) -> None:
        self._program = program
        self._folder = folder
        self._uuid = uuid

    @property
    def pipe_folder(self) -> Path:
        return self._folder / "pipe"

    def ensure_running(self) -> None:
        """Starts the daemon unless it answers; PrepareError says why it cannot run."""
        if self.answers():
            return
        self.kill()
        if len(str(self.pipe_folder / "control")) > _LONGEST_SOCKET_PATH:
            raise PrepareError(f"CUDA MPS: the path of its sockets is too long: {self.pipe_folder}")
        for folder in (self.pipe_folder, self._folder / "log"):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                [self._program, "-d"], env=self._environment(), check=True, capture_output=True, timeout=_START_WITHIN_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PrepareError(f"CUDA MPS does not start: {_why(error)}") from error
        if not self._wait(self.answers, _START_WITHIN_S):
            self.kill()
            raise PrepareError(
                f"CUDA MPS was started and does not answer within {_START_WITHIN_S:g} s; see {self._folder}/log"
            )
        log.info("CUDA MPS serves card %s", self._uuid)

    @property
    def was_started(self) -> bool:
        """Whether somebody needs the daemon: its folder goes with the last share of the card."""
        return self.pipe_folder.is_dir()

    @property
    def is_alive(self) -> bool:
        return self._pid() is not None

    def answers(self) -> bool:
        """Whether the daemon is alive and takes commands."""
        return self.is_alive and self._command("get_default_active_thread_percentage") is not None

    def stop(self) -> None:
        """Ends the daemon and its server; a daemon that does not end in time is killed."""
        if self.is_alive:
            self._command("quit -t 2")
            self._wait(lambda: not self.is_alive, _STOP_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """Ends what is left of the daemon, and removes its sockets."""
        pid = self._pid()
        if pid is not None:
            for each in (*_children(pid), pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            self._wait(lambda: not self.is_alive, _STOP_WITHIN_S)
        if self.pipe_folder.is_dir():
            for file in self.pipe_folder.iterdir():
                file.unlink(missing_ok=True)

    def _command(self, text: str) -> str | None:
        try:
            answer = subprocess.run(
                [self._program],
                input=f"{text}\n",
                text=True,
                env=self._environment(),
                capture_output=True,
                timeout=_ANSWER_WITHIN_S,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return answer.stdout if answer.returncode == 0 else None

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": self._uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
        }

    def _pid(self) -> int | None:
        """The daemon's process, if it lives: a number from before a reboot may belong to somebody else by now."""
        try:
            pid = int((self.pipe_folder / _PID_FILE).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError, IndexError):
            return None
        return pid if CONTROL.encode() in command and state != "Z" else None

    @staticmethod
    def _wait(holds: Callable[[], bool], within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True


def client_environment(pipe_folder: Path, memory_bytes: int | None, thread_percentage: int | None) -> Mapping[str, str]:
    """What makes a process a client of the daemon, with its limits; the card is the only one that the process sees."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_folder)}
    if memory_bytes is not None:
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_bytes >> 20}M"
    if thread_percentage is not None:
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(thread_percentage)
    return environment


def thread_percentage(multiprocessors: int, of: int) -> int | None:
    """MPS limits compute in percent; rounded down, so that all shares together fit. None sets no limit."""
    if multiprocessors <= 0 or multiprocessors >= of:
        return None
    return max(1, 100 * multiprocessors // of)


def _children(pid: int) -> list[int]:
    """The MPS servers of a control daemon."""
    with contextlib.suppress(OSError, ValueError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.strip() or str(error)
