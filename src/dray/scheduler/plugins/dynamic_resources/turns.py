"""How long a search for devices may take, and how long it may keep others from their work."""

from collections.abc import Callable

from dray.allocator import Deadline, TimeLimits

# Watches, leases and bindings wait so long at most; most searches take a hundredth of it.
TURN_S = 0.01

Now = Callable[[], float]
"""Seconds on a clock that never goes back."""


def deadlines(now: Now, timeout_s: float) -> Callable[[], Deadline | None]:
    """Gives deadlines that are up `timeout_s` after they were given; 0 means never."""

    def deadline() -> Deadline | None:
        if not timeout_s:
            return None
        end = now() + timeout_s
        return lambda: now() > end

    return deadline


class Turn:
    """Begins when it is first asked about, so that every turn gets something done."""

    __slots__ = ("_end", "_now")

    def __init__(self, now: Now) -> None:
        self._now = now
        self._end: float | None = None

    def __call__(self) -> bool:
        now = self._now()
        if self._end is None:
            self._end = now + TURN_S
        return now > self._end


class Turns:
    """The time limits of the attempt under way; all its turns share one."""

    def __init__(self, now: Now, timeout_s: float) -> None:
        self._now = now
        self._timeout_s = timeout_s
        self._limits = TimeLimits()

    def in_one_piece(self) -> TimeLimits:
        return TimeLimits(deadlines(self._now, self._timeout_s))

    def take(self, turn: int) -> TimeLimits:
        if turn == 0:
            self._limits = self.in_one_piece()
        self._limits.turn_is_over = Turn(self._now)
        return self._limits
