"""How long-running programs are told to end."""

import asyncio
import signal


def stop_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT, from now on."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped
