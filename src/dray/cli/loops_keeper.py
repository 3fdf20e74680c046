"""Keeps the process with controllers and scheduler alive, beside the server's."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import msgspec

from dray.sim.control_plane import ControlPlane
from dray.sim.pipe_server import PipeServer
from dray.tasks import cancelled

log = logging.getLogger(__name__)

RESTART_S = 1.0
STOP_TIMEOUT_S = 5.0


class LoopsKeeper:
    """`await start()` returns when controllers and scheduler are at work; a process that ends is replaced."""

    def __init__(self, plane: ControlPlane, verbosity: int = 0) -> None:
        self._plane, self._verbosity = plane, verbosity
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep(), name="controllers and scheduler")
        await self._ready.wait()

    async def stop(self) -> None:
        await cancelled(self._keeping)

    async def _keep(self) -> None:
        while True:
            code = await self._run_once()
            log.error("the process of controllers and scheduler ended with code %d; starting another", code)
            await asyncio.sleep(RESTART_S)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dray.cli.loops_process", str(theirs.fileno()), str(self._verbosity),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        pipe = await self._plane.serve_pipe(ours)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(self._plane.loops_options) + b"\n")
            if await process.stdout.readline():
                self._ready.set()
            return await process.wait()
        finally:
            await self._end(process, pipe)

    async def _end(self, process: asyncio.subprocess.Process, pipe: PipeServer) -> None:
        """Without the server's end of the socket the other process ends by itself."""
        await pipe.stop()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
