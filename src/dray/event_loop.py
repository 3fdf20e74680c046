"""The event loop, the end and the memory settings of a long-running component."""

import asyncio
import contextlib
import ctypes
import gc
import importlib
import resource
import signal
import sys
from collections.abc import Coroutine
from typing import Any

# How long a thread waits for the interpreter while the loop is busy; each commit of the store waits a few times.
SWITCH_S = 0.0005
# A look at 10,000 objects takes about four milliseconds. An API server under load has as many in its hands at any moment, and would look
# at them again and again.
FEW_YOUNG = 10_000
YOUNG_OF_A_SERVER = 25_000


def fast_runner() -> asyncio.Runner:
    """uvloop where it is installed, else asyncio's own loop."""
    sys.setswitchinterval(SWITCH_S)
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def loaded(module: str) -> None:
    """Imports a large module in a thread, so that an `import` after it takes no time of the loop.

    `sys.modules` does not tell whether it is loaded: it has a module from the moment when a thread begins with it.
    """
    if module not in _loaded:
        await asyncio.to_thread(importlib.import_module, module)
        _loaded.add(module)


_loaded: set[str] = set()


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    with fast_runner() as runner:
        runner.run(main)


async def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` to its end or until SIGTERM or SIGINT."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def spare_the_collector(young: int = FEW_YOUNG) -> None:
    """What was imported stays for ever, and most objects die young: look for cycles less often, and never for long.

    Each look at `young` objects, every second time at twice as many, stops everything else.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 1, 4_000)


def give_memory_back() -> None:
    """Returns memory that is free by now to the system, where the C library can: a server that has read its store needs most of it no more."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def raise_file_limit() -> None:
    """A watch is an open file, and so is a socket of a driver; ask for as many as we may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
