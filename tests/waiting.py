"""Waits for a condition, with a deadline. This is the only place where a test sleeps: everything else waits for something.

"Nothing happens" cannot be waited for. A test counts instead: it makes later events pass through the same path and then looks.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_S = 30.0
PAUSE_S = 0.01


async def eventually(
    question: Callable[[], Any | Awaitable[Any]],
    what: str | Callable[[], Any] = "",
    within_s: float = PATIENCE_S,
    pause_s: float = PAUSE_S,
) -> Any:
    """The first true answer of `question`, a plain or an async function. `what` says what was waited for."""
    deadline = time.monotonic() + within_s
    while True:
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_complaint(what, answer, within_s))
        await asyncio.sleep(pause_s)


def eventually_blocking(
    question: Callable[[], Any],
    what: str | Callable[[], Any] = "",
    within_s: float = PATIENCE_S,
    pause_s: float = PAUSE_S,
) -> Any:
    """As `eventually`, for tests without an event loop."""
    deadline = time.monotonic() + within_s
    while not (answer := question()):
        if time.monotonic() >= deadline:
            raise AssertionError(_complaint(what, answer, within_s))
        time.sleep(pause_s)
    return answer


async def let_others_run(turns: int = 1) -> None:
    """Gives every other task of the event loop `turns` turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def pass_time(clock: Any, seconds: float, steps: int = 1, pause_s: float = 0.0) -> None:
    """Moves simulated time forward in steps; the loop serves sockets and threads between them."""
    for _ in range(steps):
        await clock.advance(seconds / steps)
        await asyncio.sleep(pause_s)


def _complaint(what: str | Callable[[], Any], answer: Any, within_s: float) -> str:
    wanted = what() if callable(what) else what
    return (
        f"waited {within_s:g} s for {wanted}; the last answer was {answer!r}"
        if wanted
        else f"still {answer!r} after {within_s:g} s"
    )
