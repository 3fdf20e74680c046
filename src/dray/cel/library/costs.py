"""Cost rules that several functions share: counted from values, and estimated from sizes."""

from __future__ import annotations

from typing import Any

from dray.cel.cost_ranges import (
    LIST_COST,
    ONE,
    REGEX_FACTOR,
    STRING_FACTOR,
    Range,
    fixed,
    traversal,
)
from dray.cel.functions import Estimate, Sizing
from dray.cel.values import is_list, is_map, size


def reading_first(value: Any, *_: Any) -> int:
    """The first argument is read once."""
    return traversal(size(value))


def reading_first_twice(value: Any, *_: Any) -> int:
    return traversal(size(value), 2 * STRING_FACTOR)


def reading_second(_: Any, value: Any, *__: Any) -> int:
    return traversal(size(value))


def regex(value: Any, pattern: Any, *_: Any) -> int:
    return traversal(1 + size(value)) * traversal(size(pattern), REGEX_FACTOR)


def one(*_: Any) -> int:
    return 1


def walking(value: Any, known: dict[int, int] | None = None) -> int:
    """Visiting a value and all it holds: 1 each, strings by length, rounded down."""
    kind = type(value)
    if kind is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * STRING_FACTOR)
    if kind is bytes:
        return int(len(value) * STRING_FACTOR)
    if not (is_list(value) or is_map(value)):
        return 1
    # What is held twice is visited once and counted twice: a list of lists of lists can be exponentially large.
    known = {} if known is None else known
    total = known.get(id(value))
    if total is None:
        parts = value if is_list(value) else [part for entry in value.items() for part in entry]
        total = known[id(value)] = sum(walking(part, known) for part in parts)
    return total


def walking_first(value: Any, *_: Any) -> int:
    return walking(value)


def subject(call: Sizing) -> Range:
    """Size of what a function is about: its target, or its first argument."""
    return call.size(call.target if call.target is not None else call.args[0])


def estimate_reading(call: Sizing) -> Estimate:
    return Estimate(subject(call).scaled(STRING_FACTOR))


def estimate_reading_first(call: Sizing) -> Estimate:
    return Estimate(call.size(call.args[0]).scaled(STRING_FACTOR))


def estimate_reading_same_size(call: Sizing) -> Estimate:
    size_ = subject(call)
    return Estimate(size_.scaled(STRING_FACTOR), size_)


def estimate_reading_argument(call: Sizing) -> Estimate:
    return Estimate(call.size(call.args[-1]).scaled(STRING_FACTOR))


def estimate_one(call: Sizing) -> Estimate:
    return Estimate(ONE)


def estimate_regex(call: Sizing) -> Estimate:
    text = subject(call)
    pattern = call.size(call.args[0] if call.target is not None else call.args[1])
    cost = text.plus(ONE).scaled(STRING_FACTOR).times(pattern.scaled(REGEX_FACTOR))
    return Estimate(cost, Range(0, text.high))


def estimate_walking(call: Sizing) -> Estimate:
    """One visit per element, and the reading of string elements on top."""
    assert call.target is not None
    element = call.element_reading(call.target)
    if element is None:
        return Estimate(call.size(call.target).scaled(STRING_FACTOR))
    return Estimate(call.size(call.target).times(ONE.plus(element)))


def estimate_including(call: Sizing) -> Estimate:
    """As walking, but what is not known to be a list counts one per element all the same."""
    assert call.target is not None
    element = call.element_reading(call.target)
    return Estimate(call.size(call.target).times(ONE if element is None else ONE.plus(element)))


def building_list(factor: float, length: int) -> int:
    return int(length * factor) + 1 + LIST_COST


def estimate_list(factor: float, length: Range) -> Estimate:
    return Estimate(length.scaled(factor).plus(fixed(1 + LIST_COST)), length)


def literal_size(value: Any, default: int) -> int:
    """A literal int as an unsigned number; a negative one counts as 0."""
    if type(value) is not int:
        return default
    return max(value, 0)
