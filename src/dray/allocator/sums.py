"""Which sums can be reached? Sets of sums as integers: bit n stands for the sum n.

Adding an amount to every sum of a set is a shift, joining two sets is an `|`, and asking whether some sum stays within what
is left is an `&`. Sums of several counters have one number together. Amounts are divided by what they have in common first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Protocol

# Bits of one set of sums, of all sets that one table keeps (1 MB), and of the tables of one bound (8 MB).
MOST_BITS = 1 << 17
MOST_BITS_IN_TABLE = 1 << 23
MOST_BITS_IN_ALL = 1 << 26
# Working out all sums of some devices may take so long, in additions of small sets (some 0.1 s); and one that cannot pause.
MOST_WORK = 60_000
MOST_WORK_AT_ONCE = 1_000
# Devices between two looks at the time.
DEVICES_PER_LOOK = 8

Amounts = Sequence[int]
"""One amount per counter."""

Sums = dict[int, int]
"""Sets of sums; by number of devices where a space tells these apart, otherwise all under 0."""

NOTHING: Sums = {0: 1}
NO_WAY: Sums = {}


def work_of(space: SumSpace, devices: int, count: int) -> int:
    """Additions of small sets, about, that it takes to work out all sums of `count` of so many devices."""
    return devices * count * (1 + space.bits // (1 << 14))


def joined(one: Sums, other: Sums) -> Sums:
    if not one or not other:
        return one or other
    together = dict(one)
    for number, sums in other.items():
        together[number] = together.get(number, 0) | sums
    return together


class SumSpace(Protocol):
    """Numbers combinations of sums so that a set of them fits into one integer."""

    @property
    def bits(self) -> int:
        """Of one set, about."""
        ...

    def adding(self, amounts: Amounts) -> Callable[[Sums], Sums]:
        """Adds `amounts` to each sum of a set; sums beyond the limits are dropped."""
        ...

    def layers(self, draws: Sequence[Amounts], most: int) -> list[Sums]:
        """For each number of devices up to `most` the sums that so many of `draws` reach."""
        ...

    def is_within(self, reached: Sums, left: Amounts) -> bool:
        """Whether some sum is at most `left`."""
        ...


class SumRows:
    """Sums of k devices, worked out device by device; may be stopped in between.

    Row i has the sums that the first i devices reach, by k, each added to a sum of `base`.
    """

    __slots__ = ("_draws", "_space", "_stride", "last", "rows")

    def __init__(self, space: SumSpace, draws: Sequence[Amounts], count: int, base: Sums, stride: int) -> None:
        """Every `stride`th row is kept; 0: only the last one."""
        self._space = space
        self._draws = list(draws)[::-1]
        self._stride = stride
        self.last = [base] + [NO_WAY] * count
        self.rows = [self.last] if stride else []

    def work_out(self, look: Callable[[], None]) -> None:
        while self._draws:
            if len(self._draws) % DEVICES_PER_LOOK == 0:
                look()
            add, last = self._space.adding(self._draws.pop()), self.last
            self.last = [last[0]]
            for k in range(1, len(last)):
                self.last.append(joined(last[k], add(last[k - 1])) if last[k - 1] else last[k])
            if self._stride and len(self._draws) % self._stride == 0:
                self.rows.append(self.last)


class BoxSpace:
    """Every combination of sums up to the limits has its own bit."""

    __slots__ = ("_all", "_counters", "_limits", "_repeated", "_steps", "_strides", "bits")

    def __init__(self, counters: Sequence[int], steps: Sequence[int], limits: Sequence[int]) -> None:
        """`counters` are the places of the amounts that count."""
        self._counters = counters
        self._steps = steps
        self._limits = limits
        self._strides: list[int] = []
        width = 1
        for limit in limits:
            self._strides.append(width)
            # Twice the limit, so that adding one amount never reaches into the next row.
            width *= 2 * limit + 1
        self.bits = width
        self._repeated = [
            _repeated(stride, limit + 1) if place else 1
            for place, (stride, limit) in enumerate(zip(self._strides, limits, strict=True))
        ]
        self._all = self._box(limits)

    @classmethod
    def of(cls, counters: Sequence[int], draws: Sequence[Amounts], left: Amounts) -> BoxSpace | None:
        """None if there are too many combinations."""
        steps = [_step([amounts[counter] for amounts in draws]) for counter in counters]
        limits = [max(left[counter], -1) // step for counter, step in zip(counters, steps, strict=True)]
        bits = 1
        for limit in limits:
            if limit < 0:
                return None
            bits *= 2 * limit + 1
            if bits > MOST_BITS:
                return None
        return cls(counters, steps, limits)

    @classmethod
    def rounded(cls, counter: int, draws: Sequence[Amounts], left: Amounts) -> BoxSpace:
        """One counter; where there are too many sums, all amounts are rounded down."""
        most = max(left[counter], 0)
        step = max(_step([amounts[counter] for amounts in draws]), 2 * most // MOST_BITS + 1)
        return cls((counter,), (step,), (most // step,))

    def adding(self, amounts: Amounts) -> Callable[[Sums], Sums]:
        shift, every = self._shift(amounts), self._all
        if shift is None:
            return lambda reached: NO_WAY

        def add(reached: Sums) -> Sums:
            moved = reached[0] << shift & every if reached else 0
            return {0: moved} if moved else NO_WAY

        return add

    def layers(self, draws: Sequence[Amounts], most: int) -> list[Sums]:
        sets, every, highest = [1] + [0] * most, self._all, 0
        for amounts in draws:
            shift = self._shift(amounts)
            if shift is not None:
                highest = min(highest + 1, most)
                for k in range(highest, 0, -1):
                    sets[k] |= sets[k - 1] << shift & every
        return [{0: reached} if reached else NO_WAY for reached in sets]

    def _shift(self, amounts: Amounts) -> int | None:
        """How far `amounts` move each sum; None if they alone are beyond the limits."""
        shift = 0
        for counter, step, limit, stride in zip(self._counters, self._steps, self._limits, self._strides, strict=True):
            amount = amounts[counter] // step
            if amount > limit:
                return None
            shift += amount * stride
        return shift

    def is_within(self, reached: Sums, left: Amounts) -> bool:
        lefts = [left[counter] // step for counter, step in zip(self._counters, self._steps, strict=True)]
        if min(lefts) < 0 or not reached:
            return False
        return reached[0] & self._box([min(one, limit) for one, limit in zip(lefts, self._limits, strict=True)]) != 0

    def _box(self, lefts: Sequence[int]) -> int:
        mask = (1 << lefts[0] + 1) - 1
        for place in range(1, len(lefts)):
            stride = self._strides[place]
            mask *= self._repeated[place] & (1 << lefts[place] * stride + 1) - 1
        return mask


def _repeated(stride: int, times: int) -> int:
    """A bit every `stride` bits."""
    mask = 1
    count = 1
    while count < times:
        mask |= mask << count * stride
        count *= 2
    return mask & (1 << (times - 1) * stride + 1) - 1


class LineSpace:
    """Two counters of which every device takes amounts on one line: a·x + b·y = c, with b above zero.

    The number of devices and the sum of x then say what the sum of y is.
    """

    __slots__ = ("_limit", "_line", "_step", "_x", "_y", "bits")

    def __init__(self, x: int, y: int, line: tuple[int, int, int], step: int, limit: int) -> None:
        self._x, self._y = x, y
        self._line = line
        self._step = step
        self._limit = limit
        self.bits = limit + 1

    @classmethod
    def of(cls, x: int, y: int, draws: Sequence[Amounts], left: Amounts) -> LineSpace | None:
        line = _line([(amounts[x], amounts[y]) for amounts in draws])
        step = _step([amounts[x] for amounts in draws])
        if line is None or left[x] < 0 or left[y] < 0 or left[x] // step >= MOST_BITS:
            return None
        return cls(x, y, line, step, left[x] // step)

    def adding(self, amounts: Amounts) -> Callable[[Sums], Sums]:
        amount, every = amounts[self._x] // self._step, (1 << self._limit + 1) - 1
        if amount > self._limit:
            return lambda reached: NO_WAY

        def add(reached: Sums) -> Sums:
            moved = {number + 1: sums << amount & every for number, sums in reached.items()}
            return {number: sums for number, sums in moved.items() if sums}

        return add

    def layers(self, draws: Sequence[Amounts], most: int) -> list[Sums]:
        found = [NOTHING] + [NO_WAY] * most
        for amounts in draws:
            add = self.adding(amounts)
            for k in range(most, 0, -1):
                if found[k - 1]:
                    found[k] = joined(found[k], add(found[k - 1]))
        return found

    def is_within(self, reached: Sums, left: Amounts) -> bool:
        a, b, c = self._line
        limit = min(left[self._x] // self._step, self._limit)
        for number, sums in reached.items():
            # a·x is at least this, and x at most the limit.
            least = number * c - b * left[self._y]
            low, high = 0, limit
            if a > 0:
                low = max(0, -(-least // (a * self._step)))
            elif a < 0:
                high = min(limit, least // (a * self._step))
            elif least > 0:
                continue
            if low <= high and sums >> low & (1 << high - low + 1) - 1:
                return True
        return False


def _line(points: Sequence[tuple[int, int]]) -> tuple[int, int, int] | None:
    """a, b, c with b > 0 so that a·x + b·y = c for all points; None if they are not on such a line."""
    x0, y0 = points[0]
    other = next(((x, y) for x, y in points if x != x0), None)
    if other is None:
        a, b = 0, 1
    else:
        x1, y1 = other if other[0] < x0 else (x0, y0)
        x2, y2 = (x0, y0) if other[0] < x0 else other
        a, b = y1 - y2, x2 - x1
    c = a * x0 + b * y0
    return (a, b, c) if all(a * x + b * y == c for x, y in points) else None


@lru_cache(maxsize=1024)
def most_within(draws: tuple[tuple[int, ...], ...], left: tuple[int, ...], most: int) -> int:
    """How many of these can be drawn together, `most` at most; a bound where working it out would take too long.

    Remembered: cards of one model, nodes of one kind and the questions of an explanation ask the same again and again.
    """
    for space in spaces_of(draws, left):
        if work_of(space, len(draws), most) <= MOST_WORK_AT_ONCE:
            layers = space.layers(draws, most)
            while not space.is_within(layers[most], left):
                most -= 1
    return most


def _step(amounts: Sequence[int]) -> int:
    return gcd(*amounts) or 1


def spaces_of(draws: Sequence[Amounts], left: Amounts) -> list[SumSpace]:
    """All counters together if there are few combinations; otherwise what can be said about pairs and single counters."""
    counters = range(len(left))
    together = BoxSpace.of(counters, draws, left)
    if together is not None:
        return [together]
    spaces: list[SumSpace] = []
    covered: set[int] = set()
    for x in counters:
        for y in range(x + 1, len(left)):
            pair = BoxSpace.of((x, y), draws, left) or LineSpace.of(x, y, draws, left)
            if pair is not None:
                spaces.append(pair)
                covered |= {x, y}
    spaces += [BoxSpace.rounded(counter, draws, left) for counter in counters if counter not in covered]
    return spaces
