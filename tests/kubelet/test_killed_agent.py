"""An agent that is killed while it starts a container leaves no process that nobody looks after."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.clock import RealClock
from dray.kubelet.runtime import process
from dray.kubelet.runtime.isolation import Isolation, available_isolation
from dray.kubelet.runtime.process import ProcessRuntime
from tests.kubelet.test_process_runtime import POD, a_spec, start
from tests.waiting import eventually

FOUND = available_isolation()
ISOLATED = pytest.param(
    FOUND, id="isolated", marks=pytest.mark.skipif(isinstance(FOUND, str), reason=f"no isolation here: {FOUND}")
)
isolations = pytest.mark.parametrize("isolation", [pytest.param(None, id="plain"), ISOLATED])

# An agent with the name of its folder and of the moment at which it is killed.
AGENT = """
import asyncio, sys
from pathlib import Path
from tests.kubelet.test_killed_agent import start_and_be_killed
asyncio.run(start_and_be_killed(Path(sys.argv[1]), sys.argv[2], is_isolated=sys.argv[3] == "isolated"))
"""


async def start_and_be_killed(folder: Path, moment: str, *, is_isolated: bool) -> None:
    write = process.write_state

    def killed(*state: object) -> None:
        if moment == "after":
            write(*state)
        os.kill(os.getpid(), signal.SIGKILL)

    process.write_state = killed
    isolation = FOUND if is_isolated else None
    assert not isinstance(isolation, str)
    runtime = ProcessRuntime(folder, RealClock(), isolation=isolation)
    await start(runtime, a_command(folder))


def a_command(folder: Path):
    return a_spec(folder, "sh", "-c", "echo it has begun; sleep 600")


def processes_of(folder: Path) -> list[int]:
    """By what the supervising shell has in its environment, and everything below it where nothing is isolated; and those that write logs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "environ").read_bytes() + (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


@isolations
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_container_of_a_killed_agent_does_not_begin(tmp_path: Path, moment: str, isolation: Isolation | None):
    """Killed between the start of the process and the file that says so, and between that file and the begin of the container."""
    argv = [sys.executable, "-c", AGENT, str(tmp_path), moment, "isolated" if isolation else "plain"]
    agent = await asyncio.to_thread(subprocess.run, argv, check=False, cwd=Path(__file__).parents[2])
    assert agent.returncode == -signal.SIGKILL
    await eventually(lambda: not processes_of(tmp_path))
    assert (tmp_path / "logs" / "0.log").read_text() == ""
    # The next agent finds nothing that runs, and starts it.
    again = ProcessRuntime(tmp_path, RealClock(), isolation=isolation)
    assert await again.find_container(POD, "c") is None
    await start(again, a_command(tmp_path))
    await eventually(lambda: (tmp_path / "logs" / "0.log").read_text() == "it has begun\n")
    assert processes_of(tmp_path)
    await again.stop_pod("pod-uid")
    await eventually(lambda: not processes_of(tmp_path))


@isolations
async def test_a_container_whose_start_fails_half_way_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Isolation | None
):
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    runtime = ProcessRuntime(tmp_path, RealClock(), isolation=isolation)
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(process, "write_state", full)
    with pytest.raises(OSError, match="no space left"):
        await start(runtime, a_command(tmp_path))
    await eventually(lambda: not processes_of(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
    assert await runtime.find_container(POD, "c") is None
