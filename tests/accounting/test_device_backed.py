"""From allocations to quantities: all spellings, once per claim, and named errors for what cannot be counted."""

import pytest
from tests.accounting.builders import World, allocated_device, claim_named, demanding_pod
from tests.builders.manifests import a_device

from dray.accounting import (
    AllocatedClaim,
    DeviceIndex,
    DeviceLookup,
    claim_charges,
    claim_charges_of_published,
    claim_statuses,
    pod_demand,
)
from dray.accounting import errors as problems
from dray.api.codec import to_document

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: {driver}
  pool: {{name: {pool}, generation: {generation}, resourceSliceCount: 1}}
  devices: {devices}
"""


def slice_text(*devices: dict, name="s", driver="dra.example.com", pool="node-pool", generation=1) -> str:
    return SLICE.format(name=name, driver=driver, pool=pool, generation=generation, devices=list(devices))


def backed_device(name: str = "d", capacity: dict | None = None, **fields) -> dict:
    return a_device(name, capacity=capacity or {}, **fields)


def today(**resources) -> dict:
    return {"nodeAllocatableResources": {name.replace("_", "-"): entry for name, entry in resources.items()}}


def kep(**resources) -> dict:
    return {"nodeAllocatableResourceMappings": {name.replace("_", "-"): entry for name, entry in resources.items()}}


def charges_of(slices: str, *results: dict, **pod):
    world = World.of(slices).allocate("x", *results)
    world.pods["p"] = demanding_pod("p", claims={"x": "x"}, **pod)
    return world.charges("p")


def status_of(*args, **pod):
    return [to_document(status) for status in claim_statuses(charges_of(*args, **pod))]


def test_two_devices_and_overhead_as_example_a():
    """X: 2 devices of 2 cpu; G: memory overhead. Sidecar 100m, init 2, a 500m/1Gi, b 250m, overhead 50m."""
    world = World.of(
        slice_text(
            backed_device("d0", **today(cpu={"mapping": {"deviceMultiplier": "2"}})),
            backed_device("d1", **today(cpu={"mapping": {"deviceMultiplier": "2"}})),
            backed_device("g", **today(memory={"overhead": {"perPod": "512Mi", "perContainer": "256Mi"}})),
        )
    )
    world.allocate("x", allocated_device("d0"), allocated_device("d1")).allocate("g", allocated_device("g"))
    world.pods["p"] = demanding_pod(
        "p",
        init={"s": {"requests": {"cpu": "100m"}, "sidecar": True}, "i": {"requests": {"cpu": "2"}}},
        containers={
            "a": {"requests": {"cpu": "500m", "memory": "1Gi"}, "claims": ["x", "g"]},
            "b": {"requests": {"cpu": "250m"}, "claims": ["g"]},
        },
        claims={"x": "x", "g": "g"},
        overhead={"cpu": "50m"},
    )
    charges = world.charges("p")
    demand = pod_demand(world.pods["p"], charges)
    assert (demand.milli_cpu, demand.memory) == (6150, 2 * 2**30)
    assert [to_document(status) for status in claim_statuses(charges)] == [
        {
            "resourceClaimName": "g",
            "containers": ["a", "b"],
            "overhead": [{"name": "memory", "perPod": "512Mi", "perContainer": "256Mi"}],
        },
        {"resourceClaimName": "x", "containers": ["a"], "mapping": [{"name": "cpu", "quantity": "4"}]},
    ]


def test_status_keeps_the_spelling_of_the_device_and_sorts_resources():
    needs = {"memory": {"allocationMultiplier": "1Gi"}, "cpu": {"allocationMultiplier": "2"}}
    assert status_of(
        slice_text(backed_device(**kep(**needs))), allocated_device("d"), containers={"c": {"claims": ["x"]}}
    ) == [{"resourceClaimName": "x", "containers": ["c"], "resources": {"cpu": "2", "memory": "1Gi"}}]


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [
        pytest.param({"cores": "8"}, "16", id="consumed-times-multiplier"),
        pytest.param({"cores": "1500m"}, "3", id="exact-decimals"),
        pytest.param({"other": "8"}, None, id="key-not-consumed-is-ignored"),
        pytest.param({}, "128", id="dedicated-device-counts-its-capacity"),
    ],
)
def test_capacity_key(consumed, expected):
    device = backed_device(
        capacity={"cores": "64", "other": "64"},
        **today(cpu={"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}}),
    )
    statuses = status_of(slice_text(device), allocated_device("d", consumedCapacity=consumed))
    if expected is None:
        assert statuses == []
    else:
        assert statuses[0]["mapping"] == [{"name": "cpu", "quantity": expected}]


def test_product_keeps_the_unit_style_of_the_capacity():
    device = backed_device(
        capacity={"mem": "64Gi"}, **kep(memory={"capacityKey": "mem", "allocationMultiplier": "1.5"})
    )
    assert status_of(slice_text(device), allocated_device("d", consumedCapacity={"mem": "4Gi"}))[0]["resources"] == {
        "memory": "6Gi"
    }


def test_two_entries_of_one_claim_count_once():
    world = World.of(slice_text(backed_device(**kep(cpu={"allocationMultiplier": "4"})))).allocate(
        "x", allocated_device("d")
    )
    world.pods["p"] = demanding_pod(
        "p", containers={"a": {"claims": ["one"]}, "b": {"claims": ["two"]}}, claims={"one": "x", "two": "x"}
    )
    (charge,) = world.charges("p")
    assert charge.containers == ("a", "b")
    assert pod_demand(world.pods["p"], [charge]).milli_cpu == 4000


def test_a_container_that_lists_two_requests_of_a_claim_is_one_reference():
    device = backed_device(**today(cpu={"overhead": {"perContainer": "1"}}))
    (charge,) = charges_of(slice_text(device), allocated_device("d"), containers={"c": {"claims": ["x", "x"]}})
    assert charge.containers == ("c",)


def test_init_containers_come_first_in_the_list():
    (charge,) = charges_of(
        slice_text(backed_device(**kep(cpu={}))),
        allocated_device("d"),
        containers={"c": {"claims": ["x"]}},
        init={"i": {"claims": ["x"]}},
    )
    assert charge.containers == ("i", "c")


def test_devices_that_declare_nothing_give_no_charge():
    assert charges_of(slice_text(backed_device()), allocated_device("d")) == ()


def test_one_name_under_two_drivers_is_two_devices():
    slices = slice_text(backed_device(**kep(cpu={"allocationMultiplier": "1"})), name="a", driver="a.example.com") + (
        "---" + slice_text(backed_device(**kep(cpu={"allocationMultiplier": "5"})), name="b", driver="b.example.com")
    )
    (charge,) = charges_of(slices, allocated_device("d", driver="b.example.com"))
    assert str(charge.mapped[0].quantity) == "5"


def test_mapping_and_overhead_on_one_resource():
    device = backed_device(**today(cpu={"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "500m"}}))
    charges = charges_of(slice_text(device), allocated_device("d"))
    assert pod_demand(demanding_pod(), charges).milli_cpu == 2500


# --- what cannot be counted ------------------------------------------------------------------------------------------

BAD = [
    pytest.param(
        kep(**{"example.com/gpu": {}}),
        problems.NotNodeAllocatable,
        "device d: example.com/gpu must be a node allocatable resource name",
        id="extended-resource",
    ),
    pytest.param(kep(pods={}), problems.NotNodeAllocatable, "device d: pods must be", id="pods"),
    pytest.param(
        today(ephemeral_storage={"mapping": {"deviceMultiplier": "1"}}),
        problems.NotNodeAllocatable,
        "ephemeral-storage must be",
        id="1.37-knows-no-storage",
    ),
    pytest.param(
        kep(cpu={"capacityKey": "nope"}),
        problems.UnknownCapacityKey,
        "device d: cpu is mapped from capacity nope, which the device does not have",
        id="capacity-key",
    ),
    pytest.param(
        kep(cpu={"allocationMultiplier": "-1"}),
        problems.NegativeAmount,
        "claim /x, device d: cpu -1 is below zero",
        id="negative",
    ),
    pytest.param(
        today(cpu={"overhead": {"perPod": "-1"}}), problems.NegativeAmount, "below zero", id="negative-overhead"
    ),
    pytest.param(
        kep(memory={"capacityKey": "big", "allocationMultiplier": "1G"}),
        problems.AmountOverflow,
        "claim /x: memory .* is more than 64 bits can count",
        id="overflow",
    ),
    pytest.param(
        {**kep(cpu={}), **today(cpu={"mapping": {"deviceMultiplier": "1"}})},
        problems.SpellingConflict,
        "exclude each other",
        id="two-spellings",
    ),
]


@pytest.mark.parametrize(("fields", "error", "message"), BAD)
def test_named_errors(fields, error, message):
    device = backed_device(capacity={"big": "10E"}, **fields)
    with pytest.raises(error, match=message):
        charges_of(slice_text(device), allocated_device("d"))


def test_storage_may_be_mapped_in_the_keps_spelling():
    (charge,) = charges_of(
        slice_text(backed_device(**kep(ephemeral_storage={"allocationMultiplier": "1Gi"}))), allocated_device("d")
    )
    assert pod_demand(demanding_pod(), [charge]).ephemeral_storage == 2**30


def test_one_of_two_devices_missing():
    with pytest.raises(problems.DeviceNotFound) as error:
        charges_of(slice_text(backed_device(**kep(cpu={}))), allocated_device("d"), allocated_device("gone"))
    assert not isinstance(error.value, problems.ClaimNotPublished)
    assert str(error.value) == (
        "claim /x, device gone, driver dra.example.com: "
        "device gone not found in pool node-pool for driver dra.example.com"
    )


def test_no_device_of_the_claim_published():
    world = World.of(slice_text(backed_device())).allocate("x", allocated_device("gone"))
    pod = world.pods["p"] = demanding_pod("p", claims={"x": "x"})
    with pytest.raises(problems.ClaimNotPublished):
        world.charges("p")
    claims = {"x": AllocatedClaim(claim_named("x"), world.allocations["x"])}
    assert claim_charges_of_published(pod, claims, world.inventory) == ()


def test_device_of_another_node():
    world = World.of(slice_text(backed_device(**kep(cpu={})))).allocate("x", allocated_device("d"))
    pod = demanding_pod("p", claims={"x": "x"})
    inventory = DeviceLookup(DeviceIndex(world.slices), {}, serves_node=lambda device: False)
    with pytest.raises(problems.DeviceNotOnNode, match="device d does not match node"):
        claim_charges(pod, {"x": AllocatedClaim(claim_named("x"), world.allocations["x"])}, inventory)


# --- the index -------------------------------------------------------------------------------------------------------


def found_cpu(index: DeviceIndex) -> str | None:
    published = index.find("dra.example.com", "node-pool", "d")
    return None if published is None else str(index.needs(published)[0].multiplier)


def test_index_follows_slices():
    old, new, changed = World.of(
        "---".join(
            [
                slice_text(backed_device(**kep(cpu={"allocationMultiplier": "1"})), name="old", generation=1),
                slice_text(backed_device(**kep(cpu={"allocationMultiplier": "2"})), name="new", generation=2),
                slice_text(backed_device(**kep(cpu={"allocationMultiplier": "3"})), name="new", generation=2),
            ]
        )
    ).slices
    index = DeviceIndex([old])
    assert found_cpu(index) == "1"
    index.apply(new)
    index.apply(old)
    assert found_cpu(index) == "2", "the newer generation counts, whichever comes last"
    index.apply(changed)
    assert found_cpu(index) == "3"
    index.drop("old")
    assert found_cpu(index) == "3"
    index.apply(old)
    index.drop("new")
    assert found_cpu(index) == "1", "the older slice is still published"
    index.drop("old")
    assert found_cpu(index) is None
    index.drop("never-seen")
