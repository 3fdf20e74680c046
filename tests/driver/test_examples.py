"""The shipped drivers: what they publish and what they give to containers."""

import re

import pytest
import yaml
from tests.builders.manifests import a_claim

from dray.api.codec import to_object
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.driver import AllocatedDevice, ClaimReference, ClaimToPrepare, DeviceConfig, PrepareError
from dray.driver.cpu import CpuDriver, MemoryDriver
from dray.driver.example import DRIVERS
from dray.driver.example.gpu import GpuDriver, load_profile
from dray.driver.example.nic import NicDriver
from dray.driver.slices import check_pool, split_pool


def claim_to_prepare(*devices, uid="u-1", name="c"):
    claim = to_object(a_claim(name, namespace="ns", uid=uid), ResourceClaim)
    return ClaimToPrepare(ClaimReference("ns", name, uid), devices, claim)


def allocated(device, request="r", **fields):
    return AllocatedDevice(request, "node-1", device, **fields)


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_every_shipped_driver_describes_a_pool_that_holds_together(name):
    driver = DRIVERS[name]()
    for pool in driver.pools("node-1"):
        check_pool(pool)
        assert pool.name == "node-1"
        assert pool.devices


def test_cards_partition_as_the_real_one_does():
    (pool,) = GpuDriver(load_profile("h200")).pools("node-1")
    first_card = [d for d in pool.devices if d.name.startswith("gpu-0-")]
    by_profile: dict[str, int] = {}
    for device in first_card:
        by_profile[device.attributes["profile"].string] = by_profile.get(device.attributes["profile"].string, 0) + 1
    assert by_profile == {
        "1g.18gb": 7,
        "1g.18gb-me": 7,
        "1g.35gb": 4,
        "2g.35gb": 3,
        "3g.71gb": 2,
        "4g.71gb": 1,
        "7g.141gb": 1,
    }
    assert len(pool.shared_counters) == 8
    assert all(len(each.devices) <= 64 for each in split_pool(pool))


def counters_left(pool, chosen):
    left = {
        c: q.value.value() for s in pool.shared_counters if s.name == "gpu-0-counters" for c, q in s.counters.items()
    }
    for device in pool.devices:
        if device.name in chosen:
            for counter, amount in device.consumes_counters[0].counters.items():
                left[counter] -= amount.value.value()
    return left


@pytest.mark.parametrize(
    ("chosen", "fits"),
    [
        ({"gpu-0-3g-71gb-0", "gpu-0-3g-71gb-4"}, True),
        ({"gpu-0-4g-71gb-0", "gpu-0-3g-71gb-4"}, True),
        ({"gpu-0-4g-71gb-0", "gpu-0-3g-71gb-0"}, False),
        ({f"gpu-0-1g-18gb-{i}" for i in range(7)}, True),
        ({"gpu-0-7g-141gb-0", "gpu-0-1g-18gb-0"}, False),
        ({"gpu-0", "gpu-0-1g-18gb-0"}, False),
    ],
)
def test_counters_allow_what_the_card_allows(chosen, fits):
    (pool,) = GpuDriver(load_profile("h200")).pools("node-1")
    assert all(left >= 0 for left in counters_left(pool, chosen).values()) is fits


def test_gpu_parameters_reach_the_container_and_bad_ones_are_refused():
    driver = GpuDriver(load_profile("h200"))
    short, long = DeviceConfig("FromClass", {"timeSlice": "Short"}), DeviceConfig("FromClaim", {"timeSlice": "Long"})
    good = allocated("gpu-0", config=(short, long))
    (prepared,) = driver.prepare(claim_to_prepare(good))
    assert "GPU_DEVICE_GPU_0_TIME_SLICE=Long" in prepared.edits.env
    for bad in ({"timeSlice": "Never"}, {"kind": "NicConfig"}, {"speed": 1}, {"timeSlice": 7}):
        with pytest.raises(PrepareError, match="opaque parameters"):
            driver.prepare(claim_to_prepare(allocated("gpu-0", config=(DeviceConfig("FromClaim", bad),))))


