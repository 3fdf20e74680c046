"""What a benchmark hands in: a name, a number, and the limit it has to stay under."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number. `spread` is the median over the best round: 1.0 is a quiet machine, 2.0 a busy one."""

    room: str
    name: str
    value: float
    unit: str
    limit: float | None
    at_least: bool
    spread: float | None

    @property
    def is_met(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"met": self.is_met}


class Report:
    """Collects the rows of one room."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.rows: list[Row] = []

    def measure(
        self,
        name: str,
        fn: Callable[[], object],
        *,
        limit_us: float | None = None,
        rounds: int = 7,
        round_s: float = 0.05,
    ) -> float:
        """Time `fn` in rounds of about `round_s` seconds; the best round counts, in microseconds per call."""
        fn()
        started = time.perf_counter()
        fn()
        once = max(time.perf_counter() - started, 1e-7)
        calls = max(1, int(round_s / once))
        times = [self._round(fn, calls) for _ in range(rounds)]
        best = min(times)
        self._add(name, best, "us", limit_us, at_least=False, spread=statistics.median(times) / best)
        return best

    def record(self, name: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> None:
        """Hand in a number measured elsewhere; with `at_least` the limit is a floor."""
        self._add(name, value, unit, limit, at_least=at_least, spread=None)

    def _add(
        self, name: str, value: float, unit: str, limit: float | None, *, at_least: bool, spread: float | None
    ) -> None:
        self.rows.append(Row(self.room, name, value, unit, limit, at_least, spread))

    @staticmethod
    def _round(fn: Callable[[], object], calls: int) -> float:
        gc.collect()
        gc.disable()
        try:
            started = time.perf_counter()
            for _ in range(calls):
                fn()
            return (time.perf_counter() - started) / calls * 1e6
        finally:
            gc.enable()
