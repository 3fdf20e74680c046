"""Controllers and scheduler in a process of their own, beside the API server's.

`LoopsProcess` starts and replaces it; `python -m dray.sim.loops_process DESCRIPTOR VERBOSITY` is that process. DESCRIPTOR is
the number of an inherited socket to the API server's process. One line of JSON on standard input says what to run
(`LoopsOptions`); one line on standard output says that it runs. The process ends when the server's does.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

import msgspec

from dray import __version__
from dray.client import Client
from dray.client.pipe import PipeTransport
from dray.event_loop import run_loop, spare_the_collector
from dray.sim.control_loops import ControlLoops, LoopsOptions
from dray.sim.control_plane import ControlPlane
from dray.sim.pipe_server import PipeServer
from dray.tasks import cancelled
from dray.telemetry import set_up_logging

log = logging.getLogger(__name__)

RESTART_S = 1.0
STOP_TIMEOUT_S = 5.0


class LoopsProcess:
    """Starts the process and replaces it when it ends. `await start()` returns when controllers and scheduler work."""

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
                sys.executable, "-m", "dray.sim.loops_process", str(theirs.fileno()), str(self._verbosity),
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
        """Closes the server's end of the socket, upon which the other process ends by itself."""
        await pipe.stop()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def connected_loops(descriptor: int, options: LoopsOptions) -> tuple[ControlLoops, PipeTransport]:
    """Control loops that reach the server over the socket; not yet started."""
    transport = await PipeTransport.over(socket.socket(fileno=descriptor))
    return ControlLoops(
        lambda component: Client(transport, user_agent=f"{component}/{__version__}"), options
    ), transport


async def serve(descriptor: int, options: LoopsOptions) -> None:
    loops, transport = await connected_loops(descriptor, options)
    starting = asyncio.create_task(loops.start())
    gone = asyncio.create_task(transport.lost.wait())
    await asyncio.wait({starting, gone}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        print("ready", flush=True)
        await gone
    await cancelled(starting)
    await loops.stop()


def main() -> None:
    # A signal to the process group also reaches this process; the server's process ends it in good order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    descriptor, verbosity = map(int, sys.argv[1:])
    options = msgspec.json.decode(sys.stdin.readline(), type=LoopsOptions)
    set_up_logging(verbosity)
    if not verbosity:
        logging.getLogger("dray").setLevel(logging.WARNING)
    spare_the_collector()
    run_loop(serve(descriptor, options))


if __name__ == "__main__":
    main()
