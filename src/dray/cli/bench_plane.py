"""The control plane under the benchmark: API server, controllers and scheduler in one process, as in `dray up`.

`python -m dray.cli.bench_plane DIRECTORY [PROFILE]` serves HTTPS until its standard input ends. Each line there is a question,
answered with one line of JSON: `state` (how far it has come), `mark` (measure from now on), `report` (what was measured; the
profile, if one is wanted, is of the time between).
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import resource
import sys
from pathlib import Path
from typing import Any

from dray.atomic_files import write_private
from dray.cli.event_loop import run_loop, spare_the_collector
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.scheduler.service import SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

Document = dict[str, Any]


class Meter:
    """Counts the scheduler's work."""

    def __init__(self, service: SchedulerService, profile: Path | None) -> None:
        self._profile, self._profiler = profile, cProfile.Profile()
        self._scheduler = service.scheduler
        self._decisions: list[float] = []
        self._attempts: list[float] = []
        _tap(service.metrics.algorithm_duration, self._decisions)
        _tap(service.metrics.attempt_duration, self._attempts)
        self._steps, self._cpu_s = 0, 0.0

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
        self._steps, self._cpu_s = self._scheduler.handle.steps, _cpu_s()
        if self._profile:
            self._profiler.enable()
        return {}

    def report(self) -> Document:
        if self._profile:
            self._profiler.disable()
            self._profiler.dump_stats(self._profile)
        return {
            "steps": self._scheduler.handle.steps - self._steps,
            "cpuSeconds": _cpu_s() - self._cpu_s,
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


async def serve(directory: Path, profile: Path | None) -> None:
    # There are no kubelets here, so nobody may miss their heartbeats.
    controllers = ("*", f"-{NodeLifecycleController.name}")
    plane = ControlPlane(ControlPlaneOptions(directory / "data", controllers=controllers))
    await plane.start()
    await plane.listen()
    write_private(directory / "kubeconfig", plane.kubeconfig().encode())
    spare_the_collector()
    assert plane.scheduler is not None
    meter = Meter(plane.scheduler, profile)
    answers = {"state": meter.state, "mark": meter.mark, "report": meter.report}
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    print("{}", flush=True)
    while question := await questions.readline():
        print(json.dumps(answers[question.decode().strip()]()), flush=True)
    await plane.stop()


if __name__ == "__main__":
    run_loop(serve(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
