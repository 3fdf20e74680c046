"""Is a bound worth asking? One that has refused nothing for long is asked rarely, until it refuses something again."""

from __future__ import annotations

# Answers in a row that refuse nothing, and how rarely such a bound is asked from then on.
MOST_VAIN = 64
RARELY = 16


class Usefulness:
    """Counts the answers of one bound in one search. A bound only saves steps: leaving it out changes no answer."""

    __slots__ = ("_left_out", "_vain")

    def __init__(self) -> None:
        self._vain = 0
        self._left_out = 0

    def is_worth_asking(self) -> bool:
        if self._vain < MOST_VAIN:
            return True
        self._left_out = (self._left_out + 1) % RARELY
        return self._left_out == 0

    def note(self, has_refused: bool) -> None:
        self._vain = 0 if has_refused else self._vain + 1
