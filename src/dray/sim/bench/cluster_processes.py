"""Starts the cluster under the benchmark: a control plane in processes of its own, reached over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.client import Client, Informers, connect

START_TIMEOUT_S = 120.0
LEASES_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LONGEST_ANSWER = 64 * 2**20

Document = dict[str, Any]


class MeasuredProcess:
    """A process of the control plane; `ask` sends it a question (`process_main`) and returns its answer."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, role: str, arguments: Sequence[str], log: Path, *pipes: int) -> MeasuredProcess:
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dray.sim.bench.process_main", role, *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=output, limit=LONGEST_ANSWER,
                pass_fds=pipes,
            )  # fmt: skip
        return cls(process, log)

    async def ask(self, question: str) -> Document:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n".encode())
        return await self.answer(ANSWER_TIMEOUT_S)

    async def answer(self, timeout_s: float) -> Document:
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_s):
            line = await self._process.stdout.readline()
        if not line:
            last = self._log.read_text().strip().rpartition("\n")[2]
            raise RuntimeError(f"the control plane ended: {last}")
        found: Document = json.loads(line)
        return found

    def memory_mb(self) -> float:
        return _resident_mb(self._process.pid)

    async def stop(self) -> None:
        if self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class ControlPlaneProcesses:
    """API server, controllers and scheduler: one process, or the server and the others."""

    def __init__(self, server: MeasuredProcess, loops: MeasuredProcess | None) -> None:
        self._server, self._loops = server, loops

    async def state(self) -> Document:
        return await (self._loops or self._server).ask("state")

    async def mark(self) -> None:
        for process in self._processes():
            await process.ask("mark")

    async def report(self) -> Document:
        """What the scheduler did, and the processor time of all."""
        reports = [await process.ask("report") for process in self._processes()]
        cpu_s = sum(report["cpuSeconds"] for report in reports)
        return {**reports[-1], "cpuSeconds": cpu_s}

    def memory_mb(self) -> float:
        return sum(process.memory_mb() for process in self._processes())

    def _processes(self) -> list[MeasuredProcess]:
        return [self._server, self._loops] if self._loops else [self._server]


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """`users` creates pods and `informers` watches them, from outside the control plane."""

    users: Client
    informers: Informers
    plane: ControlPlaneProcesses
    directory: Path

    def memory_mb(self) -> float:
        return self.plane.memory_mb() + _resident_mb(os.getpid())

    @asynccontextmanager
    async def renewed_leases(self, nodes: int, period_s: float) -> AsyncIterator[MeasuredProcess]:
        """A process that renews the leases of all nodes; begins when all of them are there."""
        arguments = [str(self.directory / "kubeconfig"), str(nodes), str(period_s)]
        process = await MeasuredProcess.start("leases", arguments, self.directory / "leases-log")
        try:
            await process.answer(LEASES_TIMEOUT_S)
            yield process
        finally:
            await process.stop()


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@asynccontextmanager
async def bench_cluster(processes: int = 2, profile: Path | None = None) -> AsyncIterator[BenchCluster]:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        directory = Path(name)
        async with _plane(directory, processes, profile) as plane, contextlib.AsyncExitStack() as stack:
            users, watcher = (connect(directory / "kubeconfig", component=name) for name in ("load", "observer"))
            stack.push_async_callback(users.close)
            stack.push_async_callback(watcher.close)
            informers = Informers(watcher)
            stack.push_async_callback(informers.stop)
            yield BenchCluster(users, informers, plane, directory)


@asynccontextmanager
async def _plane(directory: Path, processes: int, profile: Path | None) -> AsyncIterator[ControlPlaneProcesses]:
    arguments = [str(directory), *(("--profile", str(profile)) if profile else ())]
    async with contextlib.AsyncExitStack() as stack:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        if processes > 1:
            arguments += ["--pipe", str(ours.fileno())]
        server = await MeasuredProcess.start("server", arguments, directory / "log", ours.fileno())
        stack.push_async_callback(server.stop)
        await server.answer(START_TIMEOUT_S)
        loops = None
        if processes > 1:
            descriptor = theirs.fileno()
            loops = await MeasuredProcess.start("loops", [str(descriptor)], directory / "loops-log", descriptor)
            stack.push_async_callback(loops.stop)
            await loops.answer(START_TIMEOUT_S)
        yield ControlPlaneProcesses(server, loops)
