"""Metrics under Kubernetes' names in the Prometheus text format, and the set-up of logging."""

from __future__ import annotations

import copy
import logging
import sys
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from dray.visible_text import visible, visible_on_one_line

LabelValues = tuple[str, ...]
Sample = tuple[Mapping[str, str], float]

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# 10 ns to 10 s, as Kubernetes' work queues have them.
QUEUE_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)


class Metric(ABC):
    kind = "untyped"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = tuple(labels)

    @abstractmethod
    def lines(self) -> Iterable[str]: ...

    def _line(self, values: LabelValues, number: float, suffix: str = "", extra: tuple[str, str] | None = None) -> str:
        pairs = list(zip(self.labels, values, strict=True))
        if extra:
            pairs.append(extra)
        return _line(self.name + suffix, pairs, number)


class CounterMetric(Metric):
    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help_text, labels)
        self._values: dict[LabelValues, float] = {} if self.labels else {(): 0.0}

    def inc(self, *values: str, by: float = 1.0) -> None:
        assert len(values) == len(self.labels), f"{self.name} has labels {self.labels}"
        self._values[values] = self._values.get(values, 0.0) + by

    def value(self, *values: str) -> float:
        return self._values.get(values, 0.0)

    def lines(self) -> Iterable[str]:
        return (self._line(values, number) for values, number in sorted(self._values.items()))


class Gauge(CounterMetric):
    kind = "gauge"

    def set(self, number: float, *values: str) -> None:
        assert len(values) == len(self.labels), f"{self.name} has labels {self.labels}"
        self._values[values] = number


class ComputedGauge(Metric):
    """A gauge whose samples are computed when somebody looks."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, compute: Callable[[], Iterable[Sample]]) -> None:
        super().__init__(name, help_text)
        self._compute = compute

    def lines(self) -> Iterable[str]:
        return (_line(self.name, labels.items(), number) for labels, number in self._compute())


class ComputedCounter(ComputedGauge):
    """A counter that somebody else keeps."""

    kind = "counter"


class Histogram(Metric):
    kind = "histogram"

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS
    ) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = tuple(buckets)
        # For each set of labels the count of every bucket, and the sum at the end.
        self._rows: dict[LabelValues, list[float]] = {}

    def observe(self, number: float, *values: str) -> None:
        row = self._rows.get(values)
        if row is None:
            assert len(values) == len(self.labels), f"{self.name} has labels {self.labels}"
            row = self._rows[values] = [*[0] * (len(self._bounds) + 1), 0.0]
        row[bisect_left(self._bounds, number)] += 1
        row[-1] += number

    def count(self, *values: str) -> int:
        return int(sum(self._rows.get(values, ())[:-1]))

    def lines(self) -> Iterable[str]:
        for values, row in sorted(self._rows.items()):
            total: float = 0
            for bound, count in zip((*self._bounds, float("inf")), row[:-1], strict=True):
                total += count
                yield self._line(values, total, "_bucket", ("le", "+Inf" if bound == float("inf") else _number(bound)))
            yield self._line(values, row[-1], "_sum")
            yield self._line(values, total, "_count")


M = TypeVar("M", bound=Metric)


class Registry:
    """All metrics of a process. Asking for a name again gives the same metric."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> CounterMetric:
        return self._add(CounterMetric(name, help_text, labels))

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        return self._add(Gauge(name, help_text, labels))

    def computed_gauge(self, name: str, help_text: str, compute: Callable[[], Iterable[Sample]]) -> ComputedGauge:
        self._metrics.pop(name, None)
        return self._add(ComputedGauge(name, help_text, compute))

    def computed_counter(self, name: str, help_text: str, compute: Callable[[], Iterable[Sample]]) -> ComputedCounter:
        self._metrics.pop(name, None)
        return self._add(ComputedCounter(name, help_text, compute))

    def histogram(
        self, name: str, help_text: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS
    ) -> Histogram:
        return self._add(Histogram(name, help_text, labels, buckets))

    def _add(self, metric: M) -> M:
        known = self._metrics.setdefault(metric.name, metric)
        assert type(known) is type(metric), f"{metric.name} is already a {known.kind}"
        assert known.labels == metric.labels, f"{metric.name} already has labels {known.labels}"
        return known

    def __iter__(self) -> Iterator[Metric]:
        """By name."""
        return (self._metrics[name] for name in sorted(self._metrics))

    def text(self) -> str:
        """The Prometheus exposition format, sorted by name."""
        lines: list[str] = []
        for metric in self:
            lines += (f"# HELP {metric.name} {_escape_help(metric.help_text)}", f"# TYPE {metric.name} {metric.kind}")
            lines += metric.lines()
        return "\n".join(lines) + "\n"


