"""The driver and a container runtime: who gets which CPUs and which memory, and the driver killed at each step of its work."""

import asyncio

import pytest
from tests.driver.cpu.machines import PARTLY_OFFLINE, TWO_SOCKETS, make_sysfs
from tests.driver.cpu.test_claims import some_cpus
from tests.driver.nri_runtime import StandInRuntime, nri_container
from tests.driver.test_examples import allocated, claim_to_prepare

from dray.api.codec import to_object
from dray.api.cpuset import parse_cpu_list
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.driver import ClaimReference, PrepareError, nri
from dray.driver.claim_files import CdiFiles, Checkpoint, ClaimRecords
from dray.driver.cpu import CpuDriver, MemoryDriver
from dray.driver.cpu.claim_records import CpuRecord
from dray.driver.cpu.devices import CpuOptions
from dray.driver.nri import NriPlugin
from dray.driver.prepare import ClaimPreparer

REFERENCE = ClaimReference("ns", "one", "uid-one")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(nri, "CONNECT_AGAIN_AFTER_S", 0.02)
    monkeypatch.setattr(nri, "TRY_AGAIN_AFTER_S", 0.02)


@pytest.fixture
async def runtime(tmp_path):
    async with StandInRuntime(tmp_path / "n", [nri_container("other")]) as runtime:
        yield runtime


@pytest.fixture
async def a_life(tmp_path, runtime):
    """A driver from its start, connected to the runtime, with what it finds on disk."""
    lives = []

    async def begin(machine=TWO_SOCKETS, **options):
        for task in lives:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        lives.clear()
        sysfs = make_sysfs(tmp_path / "sys", machine)
        driver = CpuDriver(CpuOptions(**options), sysfs=sysfs, nri=tmp_path / "n")
        driver.restore(tmp_path / "data")
        driver.published_pools = tuple(driver.pools("node-1"))
        runtime.registered.clear()
        lives.append(asyncio.create_task(driver.watch(lambda: None)))
        async with asyncio.timeout(20):
            await runtime.registered.wait()
        return driver

    yield begin
    for task in lives:
        task.cancel()
    await asyncio.gather(*lives, return_exceptions=True)


def cpus(runtime, name):
    return parse_cpu_list(runtime.cpus[name])


def container_of(id_, prepared):
    return nri_container(id_, **dict(entry.split("=") for entry in prepared[0].edits.env))


async def test_others_leave_the_cpus_before_the_claim_is_prepared(a_life, runtime):
    driver = await a_life()
    assert cpus(runtime, "other") == set(range(16))
    prepared = await driver.prepare(claim_to_prepare(some_cpus("cpudevnuma000", 2)))
    assert cpus(runtime, "other") == set(range(16)) - {0, 8}
    await runtime.create(container_of("mine", prepared))
    await runtime.create(nri_container("liar", DRA_CPUSET_u_1="0,8", DRA_CPU_GRANT_u_1="guessed"))
    assert (cpus(runtime, "mine"), cpus(runtime, "liar")) == ({0, 8}, set(range(16)) - {0, 8})
    await runtime.stop("mine")
    await driver.unprepare(ClaimReference("ns", "c", "u-1"))
    assert cpus(runtime, "other") == cpus(runtime, "liar") == set(range(16))


async def test_isolated_cpus_are_for_claims_only(a_life, runtime):
    driver = await a_life(PARTLY_OFFLINE, mode="individual")
    assert cpus(runtime, "other") == {0, 1, 5, 7}
    prepared = await driver.prepare(claim_to_prepare(allocated("cpudev002")))
    await runtime.create(container_of("mine", prepared))
    assert cpus(runtime, "mine") == {2}


async def test_the_last_cpus_are_not_given_away(a_life, runtime):
    driver = await a_life(group_by="machine")
    with pytest.raises(PrepareError, match="no CPU would remain for containers without a claim"):
        await driver.prepare(claim_to_prepare(some_cpus("cpudevmachine", 16)))
    await driver.prepare(claim_to_prepare(some_cpus("cpudevmachine", 15)))
    assert len(cpus(runtime, "other")) == 1


async def test_a_runtime_that_is_away_is_waited_for(a_life, runtime):
    driver = await a_life()
    runtime._server.close()
    runtime.socket.unlink(missing_ok=True)
    runtime.hang_up()
    with pytest.raises(PrepareError, match="other containers cannot be kept off CPUs 0,8: "):
        await driver.prepare(claim_to_prepare(some_cpus("cpudevnuma000", 2)))
    async with StandInRuntime(runtime.socket, [nri_container("other")]) as again:
        await again.registered.wait()
        assert 0 not in cpus(again, "other")
        await driver.prepare(claim_to_prepare(some_cpus("cpudevnuma000", 2)))


