"""Measures how long a request keeps the event loop from everything else."""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dray.event_loop import YOUNG_OF_A_SERVER, spare_the_collector


class LoopStalls:
    """`longest_s`: the most CPU time of the loop's thread that one callback took.

    CPU time, because other programs on the machine must not count; of this thread, because work in other threads leaves the loop free.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest = ""
        # Of each task by its name: a test may serve something in the same loop that is not meant.
        self.of_task_s: dict[str, float] = {}


@contextmanager
def loop_stalls() -> Iterator[LoopStalls]:
    found = LoopStalls()
    original = asyncio.events.Handle._run

    def measured(handle: asyncio.events.Handle) -> None:
        started = time.thread_time()
        original(handle)
        took = time.thread_time() - started
        task = getattr(getattr(handle, "_callback", None), "__self__", None)
        if isinstance(task, asyncio.Task):
            name = task.get_name()
            found.of_task_s[name] = max(took, found.of_task_s.get(name, 0.0))
        if took > found.longest_s:
            found.longest_s, found.longest = took, repr(handle)

    thresholds = gc.get_threshold()
    # As a server does when it has started: the collector does not look through all that a test run has imported.
    spare_the_collector(YOUNG_OF_A_SERVER)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.events.Handle, "_run", measured)
            yield found
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
