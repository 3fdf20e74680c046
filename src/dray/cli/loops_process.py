"""Controllers and scheduler in a process of their own: `python -m dray.cli.loops_process DESCRIPTOR VERBOSITY`.

DESCRIPTOR is the number of a socket to the API server's process, inherited from it. One line of JSON on standard input says what
is to run (`LoopsOptions`); one line on standard output says that it runs. It ends when the server's process does.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

import msgspec

from dray import __version__
from dray.cli.event_loop import run_loop, spare_the_collector
from dray.client import Client
from dray.client.pipe import PipeTransport
from dray.sim.control_loops import ControlLoops, LoopsOptions
from dray.tasks import cancelled
from dray.telemetry import set_up_logging


async def connected_loops(descriptor: int, options: LoopsOptions) -> tuple[ControlLoops, PipeTransport]:
    """Loops that reach the server over the socket; not yet started."""
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
    # What ends the server's process often goes to this one as well; the server's ends it in good order.
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
