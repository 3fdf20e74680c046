"""The processes of the control plane under the benchmark, and the measurements that they report about themselves.

`python -m dray.sim.bench.process_main server DIRECTORY [--pipe DESCRIPTOR] [--profile FILE]` runs the API server, with controllers
and scheduler in the same process unless a pipe is given. `... loops DESCRIPTOR` runs controllers and scheduler at the other
end of the pipe. `... leases KUBECONFIG NODES SECONDS` renews the lease of every node in so many seconds, over HTTPS. All answer questions on standard input with a line of JSON on standard output, until standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import json
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dray.api.core import Lease, LeaseSpec
from dray.api.meta import ObjectMeta
from dray.atomic_files import write_private
from dray.client import LEASES, Client, connect
from dray.clock import rfc3339_micro
from dray.controllers.node_lifecycle import LEASE_NAMESPACE, NodeLifecycleController
from dray.event_loop import YOUNG_OF_A_SERVER, run_loop, spare_the_collector
from dray.scheduler.service import SchedulerService
from dray.sim.control_loops import LoopsOptions
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.loops_main import connected_loops
from dray.tasks import cancelled

Document = dict[str, Any]

# Connections. Nodes do not wait for each other: with so many, a lease is renewed late only if an answer takes longer than the time between
# two renewals of one connection, which is 0.17 s for 15,000 nodes.
RENEWALS_AT_ONCE = 256
# The benchmark has no kubelets, so no controller may act on missing heartbeats.
CONTROLLERS = ("*", f"-{NodeLifecycleController.name}")


async def serve_plane(directory: Path, pipe: int | None, profile: Path | None) -> None:
    options = ControlPlaneOptions(directory / "data", controllers=CONTROLLERS, loops_apart=pipe is not None)
    plane = ControlPlane(options)
    await plane.start()
    await plane.listen()
    write_private(directory / "kubeconfig", plane.kubeconfig().encode())
    if pipe is not None:
        await plane.serve_pipe(socket.socket(fileno=pipe))
    spare_the_collector(YOUNG_OF_A_SERVER)
    meter = SchedulerMeter(plane.scheduler, profile) if plane.scheduler else CpuMeter(profile)
    await answer_questions(meter.answers())
    await plane.stop()


async def serve_loops(descriptor: int) -> None:
    loops, _ = await connected_loops(descriptor, LoopsOptions(controllers=CONTROLLERS))
    await loops.start()
    spare_the_collector()
    assert loops.scheduler is not None
    await answer_questions(SchedulerMeter(loops.scheduler).answers())
    await loops.stop()


class LeaseRenewals:
    """Creates the leases of all nodes, then renews each of them once in `period_s`, evenly spread, and counts."""

    def __init__(self, client: Client, nodes: int, period_s: float) -> None:
        self._client, self._nodes, self._period_s = client, nodes, period_s
        self._lanes = range(min(RENEWALS_AT_ONCE, nodes))
        self.ready = asyncio.Event()
        self._leases: dict[int, Lease] = {}
        self._renewed, self._since, self._late_s = 0, 0.0, 0.0

    async def run(self) -> None:
        await asyncio.gather(*(self._create(self._of_lane(lane)) for lane in self._lanes))
        self.ready.set()
        started = time.monotonic()
        await asyncio.gather(*(self._renew(self._of_lane(lane), started) for lane in self._lanes))

    def _of_lane(self, lane: int) -> range:
        return range(lane, self._nodes, len(self._lanes))

    async def _create(self, numbers: range) -> None:
        for number in numbers:
            spec = LeaseSpec(
                holder_identity=f"node-{number}",
                lease_duration_seconds=int(self._period_s * 4),
                renew_time=rfc3339_micro(self._client.clock.now()),
            )
            metadata = ObjectMeta(name=f"node-{number}", namespace=LEASE_NAMESPACE)
            self._leases[number] = await self._client.create(LEASES, Lease(metadata=metadata, spec=spec))

    async def _renew(self, numbers: range, started: float) -> None:
        for turn in itertools.count():
            for number in numbers:
                due = started + (turn + number / self._nodes) * self._period_s
                wait_s = due - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                lease = self._leases[number]
                spec = msgspec.structs.replace(lease.spec, renew_time=rfc3339_micro(self._client.clock.now()))
                self._leases[number] = await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
                self._renewed += 1
                self._late_s = max(self._late_s, time.monotonic() - due)

    def answers(self) -> dict[str, Callable[[], Document]]:
        return {"mark": self.mark, "report": self.report}

    def mark(self) -> Document:
        self._renewed, self._since, self._late_s = 0, time.monotonic(), 0.0
        return {}

    def report(self) -> Document:
        return {"leasesPerSecond": self._renewed / (time.monotonic() - self._since), "lateSeconds": self._late_s}


async def renew_leases(kubeconfig: Path, nodes: int, period_s: float) -> None:
    client = connect(kubeconfig, component="kubelet")
    renewals = LeaseRenewals(client, nodes, period_s)
    spare_the_collector()
    working = asyncio.create_task(renewals.run())
    await asyncio.wait({working, asyncio.create_task(renewals.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()
    await answer_questions(renewals.answers())
    await cancelled(working)
    await client.close()


async def answer_questions(answers: Mapping[str, Callable[[], Document]]) -> None:
    """Answers one line each until standard input ends; the first line says that the process is ready."""
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
    """Also keeps every number that the histogram observes."""
    observe = histogram.observe  # type: ignore[attr-defined]

    def noted(number: float, *labels: str) -> None:
        into.append(number)
        observe(number, *labels)

    histogram.observe = noted  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("directory", type=Path)
    server.add_argument("--pipe", type=int)
    server.add_argument("--profile", type=Path)
    roles.add_parser("loops").add_argument("descriptor", type=int)
    leases = roles.add_parser("leases")
    leases.add_argument("kubeconfig", type=Path)
    leases.add_argument("nodes", type=int)
    leases.add_argument("seconds", type=float)
    given = parser.parse_args()
    if given.role == "server":
        run_loop(serve_plane(given.directory, given.pipe, given.profile))
    elif given.role == "loops":
        run_loop(serve_loops(given.descriptor))
    else:
        run_loop(renew_leases(given.kubeconfig, given.nodes, given.seconds))


if __name__ == "__main__":
    main()
