"""Random work under random faults, on both stores. The seed is printed; `python -m tests.torture.run --seed N` repeats it."""

import os
import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.torture.rig import RigOptions
from tests.torture.run import NOTHING_CHECKED, Outcome, Pace, torture

LONG_S = float(os.environ.get("DRAY_TORTURE_SECONDS", "240"))


def seed_of_this_run() -> int:
    text = os.environ.get("DRAY_SEED", "")
    return int(text) if text else random.SystemRandom().randrange(10**6)


async def run(store: str, seconds: float, schedulers: int = 2, **more: Any) -> None:
    seed = seed_of_this_run()
    print(f"seed {seed}: repeat with python -m tests.torture.run --seed {seed} --store {store} --seconds {seconds:g}")
    with tempfile.TemporaryDirectory(prefix="dray-x", ignore_cleanup_errors=True) as folder:
        outcome = await torture(Path(folder), seed, Pace(seconds, least_pods=10), RigOptions(store, schedulers, **more))
    print(outcome)
    assert outcome.is_clean, str(outcome)


def test_a_run_in_which_nothing_happened_is_not_clean():
    report = replace(NOTHING_CHECKED, writes=1, events=1, allocations=1)
    outcome = Outcome(1, "sqlite", 1.0, report, Counter(step=1), Counter(fault=1))
    assert outcome.is_clean
    for field in ("writes", "events", "allocations"):
        assert not replace(outcome, report=replace(report, **{field: 0})).is_clean
    assert not replace(outcome, steps=Counter()).is_clean
    idle = replace(outcome, faults=Counter())
    assert not idle.is_clean
    assert "PROBLEM there was no fault" in str(idle)


@pytest.mark.timeout(400)
async def test_a_short_run():
    await run("sqlite", 12)


@pytest.mark.torture
@pytest.mark.timeout(LONG_S + 600)
@pytest.mark.parametrize(
    ("store", "schedulers"), [("sqlite", 2), ("etcd", 2), ("etcd3", 2), ("sqlite", 1), ("etcd3", 3)]
)
async def test_a_long_run(store, schedulers):
    await run(store, LONG_S, schedulers)


@pytest.mark.torture
@pytest.mark.timeout(LONG_S + 600)
@pytest.mark.parametrize("elects", [True, False])
async def test_a_long_run_with_many_servers(elects):
    await run("etcd3", LONG_S, apiservers=3, controllers=2 if elects else 1, elects=elects)
