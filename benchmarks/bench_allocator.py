"""The allocator alone: the questions of workloads/allocator.yaml, and the upkeep of inventory and ledger."""

import gc
import time
from pathlib import Path
from statistics import median
from typing import Any

from allocator_shapes import SHAPES
from allocator_worlds import as_line, workloads
from report import Report

from dray.allocator import Allocator, Inventory, Ledger, scenarios
from dray.allocator.scenarios import Scenario, World

MANY_NODES = 5000
VECTORS = Path(__file__).parent.parent / "tests" / "allocator" / "data" / "allocator.ndjson"


def run(report: Report) -> None:
    for workload in workloads():
        _warm_and_cold(report, workload)
    _shapes(report)
    _small_scenarios(report)
    _upkeep(report)


def _warm_and_cold(report: Report, workload: dict[str, Any]) -> None:
    scenario = scenarios.read_scenario(as_line(workload))
    world = World(scenario)
    replies = scenarios.ask(world.question(), scenario)
    outcomes = {scenarios.reply_document(reply)["outcome"] for reply in replies}
    if outcomes != {workload["outcome"]}:
        raise AssertionError(f"{workload['name']}: {outcomes}")
    best = min(_warm(world) for _ in range(40))
    report.record(f"{workload['name']}, warm", best, "us", workload["warm_us"])
    report.record(f"{workload['name']}, cold", min(_timed(lambda: _ask_cold(scenario)) for _ in range(3)), "us")
    steps = scenarios.steps_of(replies)
    report.record(f"{workload['name']}, steps", steps, "steps", workload.get("most_steps"))


def _shapes(report: Report) -> None:
    """Counted steps, and what one of them costs on average."""
    for shape in SHAPES:
        for size in shape.sizes:
            scenario = scenarios.read_scenario(shape.line(size))
            world = World(scenario)
            best = min(_warm(world) for _ in range(3))
            steps = scenarios.steps_of(scenarios.ask(world.question(), scenario))
            report.record(f"{shape.name}, {size}, steps", steps, "steps", shape.most_steps)
            report.record(f"{shape.name}, {size}, a step", best / steps, "us", 100)


def _warm(world: World) -> float:
    """Inventory compiled, ledger up to date, nothing remembered of this claim."""
    world.forget_selectors()
    return _timed(lambda: scenarios.ask(world.question(), world.scenario))


def _ask_cold(scenario: Scenario) -> None:
    scenarios.ask(World(scenario).question(), scenario)


def _timed(fn: Any) -> float:
    """Microseconds of this process; other work on the machine does not count."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        fn()
        return (time.process_time() - started) * 1e6
    finally:
        gc.enable()


def _small_scenarios(report: Report) -> None:
    """Recorded scenarios, each from objects in memory to its answer."""
    if not VECTORS.exists():
        return
    read = [scenarios.read_scenario(line) for line in VECTORS.read_bytes().splitlines()]
    for scenario in read:
        _ask_cold(scenario)
    times = [_timed_wall(scenario) for scenario in read]
    report.record("small scenario, cold, median", median(times), "us", 300)


def _timed_wall(scenario: Scenario) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        _ask_cold(scenario)
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def _upkeep(report: Report) -> None:
    workload = dict(workloads()[0], nodes=MANY_NODES)
    scenario = scenarios.read_scenario(as_line(workload))
    gc.collect()
    before = _resident_mb()
    started = time.process_time()
    inventory = Inventory()
    for published in scenario.slices:
        inventory.apply_slice(published)
    for node in scenario.asked:
        inventory.pools_on(node)
    report.record("compile 5,000 nodes x 10", time.process_time() - started, "s", 6)
    gc.collect()
    report.record("compiled 5,000 nodes x 10", _resident_mb() - before, "MB", 250)
    ledger = Ledger(inventory.features)
    allocator = Allocator(inventory, ledger, scenario.classes)
    fits, _ = allocator.question(scenario.claims).fitting(scenario.asked, MANY_NODES)
    result = fits[0].results(scenarios.numbered_shares())[0]

    def claim_events() -> None:
        ledger.assume("default", "claim", result)
        ledger.forget("default", "claim")

    def slice_update() -> None:
        inventory.apply_slice(scenario.slices[7])
        inventory.pools_on(scenario.asked[7])

    def next_pod() -> None:
        found, _ = allocator.question(scenario.claims).fitting(scenario.asked, 500)
        ledger.assume("default", "next", found[0].results(scenarios.numbered_shares())[0])

    report.measure("two claim events", claim_events, limit_us=60)
    report.measure("slice update", slice_update, limit_us=2000)
    report.measure("next pod, 500 of 5,000 nodes", next_pod)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