async def test_memory_is_bound_to_its_nodes(tmp_path):
    driver = MemoryDriver(sysfs=make_sysfs(tmp_path / "sys", TWO_SOCKETS), nri=tmp_path / "n")
    driver.restore(tmp_path / "data")
    list(driver.pools("node-1"))
    size = {"dra.memory/size": Quantity.parse("64Mi")}
    pages = allocated("hugepages-2minuma001", consumed_capacity=size)
    prepared = driver.prepare(claim_to_prepare(allocated("memorynuma001", consumed_capacity=size), pages))
    given = driver._resources_for(dict(entry.split("=") for entry in prepared[0].edits.env))
    assert given.cpu.mems == "1"
    assert [(each.page_size, each.limit) for each in given.hugepage_limits] == [("2MB", 64 << 20)]
    assert driver._resources_for({"DRA_MEMORY_GRANT_u_1": "guessed"}).ByteSize() == 0


# --- crashes

CLAIM = to_object(
    {
        "metadata": {"name": "one", "namespace": "ns", "uid": "uid-one"},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "cpus",
                            "driver": "dra.cpu",
                            "pool": "node-1",
                            "device": "cpudevnuma000",
                            "shareID": "s",
                            "consumedCapacity": {"dra.cpu/cpu": "2"},
                        }
                    ]
                }
            }
        },
    },
    ResourceClaim,
)
PREPARE_STEPS = [
    (Checkpoint, "begin"),
    (ClaimRecords, "put"),
    (NriPlugin, "apply"),
    (CdiFiles, "write"),
    (Checkpoint, "put"),
]
UNPREPARE_STEPS = [(ClaimRecords, "remove"), (NriPlugin, "apply"), (CdiFiles, "remove"), (Checkpoint, "remove")]


class Killed(BaseException):
    """What no code of a driver catches."""


def preparer(driver, tmp_path):
    async def fetch(reference):
        return CLAIM

    return ClaimPreparer(
        driver, fetch, Checkpoint(tmp_path / "data/prepared.json"), CdiFiles(tmp_path / "cdi", driver.name)
    )


async def killed(monkeypatch, step, is_done, call):
    """The driver dies right before the step, or right after it."""
    owner, method = step
    original = getattr(owner, method)

    def die(*arguments):
        if is_done:
            original(*arguments)
        raise Killed

    async def die_async(*arguments):
        if is_done:
            await original(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, die_async if asyncio.iscoroutinefunction(original) else die)
        with pytest.raises(Killed):
            await call


def left_behind(tmp_path):
    return {
        "cdi": [path.name for path in (tmp_path / "cdi").glob("*")],
        "records": ClaimRecords(tmp_path / "data/cpus.json", CpuRecord).records(),
        "checkpoint": Checkpoint(tmp_path / "data/prepared.json").claims(),
    }


NOTHING = {"cdi": [], "records": (), "checkpoint": {}}
steps = pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])


async def is_gone(reference):
    return True


@steps
@pytest.mark.parametrize("step", PREPARE_STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
async def test_killed_while_preparing(a_life, runtime, monkeypatch, tmp_path, step, is_done):
    """The next life prepares the claim when it is asked again, and gives everything back when the claim is gone."""
    await killed(monkeypatch, step, is_done, preparer(await a_life(), tmp_path).prepare([REFERENCE]))
    life = preparer(await a_life(), tmp_path)
    assert not isinstance((await life.prepare([REFERENCE]))["uid-one"], str)
    assert cpus(runtime, "other") == set(range(16)) - {0, 8}
    await killed(monkeypatch, (Checkpoint, "remove"), False, life.unprepare([REFERENCE]))
    await preparer(await a_life(), tmp_path).give_back_leftovers(is_gone)
    assert left_behind(tmp_path) == NOTHING
    assert cpus(runtime, "other") == set(range(16))


@steps
@pytest.mark.parametrize("step", UNPREPARE_STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
async def test_killed_while_giving_back(a_life, runtime, monkeypatch, tmp_path, step, is_done):
    life = preparer(await a_life(), tmp_path)
    await life.prepare([REFERENCE])
    await killed(monkeypatch, step, is_done, life.unprepare([REFERENCE]))
    await preparer(await a_life(), tmp_path).give_back_leftovers(is_gone)
    assert left_behind(tmp_path) == NOTHING
    assert cpus(runtime, "other") == set(range(16))
