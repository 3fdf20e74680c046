"""The cluster under the benchmark: an API server in a process of its own, controllers and scheduler in this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dray.client import Client, Informers, connect
from dray.controllers.context import Context
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.controllers.roster import Choices, Roster
from dray.scheduler.service import SchedulerService

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """`users` creates pods over its own connections, as somebody outside would."""

    users: Client
    informers: Informers
    service: SchedulerService
    server_pid: int

    def memory_mb(self) -> float:
        return sum(_resident_mb(pid) for pid in (self.server_pid, os.getpid()))

    def server_cpu_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self.server_pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@asynccontextmanager
async def bench_cluster() -> AsyncIterator[BenchCluster]:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as directory:
        async with _api_server(Path(directory)) as (kubeconfig, pid), contextlib.AsyncExitStack() as stack:
            components, users = connect(kubeconfig, component="dray-bench"), connect(kubeconfig, component="load")
            stack.push_async_callback(users.close)
            stack.push_async_callback(components.close)
            informers = Informers(components)
            service = SchedulerService(components, informers=informers)
            # There are no kubelets here, so nobody may miss their heartbeats.
            choices = Choices(("*", f"-{NodeLifecycleController.name}"))
            roster = Roster(Context(components, informers), choices)
            tasks = [asyncio.create_task(roster.run()), asyncio.create_task(service.run())]
            stack.push_async_callback(_cancel, tasks)
            async with asyncio.timeout(START_TIMEOUT_S):
                await roster.ready.wait()
                await service.ready.wait()
            yield BenchCluster(users, informers, service, pid)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _api_server(directory: Path) -> AsyncIterator[tuple[Path, int]]:
    kubeconfig, ready, log = directory / "kubeconfig", directory / "ready", directory / "log"
    arguments = ["apiserver", "--listen", "127.0.0.1:0", "--data", str(directory / "data")]
    arguments += ["--kubeconfig", str(kubeconfig), "--ready-file", str(ready)]
    program = "from dray.cli.main import main; main()"
    with log.open("wb") as output:
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, *arguments, stdout=output, stderr=output
        )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not ready.exists():
                if server.returncode is not None:
                    raise RuntimeError(
                        f"the API server did not start: {log.read_text().strip().rpartition(chr(10))[2]}"
                    )
                await asyncio.sleep(0.05)
        yield kubeconfig, server.pid
    finally:
        await _end(server)


async def _end(server: asyncio.subprocess.Process) -> None:
    if server.returncode is not None:
        return
    server.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await server.wait()
    except TimeoutError:
        server.kill()
        await server.wait()
