"""Which CPUs and which memory claims get."""

import re

import pytest
from tests.driver.cpu.machines import HYBRID, TWO_SOCKETS, make_sysfs
from tests.driver.test_examples import allocated, claim_to_prepare

from dray.api.quantity import Quantity
from dray.driver import ClaimReference, DeviceConfig, PrepareError
from dray.driver.cpu import MemoryDriver
from dray.driver.cpu.choice import choose_cpus
from dray.driver.cpu.devices import CAPACITY
from dray.driver.cpu.topology import read_cpus


def some_cpus(device, count, **fields):
    return allocated(device, consumed_capacity={CAPACITY: Quantity.of(count)}, share_id="s", **fields)


async def given(driver, *devices, uid="u-1"):
    """The CPUs that the container of a new claim is told."""
    (prepared, *_) = await driver.prepare(claim_to_prepare(*devices, uid=uid))
    return dict(entry.split("=") for entry in prepared.edits.env)[f"DRA_CPUSET_{uid.replace('-', '_')}"]


async def test_claims_get_whole_cores_and_never_the_same_cpu(make_driver):
    driver = make_driver()
    assert await given(driver, some_cpus("cpudevnuma000", 2), uid="a") == "0,8"
    assert await given(driver, some_cpus("cpudevnuma000", 1), uid="b") == "1"
    assert await given(driver, some_cpus("cpudevnuma000", 1), uid="c") == "9", "the rest of a core in use comes first"
    again = make_driver()
    assert await given(again, some_cpus("cpudevnuma000", 2), uid="a") == "0,8", "after a restart, too"
    with pytest.raises(PrepareError, match="device cpudevnuma000: 5 CPUs are claimed, 4 are free on this machine"):
        await given(again, some_cpus("cpudevnuma000", 5), uid="d")
    await again.unprepare(ClaimReference("ns", "c", "a"))
    assert await given(again, some_cpus("cpudevnuma000", 6), uid="d") == "0,2-3,8,10-11"


async def test_a_claim_may_have_several_devices(make_driver):
    driver = make_driver()
    assert await given(driver, some_cpus("cpudevnuma000", 1), some_cpus("cpudevnuma001", 2)) == "0,4,12"
    single = make_driver(mode="individual")
    assert await given(single, allocated("cpudev002"), allocated("cpudev010"), uid="u-2") == "2,10"


async def test_a_device_that_is_gone_and_one_that_is_only_looked_at(make_driver):
    driver = make_driver(mode="individual", reserved=frozenset({3}))
    with pytest.raises(PrepareError, match="device cpudev003: its CPUs are offline or reserved now"):
        await given(driver, allocated("cpudev003"))
    assert await given(driver, allocated("cpudev002", admin_access=True)) == ""
    assert await given(driver, allocated("cpudev002"), uid="u-2") == "2", "whoever only looks holds nothing"


@pytest.mark.parametrize(
    ("taken", "count", "expected"),
    [
        pytest.param(set(), 4, {0, 1, 8, 9}, id="cpus-of-one-cache"),
        pytest.param({0}, 2, {1, 9}, id="a-whole-core-beside-one-in-use"),
        pytest.param({0, 8, 1}, 1, {9}, id="the-fullest-cache-that-has-room"),
        pytest.param({0, 8}, 5, {1, 2, 3, 10, 11}, id="over-two-caches"),
        pytest.param({2, 3}, 2, {0, 8}, id="a-whole-core-rather-than-the-fullest-cache"),
        pytest.param(set(range(16)), 1, None, id="none-is-free"),
    ],
)
def test_choice(tmp_path, taken, count, expected):
    group = [cpu for cpu in read_cpus(make_sysfs(tmp_path, TWO_SOCKETS)) if cpu.numa_node == 0]
    assert choose_cpus(group, taken, count) == expected


def test_an_odd_cpu_comes_from_a_core_of_one_thread(tmp_path):
    assert choose_cpus(read_cpus(make_sysfs(tmp_path, HYBRID)), set(), 3) == {0, 1, 4}


def choice(cpuset, source="FromClaim", **more):
    return (DeviceConfig(source, {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": cpuset}, **more}),)


async def test_a_claim_may_name_its_cpus(make_driver):
    driver = make_driver(group_by="machine")
    assert await given(driver, some_cpus("cpudevmachine", 4, config=choice("2-5"))) == "2-5"
    assert await given(driver, some_cpus("cpudevmachine", 2, config=choice("")), uid="u-2") == "0,8"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (choice("1-2"), "cpuConfig.cpuset '1-2' of device cpudevnuma000: the claim has 1 CPUs"),
        (choice("4"), "CPUs 4 are not offered there"),
        (choice("0"), "CPUs 0 are in use by another claim"),
        (choice("first"), "cpuConfig.cpuset 'first': must be a list such as 2-5,8"),
        (choice("1", "FromClass"), "a class cannot choose CPUs"),
        (choice("1", cores=2), "unknown field `cores`"),
        ((DeviceConfig("FromClaim", {"apiVersion": "v9"}),), "apiVersion 'v9': must be v1alpha1"),
    ],
)
async def test_parameters_that_make_no_sense_are_refused(make_driver, config, complaint):
    driver = make_driver()
    await given(driver, some_cpus("cpudevnuma000", 2), uid="other")
    with pytest.raises(PrepareError, match=re.escape(complaint)):
        await given(driver, some_cpus("cpudevnuma000", 1, config=config))


async def test_health_tells_of_cpus_that_went_offline(make_driver):
    driver = make_driver()
    await given(driver, some_cpus("cpudevnuma000", 2))
    assert {each.health for each in driver.health()} == {"Healthy"}
    shrunk = make_driver(TWO_SOCKETS.__class__(TWO_SOCKETS.cpus, offline=(8,)))
    (sick,) = [each for each in shrunk.health() if each.health != "Healthy"]
    assert (sick.device, sick.message) == ("cpudevnuma000", "CPUs 8 of a claim are offline")


def test_memory_tells_its_numa_nodes(tmp_path):
    driver = MemoryDriver(sysfs=make_sysfs(tmp_path / "sys", TWO_SOCKETS))
    driver.restore(tmp_path / "data")
    list(driver.pools("node-1"))
    pages = allocated("hugepages-2minuma001", consumed_capacity={"dra.memory/size": Quantity.parse("64Mi")})
    (ordinary, huge) = driver.prepare(claim_to_prepare(allocated("memorynuma001"), pages))
    assert ordinary.edits == huge.edits
    assert ordinary.edits.env[0] == "DRA_MEMSET_u_1=1"
    with pytest.raises(PrepareError, match="memorynuma007: its memory is not on this machine any more"):
        driver.prepare(claim_to_prepare(allocated("memorynuma007"), uid="u-2"))
