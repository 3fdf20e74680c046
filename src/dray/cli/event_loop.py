"""The event loop and the memory settings of a long-running component."""

import asyncio
import gc


def fast_runner() -> asyncio.Runner:
    """uvloop where it is installed, else asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def spare_the_collector() -> None:
    """What was imported stays for ever, and most objects die young: look for cycles less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
