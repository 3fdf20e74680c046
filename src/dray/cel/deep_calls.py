"""Calls that nest deeply without using Python's stack: a hostile expression must not exhaust it.

A function that may nest deeply is a generator. It calls another one with `result = yield other(...)`, and returns as usual.
`run` calls the first one and keeps the calls that wait in a list.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

DeepCall = Generator[Any, T, T]
"""A call that has not begun. Its result, and those of the calls that it makes, have type T."""


def run(call: DeepCall[T]) -> T:
    """The result of the call; exceptions pass through all callers."""
    waiting: list[DeepCall[Any]] = [call]
    result: Any = None
    while waiting:
        try:
            called = waiting[-1].send(result)
        except StopIteration as finished:
            waiting.pop()
            result = finished.value
        else:
            waiting.append(called)
            result = None
    returned: T = result
    return returned