class WorkQueueMetrics:
    """`workqueue_*{name=...}`, as every Kubernetes controller exports them."""

    def __init__(self, registry: Registry, name: str) -> None:
        label = ("name",)
        self._name = name
        self._depth = registry.gauge("workqueue_depth", "Current depth of workqueue", label)
        self._adds = registry.counter("workqueue_adds_total", "Total number of adds handled by workqueue", label)
        self._retries = registry.counter("workqueue_retries_total", "Total number of retries by workqueue", label)
        self._waited = registry.histogram(
            "workqueue_queue_duration_seconds", "Seconds an item stays in workqueue", label, QUEUE_BUCKETS
        )
        self._worked = registry.histogram(
            "workqueue_work_duration_seconds", "Seconds processing an item takes", label, QUEUE_BUCKETS
        )

    def added(self) -> None:
        self._adds.inc(self._name)

    def depth(self, number: int) -> None:
        self._depth.set(number, self._name)

    def retried(self) -> None:
        self._retries.inc(self._name)

    def taken(self, depth: int, waited_s: float) -> None:
        self._depth.set(depth, self._name)
        self._waited.observe(waited_s, self._name)

    def finished(self, worked_s: float) -> None:
        self._worked.observe(worked_s, self._name)


class OneLineFormatter(logging.Formatter):
    """A message is one line of visible characters: what it quotes cannot pass for a line of its own. Only tracebacks have more lines."""

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        shown.msg, shown.args = visible_on_one_line(record.getMessage()), None
        return visible(super().format(shown))


MOST_VERBOSE = 10


def level_of(verbosity: int) -> int:
    """The level of the standard library for a verbosity of Kubernetes: 4 is DEBUG, and each further one lies below the last."""
    return _LEVELS[max(0, min(verbosity, MOST_VERBOSE))]


_LEVELS: tuple[int, ...] = (*[logging.INFO] * 4, *range(logging.DEBUG, logging.DEBUG + 3 - MOST_VERBOSE, -1))
for _verbosity in range(5, MOST_VERBOSE + 1):
    logging.addLevelName(level_of(_verbosity), f"DEBUG{_verbosity}")


class VerboseLog:
    """Messages with facts, as `-v 4` to `-v 7` show them: `Device capacity not enough device="d/p/gpu-0" claim="ns/c"`.

    A message that nobody wants to see costs one comparison. A fact that costs more is given as a function.
    """

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def shows(self, verbosity: int) -> bool:
        return self._log.isEnabledFor(_LEVELS[verbosity])

    def say(self, verbosity: int, message: str, **facts: object) -> None:
        level = _LEVELS[verbosity]
        if self._log.isEnabledFor(level):
            self._log.log(level, "%s", message + "".join(f" {name}={_fact(fact)}" for name, fact in facts.items()))


def _fact(fact: object) -> str:
    """What a function returns, objects of the API as `namespace/name`, lists in brackets, numbers as they are, all else in quotes."""
    if callable(fact):
        return _fact(fact())
    if isinstance(fact, bool | int | float):
        return str(fact).lower() if isinstance(fact, bool) else str(fact)
    if isinstance(fact, list | tuple) and not hasattr(fact, "_fields"):
        return f"[{' '.join(map(_fact, fact))}]"
    metadata = getattr(fact, "metadata", None)
    text = str(fact) if metadata is None else "/".join(filter(None, (metadata.namespace, metadata.name)))
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'


def set_up_logging(verbosity: int = 0, stream: object = None) -> None:
    """Lines on standard error. Verbosity as in Kubernetes: below 4 is information, from 4 on decisions are shown, each number in more detail."""
    handler = logging.StreamHandler(stream or sys.stderr)  # type: ignore[arg-type]
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    root = logging.getLogger("dray")
    root.handlers[:] = [handler]
    root.setLevel(level_of(verbosity))


def _line(name: str, pairs: Iterable[tuple[str, str]], number: float) -> str:
    inside = ",".join(f'{label}="{_escape(value)}"' for label, value in pairs)
    return f"{name}{{{inside}}} {_number(number)}" if inside else f"{name} {_number(number)}"


def _number(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else repr(float(number))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
