"""One run: work and faults side by side, then peace, then the checker.

    python -m tests.torture.run --seed 7 --seconds 120 --store etcd3

The seed decides every step and every fault and when it strikes; how processes interleave is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from dray.client import CLAIMS, CONFIG_MAPS, PODS, ApiError, Client, ServerUnreachable
from dray.proof import History, HistoryFile, ProofReport, RecordingTransport, Violation, WatchRecorder, check
from dray.proof.recording import FOLLOWED
from dray.proof.rules.claim_use import (
    claim_keys,
    runs,
)
from tests.torture.faults import Faults
from tests.torture.rig import RigOptions, TortureRig, command_of
from tests.torture.workload import Workload

# On a machine that has much else to do, everything takes its time: a wait that ends too soon would blame the cluster for it.
CONVERGE_S = 300.0
PREPARED_WITHIN_S = 90.0
STEPS_PER_S = 8.0
SECONDS_BETWEEN_FAULTS = 1.4


@dataclass(frozen=True)
class Pace:
    """How long, and how much of everything meanwhile."""

    seconds: float
    steps_per_s: float = STEPS_PER_S
    seconds_between_faults: float = SECONDS_BETWEEN_FAULTS
    # On a slow machine work goes on, without new faults, until so many pods were created.
    least_pods: int = 0


NOTHING_CHECKED = ProofReport((), writes=0, reads=0, events=0, changes=0, allocations=0, overbound=0)


@dataclass
class Outcome:
    seed: int
    store: str
    seconds: float
    report: ProofReport
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    converged_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        return self.report.is_clean and not self.problems and not self.absent

    @property
    def absent(self) -> list[str]:
        """What has to happen in a run that proves anything."""
        counts = {
            "acknowledged write": self.report.writes,
            "watch event": self.report.events,
            "allocation": self.report.allocations,
            "step": sum(self.steps.values()),
            "fault": sum(self.faults.values()),
        }
        return [f"there was no {what}" for what, count in counts.items() if not count]

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}, {self.store}, {self.seconds:.0f} s: {self.report}",
            f"  {sum(self.steps.values())} steps, {sum(self.faults.values())} faults, "
            f"converged after {self.converged_s:.1f} s",
            "  " + ", ".join(f"{name} {count}" for name, count in sorted(self.steps.items())),
            "  " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            "  ended by themselves: "
            + (", ".join(f"{name} {count}" for name, count in sorted(self.exits.items())) or "none"),
            *(f"  VIOLATION {each}" for each in self.report.violations[:20]),
            *(f"  PROBLEM {each}" for each in [*self.absent, *self.problems][:20]),
        ]
        return "\n".join(lines)


async def torture(folder: Path, seed: int, pace: Pace, options: RigOptions | None = None) -> Outcome:
    rig = TortureRig(folder, options or RigOptions())
    history = HistoryFile(folder / "history.ndjson")
    try:
        await rig.start()
        outcome = await _torture(rig, history, seed, pace)
    finally:
        await rig.stop()
        history.close()
    # The cluster is gone and its memory free.
    return replace(outcome, report=check(History.load(folder / "history.ndjson"), bound_must_fit=True))


async def _torture(rig: TortureRig, history: HistoryFile, seed: int, pace: Pace) -> Outcome:
    plain = rig.client("workload")
    client = Client(RecordingTransport(plain.transport, history, actor="workload"))
    kinds = (*FOLLOWED, CONFIG_MAPS)
    followers = [
        WatchRecorder(rig.client(), history, "direct", kinds),
        WatchRecorder(rig.client("follower"), history, "hurt", kinds),
    ]
    workload, faults = Workload(client, seed, f"{rig.folder}/", list(rig.nodes)), Faults(rig, seed + 1)
    for follower in followers:
        await follower.start()
    await workload.prepare()
    await _until(lambda: rig.is_ready(plain), "nodes and drivers", rig)
    await asyncio.gather(_work(workload, seed, pace), _strike(faults, seed, pace))
    await rig.heal()
    problems = await _settle(rig, plain)
    started = time.monotonic()
    problems += await _clean_up(rig, client, workload)
    converged_s = time.monotonic() - started
    for follower in followers:
        problems += await follower.finish()
    await plain.close()
    for name in rig.apiserver_names:
        rig.parts[name].stop()
    problems += [f"guard keeps {key}" for key in rig.guard_keys()]
    problems += [f"{name} says {text}" for name in rig.parts for text in rig.tracebacks(name)]
    problems += workload.surprises
    problems += [f"{name} ended by itself" for name in sorted(rig.exits)]
    return Outcome(
        seed,
        rig.options.store,
        pace.seconds,
        NOTHING_CHECKED,
        workload.outcomes,
        faults.counts,
        rig.exits,
        problems,
        converged_s,
    )


async def _work(workload: Workload, seed: int, pace: Pace) -> None:
    chance = random.Random(seed + 2)
    deadline = time.monotonic() + pace.seconds
    while time.monotonic() < deadline or workload.outcomes["create_pod: done"] < pace.least_pods:
        assert time.monotonic() < deadline + CONVERGE_S, f"hardly any work was done: {workload.outcomes}"
        await workload.step()
        await asyncio.sleep(chance.expovariate(pace.steps_per_s))


async def _strike(faults: Faults, seed: int, pace: Pace) -> None:
    chance = random.Random(seed + 3)
    deadline = time.monotonic() + pace.seconds
    running: set[asyncio.Task[None]] = set()
    while time.monotonic() < deadline:
        await asyncio.sleep(chance.uniform(0.2, 1.8) * pace.seconds_between_faults)
        task = asyncio.create_task(faults.strike())
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


async def _settle(rig: TortureRig, client: Client) -> list[str]:
    """In peace, every pod that runs has its claims prepared on its node."""
    await _until(lambda: rig.is_ready(client), "nodes and drivers after the faults", rig)
    deadline = time.monotonic() + PREPARED_WITHIN_S
    while missing := await _unprepared(rig, client):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    return [str(each) for each in missing]


async def _unprepared(rig: TortureRig, client: Client) -> list[Violation]:
    uids = {
        f"{each.metadata.namespace}/{each.metadata.name}": each.metadata.uid
        for each in (await client.list(CLAIMS)).items
    }
    missing: list[Violation] = []
    for pod in (await client.list(PODS)).items:
        if not runs(pod):
            continue
        for name in claim_keys(pod).values():
            node = pod.spec.node_name
            if uids.get(name) not in rig.prepared(node) or uids.get(name) not in rig.checkpointed(node):
                missing.append(
                    Violation("running-unprepared", 0, f"pod {pod.metadata.name}", f"claim {name} on {node}")
                )
    return missing


async def _clean_up(rig: TortureRig, client: Client, workload: Workload) -> list[str]:
    deadline = time.monotonic() + CONVERGE_S
    left: list[str] = ["never looked"]
    while time.monotonic() < deadline:
        try:
            await workload.clean_up()
            left = [f"pod {each.metadata.name}" for each in (await client.list(PODS)).items]
            left += [f"claim {each.metadata.name}" for each in (await client.list(CLAIMS)).items]
            left += rig.leftovers()
            left += [f"process {pid}: {command_of(pid)}" for pid in rig.processes_left()]
        except (ApiError, ServerUnreachable) as error:
            left = [f"API server: {error}"]
        if not left:
            return []
        await asyncio.sleep(0.5)
    return [f"left behind after {CONVERGE_S:g} s: {each}" for each in left] + [rig.logs()]


async def _until(holds, what: str, rig: TortureRig, timeout_s: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await holds():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}\n{rig.logs()}"
        await asyncio.sleep(0.2)


def drivers_of(nodes: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """GPUs everywhere, and the other drivers on as many nodes as each has in the usual two."""
    others = [("nic",), ("cpu",), ("nic",)]
    return tuple((f"n{at}", ("gpu", *(others[at] if at < len(others) else ()))) for at in range(nodes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--store", choices=["sqlite", "etcd", "etcd3"], default="sqlite")
    parser.add_argument("--schedulers", type=int, default=2)
    parser.add_argument("--apiservers", type=int, default=1, help="several need an etcd")
    parser.add_argument("--controllers", type=int, default=1)
    parser.add_argument("--elect", action="store_true", help="schedulers and controllers choose a leader")
    parser.add_argument("--nodes", type=int, default=0, help="this many; default: the usual two")
    parser.add_argument("--steps-per-second", type=float, default=STEPS_PER_S)
    parser.add_argument("--seconds-between-faults", type=float, default=SECONDS_BETWEEN_FAULTS)
    parser.add_argument("--keep", type=Path, default=None, help="folder for logs and history")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="dray-x", ignore_cleanup_errors=True) as folder:
        where = options.keep or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        rig_options = RigOptions(
            options.store, options.schedulers, options.apiservers, options.controllers, options.elect
        )
        if options.nodes:
            rig_options = replace(rig_options, drivers=drivers_of(options.nodes))
        pace = Pace(options.seconds, options.steps_per_second, options.seconds_between_faults)
        outcome = asyncio.run(torture(where, seed, pace, rig_options))
    print(outcome, flush=True)
    sys.exit(0 if outcome.is_clean else 1)


if __name__ == "__main__":
    main()
