"""Ctrl-C: a word and exit code 130, never a traceback; and other exit codes as they are promised."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import eventually_blocking

BIN = Path(sys.executable).parent
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts jobs in the background with SIGINT ignored, and their children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def until_loaded(process: subprocess.Popen, library: str) -> None:
    def is_loaded() -> bool:
        assert process.poll() is None
        return library in Path(f"/proc/{process.pid}/maps").read_text()

    eventually_blocking(is_loaded, f"{library} to be loaded", DEADLINE_S, pause_s=0.005)


# The first is loaded while the command is still being imported, the second shortly before it waits for its input.
@pytest.mark.parametrize("library", ["msgspec", "_yaml"])
def test_an_interrupted_command_says_so(library: str) -> None:
    process = subprocess.Popen(
        [BIN / "dray", "lint", "-f", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_loaded(process, library)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, printed, said.strip()) == (130, "", "Interrupted.")


def test_who_imports_the_commands_keeps_ctrl_c() -> None:
    program = "import signal, dray.cli.main; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, ""),
        (["lint", "--help"], 0, ""),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["lint", "--nonsense"], 2, "No such option '--nonsense'"),
        (["explain", "pod/x", "--kubeconfig", "/nowhere"], 3, "/nowhere"),
        (["lint", "-f", "/nowhere"], 2, "/nowhere"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run([BIN / "dray", *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
