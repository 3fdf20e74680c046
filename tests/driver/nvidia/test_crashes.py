"""The driver is killed at each step of its work; its next life leaves nothing behind of claims that are gone."""

import pytest
from tests.driver.nvidia.test_claims import mps_pids

from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.driver import ClaimReference
from dray.driver.claim_files import CdiFiles, Checkpoint
from dray.driver.nvidia import NvidiaDriver
from dray.driver.nvidia.claim_records import CardRecords
from dray.driver.nvidia.mps import MpsDaemon
from dray.driver.prepare import ClaimPreparer

REFERENCE = ClaimReference("default", "one", "uid-one")
CLAIM = ResourceClaim(
    metadata=ObjectMeta(name="one", namespace="default", uid="uid-one"),
    status=ResourceClaimStatus(
        allocation=AllocationResult(
            devices=DeviceAllocationResult(
                results=(
                    DeviceRequestAllocationResult(
                        request="gpu",
                        driver="gpu.nvidia.com",
                        pool="h200",
                        device="gpu-0",
                        share_id="s",
                        consumed_capacity={"memory": Quantity.parse("10Gi")},
                    ),
                )
            )
        )
    ),
)

PREPARE_STEPS = [
    (Checkpoint, "begin"),
    (CardRecords, "put"),
    (MpsDaemon, "ensure_running"),
    (NvidiaDriver, "_edits"),
    (CdiFiles, "write"),
    (Checkpoint, "put"),
]
UNPREPARE_STEPS = [
    (CardRecords, "remove"),
    (MpsDaemon, "stop"),
    (NvidiaDriver, "unprepare"),
    (CdiFiles, "remove"),
    (Checkpoint, "remove"),
]


class Killed(BaseException):
    """What no code of a driver catches."""


@pytest.fixture
def a_life(make_driver, tmp_path):
    """A driver from its start, with what it finds on disk."""

    async def fetch(reference):
        return CLAIM

    def begin():
        data = tmp_path / "data"
        driver = make_driver(is_shared=True)
        return ClaimPreparer(driver, fetch, Checkpoint(data / "prepared.json"), CdiFiles(tmp_path / "cdi", driver.name))

    return begin


async def killed(monkeypatch, step, is_done, call):
    """The driver dies right before the step, or right after it."""
    owner, method = step
    original = getattr(owner, method)

    def die(*arguments, **named):
        if is_done:
            original(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, die)
        with pytest.raises(Killed):
            await call


def left_behind(tmp_path):
    return {
        "daemons": len(mps_pids(tmp_path)),
        "cdi": [path.name for path in (tmp_path / "cdi").glob("*")],
        "mps folders": [path.name for path in (tmp_path / "data/mps").glob("*")],
        "records": list(CardRecords(tmp_path / "data/claims.json").records()),
        "checkpoint": Checkpoint(tmp_path / "data/prepared.json").claims(),
    }


NOTHING = {"daemons": 0, "cdi": [], "mps folders": [], "records": [], "checkpoint": {}}


async def is_gone(reference):
    return True


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", PREPARE_STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
async def test_killed_while_preparing_and_the_claim_is_gone(a_life, monkeypatch, tmp_path, step, is_done):
    await killed(monkeypatch, step, is_done, a_life().prepare([REFERENCE]))
    await a_life().give_back_leftovers(is_gone)
    assert left_behind(tmp_path) == NOTHING


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", PREPARE_STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
async def test_killed_while_preparing_and_asked_again(a_life, monkeypatch, tmp_path, step, is_done):
    await killed(monkeypatch, step, is_done, a_life().prepare([REFERENCE]))
    life = a_life()
    answer = (await life.prepare([REFERENCE]))["uid-one"]
    assert not isinstance(answer, str)
    assert len(mps_pids(tmp_path)) == 1
    assert await life.unprepare([REFERENCE]) == {"uid-one": ""}
    assert left_behind(tmp_path) == NOTHING


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", UNPREPARE_STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
async def test_killed_while_giving_back(a_life, monkeypatch, tmp_path, step, is_done):
    life = a_life()
    await life.prepare([REFERENCE])
    await killed(monkeypatch, step, is_done, life.unprepare([REFERENCE]))
    await a_life().give_back_leftovers(is_gone)
    assert left_behind(tmp_path) == NOTHING
