"""The cluster under the benchmark: a control plane in a process of its own, reached over HTTPS like any other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.client import Client, Informers, connect

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LONGEST_ANSWER = 64 * 2**20

Document = dict[str, Any]


class Plane:
    """The other process; `ask` it how far it has come and what it measured."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

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


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """`users` creates pods, and `informers` looks at them, as somebody outside would."""

    users: Client
    informers: Informers
    plane: Plane

    def memory_mb(self) -> float:
        return self.plane.memory_mb() + _resident_mb(os.getpid())


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@asynccontextmanager
async def bench_cluster(profile: Path | None = None) -> AsyncIterator[BenchCluster]:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        directory = Path(name)
        async with _plane(directory, profile) as plane, contextlib.AsyncExitStack() as stack:
            users, watcher = (connect(directory / "kubeconfig", component=name) for name in ("load", "observer"))
            stack.push_async_callback(users.close)
            stack.push_async_callback(watcher.close)
            informers = Informers(watcher)
            stack.push_async_callback(informers.stop)
            yield BenchCluster(users, informers, plane)


@asynccontextmanager
async def _plane(directory: Path, profile: Path | None) -> AsyncIterator[Plane]:
    log, arguments = directory / "log", [str(path) for path in (directory, profile) if path]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dray.cli.bench_plane", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=output, limit=LONGEST_ANSWER,
        )  # fmt: skip
    plane = Plane(process, log)
    try:
        await plane.answer(START_TIMEOUT_S)
        yield plane
    finally:
        await plane.stop()
