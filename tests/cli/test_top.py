"""`dray top` on a terminal: it draws, follows the cluster, takes another size, says when the server is gone, and leaves well."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dray.testing import Cluster, cluster

BIN = Path(sys.executable).parent
DEADLINE_S = 60.0
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A pseudo-terminal with a program in it."""

    def __init__(self, kubeconfig: Path, lines: int = 24, width: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(lines, width)
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(
            [BIN / "dray", "top", "--interval", "0.2"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def resize(self, lines: int, width: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))

    def read(self, wait_s: float = 0.2) -> None:
        if select.select([self._ours], [], [], wait_s)[0]:
            try:
                self.text += os.read(self._ours, 65536).decode(errors="replace")
            except OSError:  # The program has closed its side.
                self.process.wait(DEADLINE_S)

    def until(self, words: str) -> str:
        """What was drawn until the words came, which is forgotten then."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.text:
            assert time.monotonic() < deadline, self.text[-2000:]
            self.read()
        seen, self.text = self.text, ""
        return seen

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-2000:]
            self.read()
        self.read()
        return self.process.returncode, self.text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def running() -> Iterator[Cluster]:
    with cluster(nodes=1, devices=("nic",)) as started:
        yield started


@pytest.fixture
def open_terminal() -> Iterator[Callable[[Path], Terminal]]:
    opened: list[Terminal] = []

    def make(kubeconfig: Path) -> Terminal:
        opened.append(Terminal(kubeconfig))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_it_follows_the_cluster_and_the_size_of_the_terminal(
    running: Cluster, open_terminal: Callable[[Path], Terminal]
) -> None:
    terminal = open_terminal(running.kubeconfig)
    drawn = terminal.until("node-1")
    assert ENTER_SCREEN in drawn
    assert "1 node, 0 pods placed, 0 waiting; 4 devices: 0 used, 4 free" in drawn
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"}}
    running.apply({**pod, "spec": {"containers": [{"name": "main", "image": "x", "command": ["sleep", "60"]}]}})
    terminal.until("1 pod placed")
    terminal.resize(5, 40)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.until("1 node, 1 pod placed")
    returned, drawn = terminal.end(signal.SIGTERM)
    assert returned == 0
    assert LEAVE_SCREEN in drawn
    assert "Traceback" not in drawn


def test_ctrl_c_ends_it(running: Cluster, open_terminal: Callable[[Path], Terminal]) -> None:
    terminal = open_terminal(running.kubeconfig)
    terminal.until("node-1")
    returned, drawn = terminal.end(signal.SIGINT)
    assert returned == 0
    assert LEAVE_SCREEN in drawn
    assert "Traceback" not in drawn


def test_a_server_that_is_gone_is_said(open_terminal: Callable[[Path], Terminal], tmp_path: Path) -> None:
    with cluster(nodes=1, devices=()) as started:
        copy = tmp_path / "kubeconfig"
        copy.write_bytes(started.kubeconfig.read_bytes())
        terminal = open_terminal(copy)
        terminal.until("node-1")
    drawn = terminal.until("what follows is from before")
    returned, rest = terminal.end(signal.SIGTERM)
    assert returned == 0
    assert "trying again" not in drawn + rest


def test_no_server_at_all_is_a_broken_world(open_terminal: Callable[[Path], Terminal], tmp_path: Path) -> None:
    with cluster(nodes=0) as started:
        copy = tmp_path / "kubeconfig"
        copy.write_bytes(started.kubeconfig.read_bytes())
    terminal = open_terminal(copy)
    assert "Error: " in terminal.until("Error: ")
    assert terminal.process.wait(DEADLINE_S) == 3
