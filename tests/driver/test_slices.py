"""Publishing plans: the fewest writes, the right generation, the right names."""

import pytest
from msgspec import structs

from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.quantity import Quantity
from dray.api.resource import Counter, CounterSet, Device, DeviceCounterConsumption, DeviceTaint, ResourceSlice
from dray.driver.plugin import Pool, PoolSlice
from dray.driver.slices import PoolError, Publisher, SlicePlan, check_pool, index_of, plan_pool, split_pool

OWNER = OwnerReference(api_version="v1", kind="Node", name="node-1", uid="u-1", controller=True)
PUBLISHER = Publisher("gpu.example.com", "node-1", OWNER)


def devices(count, **fields):
    return tuple(Device(name=f"gpu-{i}", **fields) for i in range(count))


def server_applies(plan: SlicePlan, existing: list[ResourceSlice]) -> list[ResourceSlice]:
    """The pool's slices after the writes, with names as the server makes them."""
    gone = {each.metadata.name for each in plan.deletes}
    changed = {each.metadata.name: each for each in plan.updates}
    kept = [changed.get(each.metadata.name, each) for each in existing if each.metadata.name not in gone]
    made = [
        structs.replace(each, metadata=ObjectMeta(name=f"{each.metadata.generate_name}{number:05d}"))
        for number, each in enumerate(plan.creates)
    ]
    return kept + made


def published(pool: Pool) -> list[ResourceSlice]:
    return server_applies(plan_pool(PUBLISHER, pool, []), [])


def test_first_publication_has_generation_one_and_names_that_keep_the_order():
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(200)), [])
    assert [each.metadata.generate_name for each in plan.creates] == [
        "00000-gpu.example.com-node-1-",
        "00001-gpu.example.com-node-1-",
    ]
    assert {each.spec.pool.generation for each in plan.creates} == {1}
    assert {each.spec.pool.resource_slice_count for each in plan.creates} == {2}
    assert [len(each.spec.devices) for each in plan.creates] == [128, 72]
    assert all(each.metadata.owner_references == (OWNER,) and each.spec.node_name == "node-1" for each in plan.creates)


def test_nothing_changed_means_no_write():
    pool = Pool("node-1", devices(200, taints=(DeviceTaint(key="k", effect="NoSchedule"),)))
    existing = published(pool)
    assert plan_pool(PUBLISHER, pool, existing).is_empty


def test_one_changed_slice_is_updated_in_place_at_the_same_generation():
    existing = published(Pool("node-1", devices(2)))
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(3)), existing)
    assert (len(plan.deletes), len(plan.updates), len(plan.creates)) == (0, 1, 0)
    assert plan.updates[0].spec.pool.generation == 1


def test_more_slices_make_a_new_generation_and_rewrite_all():
    existing = published(Pool("node-1", devices(128)))
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(129)), existing)
    assert (len(plan.updates), len(plan.creates)) == (1, 1)
    assert {each.spec.pool.generation for each in (*plan.updates, *plan.creates)} == {2}
    after = server_applies(plan, existing)
    assert plan_pool(PUBLISHER, Pool("node-1", devices(129)), after).is_empty


def test_fewer_slices_delete_the_last_and_update_the_counts_together():
    existing = published(Pool("node-1", devices(300)))
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(200)), existing)
    assert [index_of(each) for each in plan.deletes] == [2]
    assert {each.spec.pool.generation for each in plan.updates} == {2}
    assert len(plan.updates) == 2


def test_slices_of_older_generations_and_foreign_names_are_removed():
    pool = Pool("node-1", devices(1))
    current = published(pool)
    foreign = structs.replace(current[0], metadata=ObjectMeta(name="gpu.example.com-node-1-abcde"))
    old = structs.replace(
        current[0],
        metadata=ObjectMeta(name="00000-gpu.example.com-node-1-zzzzz"),
        spec=structs.replace(current[0].spec, pool=structs.replace(current[0].spec.pool, generation=0)),
    )
    plan = plan_pool(PUBLISHER, pool, [*current, foreign, old])
    assert {each.metadata.name for each in plan.deletes} == {foreign.metadata.name, old.metadata.name}
    assert not plan.updates
    assert not plan.creates


def test_a_higher_generation_of_the_driver_is_used():
    existing = published(Pool("node-1", devices(1)))
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(1), generation=7), existing)
    assert [each.spec.pool.generation for each in plan.updates] == [7]


def test_the_time_of_a_taint_is_kept_and_its_absence_is_no_change():
    taint = DeviceTaint(key="k", effect="NoExecute")
    pool = Pool("node-1", devices(1, taints=(taint,)))
    existing = published(pool)
    dated = structs.replace(taint, time_added="2024-05-05T05:05:05Z")
    device = structs.replace(existing[0].spec.devices[0], taints=(dated,))
    existing = [structs.replace(existing[0], spec=structs.replace(existing[0].spec, devices=(device,)))]
    assert plan_pool(PUBLISHER, pool, existing).is_empty
    second = structs.replace(taint, key="other")
    plan = plan_pool(PUBLISHER, Pool("node-1", devices(1, taints=(taint, second))), existing)
    assert [t.time_added for t in plan.updates[0].spec.devices[0].taints] == ["2024-05-05T05:05:05Z", None]


def test_details_halve_the_size_of_slices_and_counters_come_first():
    counters = tuple(CounterSet(name=f"set-{i}", counters={"m": Counter(value=Quantity.parse(8))}) for i in range(9))
    consumption = DeviceCounterConsumption(counter_set="set-0", counters={"m": Counter(value=Quantity.parse(1))})
    slices = split_pool(Pool("p", devices(65, consumes_counters=(consumption,)), counters))
    assert [(len(each.devices), len(each.shared_counters)) for each in slices] == [(0, 8), (0, 1), (64, 0), (1, 0)]


def test_an_empty_pool_is_one_empty_slice():
    assert split_pool(Pool("p")) == (PoolSlice(),)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (Pool("p", (Device(name="a"), Device(name="a"))), "device a is there twice"),
        (Pool("p", (), (CounterSet(name="s"), CounterSet(name="s"))), "counter set s is there twice"),
        (
            Pool("p", (Device(name="a", consumes_counters=(DeviceCounterConsumption(counter_set="s"),)),)),
            "counter set s does not exist",
        ),
        (
            Pool(
                "p",
                (
                    Device(
                        name="a",
                        consumes_counters=(DeviceCounterConsumption(counter_set="s", counters={"x": Counter()}),),
                    ),
                ),
                (CounterSet(name="s"),),
            ),
            "counter x does not exist in counter set s",
        ),
    ],
)
def test_pools_that_contradict_themselves_are_refused(pool, message):
    with pytest.raises(PoolError, match=message):
        check_pool(pool)


def test_a_pool_that_leaves_its_node_gets_new_slices():
    existing = published(Pool("shared", devices(1)))
    plan = plan_pool(PUBLISHER, Pool("shared", devices(1), all_nodes=True), existing)
    assert plan.deletes == tuple(existing)
    assert [each.spec.all_nodes for each in plan.creates] == [True]
    assert plan.creates[0].spec.node_name is None
