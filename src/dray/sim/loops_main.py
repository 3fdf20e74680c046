"""The process of controllers and scheduler, which `LoopsProcess` starts: `python -m dray.sim.loops_main DESCRIPTOR VERBOSITY`.

DESCRIPTOR is the number of an inherited socket to the API server's process. One line of JSON on standard input says what to run
(`LoopsOptions`); one line on standard output says that it runs. Each further line on standard input names a part, whose metrics are
answered in one line of JSON. The process ends when standard input or the socket does. It loads no code of the server.
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
from dray.tasks import cancelled
from dray.telemetry import set_up_logging


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
        answering = asyncio.create_task(_answer_questions(loops))
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        await cancelled(answering)
    await cancelled(starting)
    await loops.stop()


async def _answer_questions(loops: ControlLoops) -> None:
    """Writes the metrics of each part that standard input names, until the server's process closes it: then the loops shall end."""
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    while line := await questions.readline():
        registry = loops.registries.get(line.decode().strip())
        print(msgspec.json.encode(registry.text() if registry else "").decode(), flush=True)


def main() -> None:
    # The server's process ends this one in good order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    descriptor, verbosity = map(int, sys.argv[1:])
    line = sys.stdin.readline()
    if not line:
        return  # the server's process has ended before it told what to run
    options = msgspec.json.decode(line, type=LoopsOptions)
    set_up_logging(verbosity)
    if not verbosity:
        logging.getLogger("dray").setLevel(logging.WARNING)
    spare_the_collector()
    run_loop(serve(descriptor, options))


if __name__ == "__main__":
    main()
