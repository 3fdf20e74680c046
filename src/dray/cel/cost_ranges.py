"""Ranges of sizes and costs in unsigned 64-bit arithmetic that stays at its limit, as Kubernetes computes them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

LIMIT: Final = 2**64 - 1
_TWO_TO_64 = 2.0**64

# Cost units per character: reading a string, and running a regular expression of that length.
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25
LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40


class Range(NamedTuple):
    low: int
    high: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.low + other.low, LIMIT), min(self.high + other.high, LIMIT))

    def times(self, other: Range) -> Range:
        return Range(min(self.low * other.low, LIMIT), min(self.high * other.high, LIMIT))

    def scaled(self, factor: float) -> Range:
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def _scaled(amount: int, factor: float) -> int:
    number = float(amount)
    if number > 0 and factor > 0 and number > _TWO_TO_64 / factor:
        return LIMIT
    product = math.ceil(number * factor)
    return LIMIT if product >= _TWO_TO_64 else product


def fixed(amount: int) -> Range:
    return Range(amount, amount)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, LIMIT)


def traversal(length: int, factor: float = STRING_FACTOR) -> int:
    """Cost units for reading so many characters."""
    return math.ceil(length * factor)
