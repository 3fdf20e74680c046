"""What the processes under the benchmark tell about themselves: questions on standard input, answers on standard output."""

from __future__ import annotations

import asyncio
import cProfile
import json
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dray.scheduler.service import SchedulerService

Document = dict[str, Any]


async def answer_questions(answers: Mapping[str, Callable[[], Document]]) -> None:
    """One line each, until standard input ends; the first line says that everything is ready."""
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    print("{}", flush=True)
    while question := await questions.readline():
        print(json.dumps(answers[question.decode().strip()]()), flush=True)


class CpuMeter:
    """Processor time between `mark` and `report`, and a profile of it if one is wanted."""

    def __init__(self, profile: Path | None = None) -> None:
        self._profile, self._profiler = profile, cProfile.Profile()
        self._cpu_s = 0.0

    def answers(self) -> dict[str, Callable[[], Document]]:
        return {"mark": self.mark, "report": self.report}

    def mark(self) -> Document:
        self._cpu_s = _cpu_s()
        if self._profile:
            self._profiler.enable()
        return {}

    def report(self) -> Document:
        if self._profile:
            self._profiler.disable()
            self._profiler.dump_stats(self._profile)
        return {"cpuSeconds": _cpu_s() - self._cpu_s}


class SchedulerMeter(CpuMeter):
    """Counts the scheduler's work as well."""

    def __init__(self, service: SchedulerService, profile: Path | None = None) -> None:
        super().__init__(profile)
        self._scheduler = service.scheduler
        self._decisions: list[float] = []
        self._attempts: list[float] = []
        _tap(service.metrics.algorithm_duration, self._decisions)
        _tap(service.metrics.attempt_duration, self._attempts)
        self._steps = 0

    def answers(self) -> dict[str, Callable[[], Document]]:
        return {"state": self.state, **super().answers()}

    def state(self) -> Document:
        handle = self._scheduler.handle
        handle.snapshot.refresh()
        return {
            "slices": len(handle.devices.inventory.slices),
            "nodes": sum(not node.node.spec.taints for node in handle.snapshot.nodes),
            "parked": sum(entry.attempts > 0 for entry in self._scheduler.queue.waiting()),
        }

    def mark(self) -> Document:
        self._decisions.clear()
        self._attempts.clear()
        self._steps = self._scheduler.handle.steps
        return super().mark()

    def report(self) -> Document:
        return {
            **super().report(),
            "steps": self._scheduler.handle.steps - self._steps,
            "decisions": self._decisions,
            "attempts": self._attempts,
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _tap(histogram: object, into: list[float]) -> None:
    """Keep every number a histogram is given."""
    observe = histogram.observe  # type: ignore[attr-defined]

    def noted(number: float, *labels: str) -> None:
        into.append(number)
        observe(number, *labels)

    histogram.observe = noted  # type: ignore[attr-defined]
