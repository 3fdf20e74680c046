"""Controllers and scheduler in a process of their own, beside the API server's.

`LoopsProcess` starts and replaces it; `loops_main` is that process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from functools import partial

import msgspec

from dray.apiserver.errors import ApiError
from dray.sim.control_plane import ControlPlane
from dray.sim.nodes import MOST_REAL_NODES
from dray.sim.pipe_server import PipeServer
from dray.tasks import cancelled

log = logging.getLogger(__name__)

RESTART_S = 1.0
STOP_TIMEOUT_S = 5.0
PARTS = ("scheduler", "controller-manager")
LONGEST_LINE = 16 * 2**20


def processes_for(nodes: int) -> int:
    """Two where a second core makes a difference. On 1 to 10 nodes, whose pods really run on this machine, few pods are scheduled."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 if cores > 1 and not 0 < nodes <= MOST_REAL_NODES else 1


class LoopsProcess:
    """Starts the process and replaces it when it ends.

    `start()` comes before the start of the server, so that both load their code at the same time, `connect()` after it.
    `await ready()` returns when controllers and scheduler work.
    """

    def __init__(self, plane: ControlPlane, verbosity: int = 0) -> None:
        self._plane, self._verbosity = plane, verbosity
        self._connected, self._ready = asyncio.Event(), asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._working: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()

    def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep(), name="controllers and scheduler")

    def connect(self) -> None:
        self._plane.running.server.metrics.of_others |= {part: partial(self._metrics_of, part) for part in PARTS}
        self._connected.set()

    async def ready(self) -> None:
        await self._ready.wait()

    async def stop(self) -> None:
        await cancelled(self._keeping)

    async def _metrics_of(self, part: str) -> str:
        async with self._asking:
            process = self._working
            if process is None:
                raise ApiError(503, "ServiceUnavailable", f"the process of the {part} is being started")
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{part}\n".encode())
            line = await process.stdout.readline()
            if not line:
                raise ApiError(503, "ServiceUnavailable", f"the process of the {part} has ended")
            return msgspec.json.decode(line, type=str)

    async def _keep(self) -> None:
        while True:
            code = await self._run_once()
            log.error("the process of controllers and scheduler ended with code %d; starting another", code)
            await asyncio.sleep(RESTART_S)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            # In a session of its own: Ctrl-C in a terminal reaches the server's process only, which ends this one in good order.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dray.sim.loops_main", str(theirs.fileno()), str(self._verbosity),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=(theirs.fileno(),),
                start_new_session=True, limit=LONGEST_LINE,
            )  # fmt: skip
        pipe: PipeServer | None = None
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            await self._connected.wait()
            pipe = await self._plane.serve_pipe(ours)
            process.stdin.write(msgspec.json.encode(self._plane.loops_options) + b"\n")
            if await process.stdout.readline():
                self._working = process
                self._ready.set()
            return await process.wait()
        finally:
            self._working = None
            if pipe is None:
                ours.close()
            await self._end(process, pipe)

    async def _end(self, process: asyncio.subprocess.Process, pipe: PipeServer | None) -> None:
        """Closes the standard input of the other process, which then ends by itself; the socket stays open meanwhile."""
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        finally:
            if pipe is not None:
                await pipe.stop()
