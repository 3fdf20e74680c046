"""Ephemeral containers (`kubectl debug`), and containers with a standard input or a terminal of their own."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dray.clock import RealClock
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime import cri_streams
from dray.kubelet.runtime.interface import RunningContainer
from dray.kubelet.runtime.isolation import Isolation, available_isolation
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.streams.command_streams import StreamOptions
from tests.kubelet.test_process_runtime import a_spec
from tests.kubelet.test_streams import POD, STDOUT, Script, StreamingNode
from tests.kubelet.worker_rig import WorkerRig, node_pod
from tests.waiting import eventually

ISOLATION = available_isolation()


@pytest.fixture
async def runtime(tmp_path):
    runtime = ProcessRuntime(tmp_path, RealClock())
    yield runtime
    await runtime.stop_pod("pod-uid")


async def started(runtime: ProcessRuntime, tmp_path: Path, *command: str, **fields) -> RunningContainer:
    spec = replace(a_spec(tmp_path, *command), **fields)
    return await runtime.start_container(POD, await runtime.start_pod(POD, None), spec)


async def attached(runtime: ProcessRuntime, container: RunningContainer, client: Script) -> None:
    """Through the same protocol as the API server's."""
    node = StreamingNode(runtime, container)
    await node.start()
    options = client.options
    wanted = {"input": options.stdin, "output": options.stdout, "tty": options.tty}
    url = node.url(path="/attach/ns/p/c", **{name: "1" for name, is_wanted in wanted.items() if is_wanted})
    await cri_streams.run_command(url, client)
    await node.stop()


async def test_a_container_with_a_terminal_is_talked_to(runtime, tmp_path):
    script = "while [ \"$(stty size)\" != '12 34' ]; do :; done; read line; tty; echo got $line"
    container = await started(runtime, tmp_path, "sh", "-c", script, tty=True, stdin=True)
    client = Script(StreamOptions(True, True, False, True), b"word\r", sizes=b'{"Width":34,"Height":12}')
    await attached(runtime, container, client)
    assert (await container.wait()).code == 0
    assert b"got word" in client.heard[STDOUT]
    assert b"/dev/" in client.heard[STDOUT]
    assert "got word" in (tmp_path / "logs/0.log").read_text(), "the log has it, too"


async def test_a_container_with_standard_input_reads_to_its_end(runtime, tmp_path):
    container = await started(runtime, tmp_path, "cat", stdin=True, stdin_once=True)
    client = Script(StreamOptions(True, True, False, False), b"some\nlines\n")
    await attached(runtime, container, client)
    assert (await container.wait()).code == 0
    assert (tmp_path / "logs/0.log").read_text() == "some\nlines\n"


async def test_standard_input_that_is_not_once_stays_open(runtime, tmp_path):
    container = await started(runtime, tmp_path, "cat", stdin=True)
    log = tmp_path / "logs/0.log"
    for word in ("first", "second"):
        client = Script(StreamOptions(True, True, False, False), f"{word}\n".encode())
        talk = asyncio.create_task(attached(runtime, container, client))
        await eventually(lambda word=word: word in log.read_text())
        talk.cancel()
        await asyncio.gather(talk, return_exceptions=True)
    await container.stop(0)


async def test_a_client_that_falls_behind_does_not_stop_the_terminal(runtime, tmp_path):
    container = await started(
        runtime, tmp_path, "sh", "-c", "read x; head -c 3000000 /dev/zero; echo done", tty=True, stdin=True
    )

    class Slow(Script):
        async def _send(self, channel: int, data: bytes) -> None:
            await super()._send(channel, data)
            await asyncio.Event().wait()

    talk = asyncio.create_task(container.attach(Slow(StreamOptions(True, True, False, True), b"\r")))
    assert (await container.wait()).code == 0
    talk.cancel()
    await asyncio.gather(talk, return_exceptions=True)
    assert (tmp_path / "logs/0.log").stat().st_size > 3_000_000


@pytest.mark.skipif(isinstance(ISOLATION, str), reason=str(ISOLATION))
async def test_an_isolated_container_with_a_target_sees_its_processes(tmp_path):
    assert isinstance(ISOLATION, Isolation)
    os.chmod(tmp_path, 0o755)
    runtime = ProcessRuntime(tmp_path, RealClock(), isolation=ISOLATION)
    await started(runtime, tmp_path, "sleep", "4321")
    script = "until grep -q 4321 /proc/[0-9]*/cmdline 2>/dev/null; do :; done; readlink /proc/self/ns/pid"
    debugger = await started(
        runtime, tmp_path, "sh", "-c", script, name="debug", target_container="c", log_path=tmp_path / "logs/debug.log"
    )
    assert (await debugger.wait()).code == 0
    assert (tmp_path / "logs/debug.log").read_text().strip() != os.readlink("/proc/self/ns/pid")
    with pytest.raises(ContainerError, match="container gone, whose processes are to be seen, does not run"):
        await started(runtime, tmp_path, "true", name="late", target_container="gone")
    await runtime.stop_pod("pod-uid")


# --- the pod's worker

RIG = WorkerRig


async def test_an_ephemeral_container_runs_once_beside_the_others(rig):
    rig.runtime.ends["debugger"] = [3]
    await rig.start(node_pod())
    debugged = node_pod(spec={"ephemeralContainers": [{"name": "debugger", "image": "i"}]})
    rig.worker.update(debugged)
    await rig.settle(60)
    assert rig.runtime.log.count("start debugger 0") == 1
    (status,) = rig.status["ephemeralContainerStatuses"]
    assert (status["name"], status["state"]["terminated"]["exitCode"]) == ("debugger", 3)
    assert rig.status["phase"] == "Running", "its end is not the pod's"
    assert not any("debugger 1" in line for line in rig.runtime.log), "it is not restarted"
