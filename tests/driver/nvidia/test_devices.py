"""What the driver publishes: the names and values of NVIDIA's own driver, and more where NVML knows more."""

import json

import pytest
from tests.driver.nvidia.standin import StandInCard, StandInInstance

from dray.api.codec import encode
from dray.driver.slices import Publisher, check_pool, desired_specs
from dray.validation import ValidationContext, validate_create

# What NVIDIA's own driver published for the same kind of card; UUIDs differ from card to card.
OF_NVIDIAS_DRIVER = {
    "addressingMode": {"string": "None"},
    "architecture": {"string": "Hopper"},
    "brand": {"string": "Nvidia"},
    "cudaComputeCapability": {"version": "9.0.0"},
    "cudaDriverVersion": {"version": "13.0.0"},
    "driverVersion": {"version": "580.159.4"},
    "productName": {"string": "NVIDIA H200"},
    "resource.kubernetes.io/pciBusID": {"string": "0000:00:06.0"},
    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    "type": {"string": "gpu"},
}


def published(driver):
    (pool,) = driver.pools("h200")
    return [json.loads(encode(device)) for device in pool.devices], pool.shared_counters


def test_a_card_has_the_attributes_and_capacity_of_nvidias_own_driver(make_driver, library):
    (card,), counters = published(make_driver())
    assert card["name"] == "gpu-0"
    assert card["attributes"].items() >= (OF_NVIDIAS_DRIVER | {"uuid": {"string": library.cards[0].uuid}}).items()
    assert card["capacity"] == {"memory": {"value": "143771Mi"}}
    assert "allowMultipleAllocations" not in card
    assert counters == ()


def test_a_card_tells_more_where_nvml_knows_more(make_driver):
    (card,), _ = published(make_driver())
    assert card["attributes"]["eccEnabled"] == {"bool": True}
    assert card["attributes"]["powerLimitWatts"] == {"int": 700}
    assert "numaNode" not in card["attributes"]  # the kernel says -1: not known
    assert "nvlinkPeers" not in card["attributes"]


def test_what_nvml_cannot_tell_is_left_out(make_driver, library):
    library.fails |= {"nvmlDeviceGetEccMode": 3, "nvmlDeviceGetEnforcedPowerLimit": 3, "nvmlDeviceGetAddressingMode": 3}
    (card,), _ = published(make_driver())
    assert not {"eccEnabled", "powerLimitWatts", "addressingMode"} & card["attributes"].keys()


def test_a_shared_card_offers_memory_in_whole_gib_and_its_multiprocessors(make_driver):
    (card,), _ = published(make_driver(is_shared=True))
    assert card["allowMultipleAllocations"] is True
    assert card["capacity"]["memory"] == {
        "value": "143771Mi",
        "requestPolicy": {"default": "140Gi", "validRange": {"min": "1Gi", "max": "140Gi", "step": "1Gi"}},
    }
    assert card["capacity"]["multiprocessors"] == {
        "value": "132",
        "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "132", "step": "1"}},
    }


def test_mig_instances_that_exist_are_devices(make_driver, library):
    library.cards = [StandInCard(has_mig=True, instances=[StandInInstance(3, 9, 4), StandInInstance(5, 19, 0)])]
    devices, counters = published(make_driver())
    assert [device["name"] for device in devices] == ["gpu-0-mig-3g71gb-9-4", "gpu-0-mig-1g18gb-19-0"]
    large = devices[0]
    assert large["attributes"]["type"] == {"string": "mig"}
    assert large["attributes"]["profile"] == {"string": "3g.71gb"}
    assert large["attributes"]["parentUUID"] == {"string": library.cards[0].uuid}
    assert large["attributes"]["uuid"] == {"string": "MIG-0-3"}
    assert large["capacity"] == {
        "memory": {"value": "71424Mi"},
        "multiprocessors": {"value": "60"},
        "copyEngines": {"value": "3"},
        "decoders": {"value": "3"},
        "encoders": {"value": "0"},
        "jpegEngines": {"value": "3"},
        "ofaEngines": {"value": "0"},
        **{f"memorySlice{i}": {"value": "1"} for i in (4, 5, 6, 7)},
    }
    assert counters == ()


def test_with_dynamic_mig_each_possible_partition_is_a_device_over_counters(make_driver, library):
    library.cards = [StandInCard(has_mig=True)]
    devices, (counters,) = published(make_driver(has_dynamic_mig=True))
    assert len(devices) == 7 + 3 + 2 + 1 + 1 + 7 + 4
    assert counters.name == "gpu-0-counter-set"
    assert {name: str(counter.value) for name, counter in counters.counters.items()} == {
        "memory": "140Gi",
        "multiprocessors": "132",
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        **{f"memory-slice-{i}": "1" for i in range(8)},
    }
    half = next(device for device in devices if device["name"] == "gpu-0-mig-3g71gb-9-4")
    (consumed,) = half["consumesCounters"]
    assert consumed["counterSet"] == "gpu-0-counter-set"
    assert {name for name in consumed["counters"] if name.startswith("memory-slice")} == {
        f"memory-slice-{i}" for i in (4, 5, 6, 7)
    }


def test_dynamic_mig_leaves_a_card_without_mig_whole(make_driver):
    devices, counters = published(make_driver(has_dynamic_mig=True))
    assert [device["name"] for device in devices] == ["gpu-0"]
    assert counters == ()


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_api_accepts_what_is_published(make_driver, library, is_shared):
    library.cards = [StandInCard(), StandInCard(uuid="GPU-2", minor=1, has_mig=True)]
    (pool,) = make_driver(is_shared=is_shared, has_dynamic_mig=True).pools("h200")
    check_pool(pool)
    for spec in desired_specs(Publisher("gpu.nvidia.com", "h200"), pool, 1):
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "x"},
            "spec": json.loads(encode(spec)),
        }
        assert validate_create(document, ValidationContext()) == []
