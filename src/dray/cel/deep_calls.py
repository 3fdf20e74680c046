"""Calls that nest deeply without using Python's stack: a hostile expression must not exhaust it.

A function that may nest deeply is a generator. It calls another one with `result = yield other(...)`, and returns as usual.
`run` calls the first one and keeps the calls that wait in a list. `yield from` is cheaper, for calls of which a few are open at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

DeepCall = Generator[Any, T, T]
"""A call that has not begun. Its result, and those of the calls that it makes, have type T."""


def ready(result: T) -> DeepCall[T]:
    """A call that has its result already."""
    return result
    yield  # Makes this a generator.


def run(call: DeepCall[T]) -> T:
    """The result of the call; exceptions pass through all callers."""
    waiting: list[DeepCall[Any]] = []
    current: DeepCall[Any] = call
    result: Any = None
    while True:
        try:
            called = current.send(result)
        except StopIteration as finished:
            result = finished.value
            if not waiting:
                break
            current = waiting.pop()
        else:
            waiting.append(current)
            current, result = called, None
    returned: T = result
    return returned
