"""Which slices of a pool count, and what allocations take from its devices and counters."""

from tests.builders.manifests import a_claim, a_result, a_slice

from dray.api.codec import to_object
from dray.api.dra.consumption import (
    add_consumed,
    allocation_results,
    consumed_capacity,
    counter_totals,
    counters_drawn,
    counters_left,
    counters_suffice,
    held_by_device,
    is_share,
    plain_name,
)
from dray.api.dra.pools import (
    DeviceID,
    is_complete,
    newest_by,
    newest_generations,
    newest_of_each_pool,
    newest_of_pool,
    pool_id,
    published_devices,
    slices_by_pool,
    wanted_slices,
)
from dray.api.resource import ResourceClaim, ResourceSlice

GI = 2**30 * 10**9


def slice_of_pool(name, pool="p", generation=1, count=1, devices=(), counters=()):
    document = a_slice(name, *devices, driver="d", pool=pool, generation=generation, slices=count)
    document["spec"]["sharedCounters"] = list(counters)
    return to_object(document, ResourceSlice)


def a_part(name, memory):
    draw = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
    return {"name": name, "consumesCounters": [draw]}


def claim_with_results(*results):
    return to_object(a_claim("c", results=results), ResourceClaim)


def result_of(device, **fields):
    return a_result(device, driver="d", pool="p", **fields)


CARD = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}


def names(slices):
    return [each.metadata.name for each in slices]


def test_only_the_newest_generation_counts():
    old, new, other = slice_of_pool("old"), slice_of_pool("new", generation=2), slice_of_pool("other", pool="q")
    assert names(newest_of_pool([old, new])) == ["new"]
    assert names(newest_of_each_pool([old, other, new])) == ["other", "new"]
    assert newest_generations([old, new, other]) == {("d", "p"): 2, ("d", "q"): 1}
    assert newest_by([], int) == []
    assert {pool: names(slices) for pool, slices in slices_by_pool([old, new, other]).items()} == {
        ("d", "p"): ["old", "new"],
        ("d", "q"): ["other"],
    }
    assert pool_id(other) == ("d", "q")


def test_a_pool_is_complete_when_all_its_slices_are_there():
    first, second = slice_of_pool("first", count=2), slice_of_pool("second", count=2)
    assert wanted_slices([first]) == 2
    assert not is_complete([first])
    assert is_complete([first, second])


def test_devices_by_identity():
    [(device_id, device)] = published_devices([slice_of_pool("s", devices=[{"name": "gpu-0"}])])
    assert (device_id, str(device_id), device.name) == (DeviceID("d", "p", "gpu-0"), "d/p/gpu-0", "gpu-0")


def test_held_devices_leave_out_admin_access():
    claims = [claim_with_results(result_of("gpu-0"), result_of("gpu-1", adminAccess=True)), claim_with_results()]
    assert list(held_by_device(claims)) == [DeviceID("d", "p", "gpu-0")]
    assert len(allocation_results(claims[0])) == 2
    assert allocation_results(claims[1]) == ()


def test_shares_add_up_and_are_taken_away_again():
    first = result_of("gpu-0", shareID="1", consumedCapacity={"memory": "10Gi"})
    second = result_of("gpu-0", shareID="2", consumedCapacity={"memory": "5Gi", "cores": "2"})
    results = allocation_results(claim_with_results(first, second))
    sums = consumed_capacity(results)
    assert sums == {"memory": 15 * GI, "cores": 2 * 10**9}
    add_consumed(sums, results[1], -1)
    assert sums == {"memory": 10 * GI, "cores": 0}
    assert all(map(is_share, results))


def test_names_of_capacities_without_the_driver_s_domain():
    assert plain_name("d/memory", "d") == plain_name("memory", "d") == "memory"
    assert plain_name("other/memory", "d") == "other/memory"


def test_each_held_device_pays_its_counters_once():
    parts = [a_part("small", "10Gi"), a_part("large", "35Gi"), {"name": "plain"}]
    slices = [slice_of_pool("counters", counters=[CARD], count=2), slice_of_pool("devices", devices=parts, count=2)]
    small, large, plain = slices[1].spec.devices
    assert counter_totals(slices) == {("card", "memory"): 40 * GI}
    assert counters_drawn(small) == {("card", "memory"): 10 * GI}
    left = counters_left(slices, {"small"})
    assert left == {("card", "memory"): 30 * GI}
    assert counters_suffice(small, left)
    assert counters_suffice(plain, left)
    assert not counters_suffice(large, left)
    assert counters_left(slices, {"small", "large"}) == {("card", "memory"): -5 * GI}
