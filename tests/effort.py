"""Counts work instead of seconds: the number of function calls is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Effort:
    calls: int = 0


@contextmanager
def counted_calls() -> Iterator[Effort]:
    """Counts the calls of Python and C functions in this thread, until the end of the block."""
    effort = Effort()

    def count(_: FrameType, event: str, __: Any) -> None:
        if event in ("call", "c_call"):
            effort.calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield effort
    finally:
        sys.setprofile(before)


@dataclass
class Steps:
    taken: int = 0


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Counts the instructions that Python executes in calls made in the block: a loop without any call is work too."""
    steps = Steps()

    def count(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        steps.taken += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield steps
    finally:
        sys.settrace(before)