def test_a_gpu_takes_from_a_class_what_it_refuses_from_a_claim():
    driver = GpuDriver(load_profile("h200"))
    (prepared,) = driver.prepare(
        claim_to_prepare(allocated("gpu-0", config=(DeviceConfig("FromClass", {"debugging": True}),)))
    )
    assert "GPU_DEVICE_GPU_0_DEBUGGING=true" in prepared.edits.env
    with pytest.raises(PrepareError, match="debugging can be set only by a DeviceClass"):
        driver.prepare(claim_to_prepare(allocated("gpu-0", config=(DeviceConfig("FromClaim", {"debugging": True}),))))


@pytest.mark.parametrize("driver", [GpuDriver(load_profile("h200")), NicDriver()], ids=["gpu", "nic"])
def test_cards_have_their_place_on_the_bus(driver):
    (pool,) = driver.pools("node-1")
    # Partitions have the place of their card.
    cards = [device for device in pool.devices if "parentCard" not in device.attributes]
    places = {device.attributes["resource.kubernetes.io/pciBusID"].string for device in cards}
    assert all(re.fullmatch("0000:[0-9a-f]{2}:00\\.0", place) for place in places)
    assert len(places) == len(cards)
    roots = {device.attributes["resource.kubernetes.io/pcieRoot"].string for device in pool.devices}
    assert all(re.fullmatch("pci0000:[0-9a-f]{2}", root) for root in roots)


@pytest.mark.parametrize(
    "driver", [GpuDriver(load_profile("h200")), NicDriver(), CpuDriver(), MemoryDriver()], ids=lambda each: each.name
)
def test_only_standard_attributes_have_a_domain_of_kubernetes(driver):
    """Attributes of a driver's own have no domain, which means that of the driver."""
    (pool,) = driver.pools("node-1")
    names = {name for device in pool.devices for name in (*device.attributes, *device.capacity)}
    standard = {f"resource.kubernetes.io/{name}" for name in ("pcieRoot", "pciBusID", "numaNode")}
    assert {name for name in names if "kubernetes.io/" in name} <= standard


def test_faults_are_taken_from_a_file_when_asked(tmp_path):
    faults = tmp_path / "faults.yaml"
    driver = GpuDriver(load_profile("h200"), faults)
    driver.published_pools = tuple(driver.pools("node-1"))
    driver.prepare(claim_to_prepare(allocated("gpu-0")))
    faults.write_text(
        yaml.safe_dump(
            {
                "prepare": {"gpu-0": "no power"},
                "unhealthy": {"gpu-1": "hot"},
                "taints": {"gpu-2": [{"key": "broken", "effect": "NoExecute"}]},
            }
        )
    )
    with pytest.raises(PrepareError, match="no power"):
        driver.prepare(claim_to_prepare(allocated("gpu-0")))
    health = {report.device: report for report in driver.health()}
    assert (health["gpu-1"].health, health["gpu-1"].message) == ("Unhealthy", "hot")
    assert health["gpu-0"].health == "Healthy"
    (pool,) = driver.pools("node-1")
    tainted = {device.name for device in pool.devices if device.taints}
    assert "gpu-2" in tainted
    assert "gpu-2-1g-18gb-0" in tainted
    assert "gpu-1" not in tainted


def test_bandwidth_reaches_the_container():
    (prepared,) = NicDriver().prepare(
        claim_to_prepare(allocated("nic-1", consumed_capacity={"bandwidth": Quantity.parse("5G")}, share_id="s"))
    )
    assert prepared.edits.env == ("NIC_NIC_1_INTERFACE=eth1", "NIC_NIC_1_BANDWIDTH=5G", "NIC_NIC_1_SHARE=s")
