"""What is published of a machine."""

import argparse

import pytest
from tests.driver.cpu.machines import HYBRID, PARTLY_OFFLINE, TWO_SOCKETS, make_sysfs

from dray.driver.cpu import CpuDriver, MemoryDriver
from dray.driver.cpu.devices import CAPACITY
from dray.driver.slices import check_pool

NUMA = "resource.kubernetes.io/numaNode"


def devices(driver):
    (pool,) = driver.published_pools
    check_pool(pool)
    return {device.name: device for device in pool.devices}


def plain(device):
    """Attributes without the driver's domain, as plain values."""
    values = {}
    for name, attribute in device.attributes.items():
        found = (attribute.int_, attribute.bool_, attribute.string, attribute.strings)
        values[name.removeprefix("dra.cpu/")] = next(value for value in found if value is not None)
    return values


def test_single_cpus_have_the_attributes_of_dra_driver_cpu(make_driver):
    found = devices(make_driver(mode="individual"))
    assert list(found)[:4] == ["cpudev000", "cpudev008", "cpudev001", "cpudev009"], "threads of a core are neighbours"
    assert plain(found["cpudev012"]) == {
        "cpuID": 12,
        "coreID": 0,
        "socketID": 1,
        "cacheL3ID": 2,
        "coreType": "standard",
        "smtEnabled": True,
        "isolated": False,
        NUMA: 1,
        "numaNodeID": 1,
        "dra.net/numaNode": 1,
    }
    mapping = found["cpudev000"].node_allocatable_resource_mappings["cpu"]
    assert (mapping.allocation_multiplier.value(), mapping.accounting_policy) == (1, None)


def test_groups_have_a_capacity_that_claims_divide(make_driver):
    found = devices(make_driver())
    assert list(found) == ["cpudevnuma000", "cpudevnuma001"]
    group = found["cpudevnuma001"]
    assert plain(group) == {
        "numCPUs": 8,
        "socketID": 1,
        "coreType": "standard",
        "smtEnabled": True,
        "isolated": False,
        NUMA: 1,
        "numaNodeID": 1,
        "dra.net/numaNode": 1,
    }
    capacity = group.capacity["dra.cpu/cpu"]
    policy = capacity.request_policy
    assert (capacity.value.value(), policy.default.value(), policy.valid_range.step.value()) == (8, 8, 1)
    assert group.allow_multiple_allocations
    assert group.node_allocatable_resource_mappings["cpu"].capacity_key == CAPACITY


@pytest.mark.parametrize(
    ("group_by", "names", "size"),
    [
        ("socket", ["cpudevsocket000", "cpudevsocket001"], 8),
        ("l3", [f"cpudevcache00{number}" for number in range(4)], 4),
        ("core", [f"cpudevcore00{number}" for number in range(8)], 2),
        ("machine", ["cpudevmachine"], 16),
    ],
)
def test_groups_of_other_kinds(make_driver, group_by, names, size):
    found = devices(make_driver(group_by=group_by))
    assert list(found) == names
    assert {device.capacity[CAPACITY].value.value() for device in found.values()} == {size}


def test_attributes_that_the_cpus_of_a_group_do_not_share_are_left_out(make_driver):
    attributes = plain(devices(make_driver(HYBRID, group_by="machine"))["cpudevmachine"])
    assert "coreType" not in attributes
    assert "coreID" not in attributes
    assert attributes["socketID"] == 0
    cores = devices(make_driver(HYBRID, group_by="core"))
    assert [plain(core)["coreType"] for core in cores.values()] == ["p-core"] * 2 + ["e-core"] * 4


def test_reserved_and_offline_cpus_are_not_offered(make_driver):
    found = devices(make_driver(PARTLY_OFFLINE, mode="individual", reserved=frozenset({1})))
    assert sorted(found) == ["cpudev000", "cpudev002", "cpudev005", "cpudev006", "cpudev007"]
    assert [plain(found[name])["isolated"] for name in ("cpudev002", "cpudev005")] == [True, False]


def test_full_cores_are_divided_in_steps_of_a_core_and_leave_cores_of_the_reservation_out(make_driver):
    group = devices(make_driver(has_full_cores=True, reserved=frozenset({0})))["cpudevnuma000"]
    capacity = group.capacity[CAPACITY]
    assert (capacity.value.value(), capacity.request_policy.valid_range.min.value()) == (6, 2)


def test_pci_roots_are_told_when_asked_for(make_driver):
    found = devices(make_driver(exposes_pcie_roots=True))
    assert plain(found["cpudevnuma001"])["resource.kubernetes.io/pcieRoot"] == ("pci0000:80",)


def test_a_pool_of_cpus_says_that_containers_consume_from_it(make_driver):
    group = devices(make_driver(accounting_policy="ConsumeFrom"))["cpudevnuma000"]
    assert group.node_allocatable_resource_mappings["cpu"].accounting_policy == "ConsumeFrom"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--reserved-cpus", "first"], "--reserved-cpus 'first'"),
        (["--cpu-device-mode", "individual", "--full-cores"], "--full-cores is for groups"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, complaint):
    driver, parser = CpuDriver(), argparse.ArgumentParser()
    driver.add_options(parser)
    with pytest.raises(ValueError, match=complaint):
        driver.configure(parser.parse_args(arguments))


def test_memory_and_huge_pages_of_each_numa_node(tmp_path):
    driver = MemoryDriver(1 << 30, sysfs=make_sysfs(tmp_path, TWO_SOCKETS))
    (pool,) = driver.pools("node-1")
    check_pool(pool)
    assert [
        (
            device.name,
            device.attributes[NUMA].int_,
            str(device.capacity["dra.memory/size"].value),
            str(device.capacity["dra.memory/size"].request_policy.valid_range.step),
            list(device.node_allocatable_resource_mappings),
        )
        for device in pool.devices
    ] == [
        ("memorynuma000", 0, "2Gi", "1Mi", ["memory"]),
        ("hugepages-2minuma000", 0, "1Gi", "2Mi", ["hugepages-2Mi"]),
        ("memorynuma001", 1, "2Gi", "1Mi", ["memory"]),
        ("hugepages-2minuma001", 1, "1Gi", "2Mi", ["hugepages-2Mi"]),
    ]
    assert pool.devices[1].attributes["dra.memory/pageSize"].string == "2m"


def test_reserved_memory_that_is_no_size_is_refused():
    driver, parser = MemoryDriver(), argparse.ArgumentParser()
    driver.add_options(parser)
    with pytest.raises(ValueError, match="--reserved-memory 'much'"):
        driver.configure(parser.parse_args(["--reserved-memory", "much"]))
