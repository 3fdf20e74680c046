"""ResourcePoolStatusRequests: counts per pool, written once."""

import pytest

from dray.api import codec
from dray.api.resource import ResourcePoolStatusRequestSpec, ResourceSlice
from dray.client import CLAIMS, POOL_STATUS_REQUESTS, SLICES
from dray.controllers.pool_status import PoolStatusController, pool_statuses
from tests.controllers.builders import DRIVER, ns_claim, pool_slice


def a_status_request(name="look", **spec):
    return {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, **spec},
    }


async def answered(cluster, name="look"):
    async def look():
        return (await cluster.client.get(POOL_STATUS_REQUESTS, name)).status

    return await cluster.eventually(look)


async def test_a_request_is_answered_once(cluster):
    taint = {"key": "sick", "effect": "NoSchedule"}
    devices = [{"name": "a"}, {"name": "b"}, {"name": "c", "taints": [taint]}]
    await cluster.client.create(SLICES, pool_slice(devices=devices))
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim", device="a")
    await cluster.start(PoolStatusController)
    await cluster.client.create(POOL_STATUS_REQUESTS, a_status_request())
    status = await answered(cluster)
    assert status.pool_count == 1
    (pool,) = status.pools
    assert (pool.driver, pool.pool_name, pool.generation, pool.node_name) == (DRIVER, "pool", 1, "node")
    counts = (pool.total_devices, pool.allocated_devices, pool.available_devices, pool.unavailable_devices)
    assert counts == (3, 1, 1, 1)
    assert [(c.type, c.status) for c in status.conditions] == [("Complete", "True")]
    await cluster.client.create(SLICES, pool_slice("more", pool="other"))
    await cluster.quiet()
    assert (await answered(cluster)).pool_count == 1
    assert len(cluster.wire.writes) == 1


async def test_pools_are_chosen_sorted_and_limited(cluster):
    for pool in ("c", "a", "b"):
        await cluster.client.create(SLICES, pool_slice(f"slice-{pool}", pool=pool))
    await cluster.start(PoolStatusController)
    await cluster.client.create(POOL_STATUS_REQUESTS, a_status_request(limit=2))
    status = await answered(cluster)
    assert (status.pool_count, [pool.pool_name for pool in status.pools]) == (3, ["a", "b"])
    await cluster.client.create(POOL_STATUS_REQUESTS, a_status_request("one", poolName="c"))
    assert [pool.pool_name for pool in (await answered(cluster, "one")).pools] == ["c"]
    await cluster.client.create(POOL_STATUS_REQUESTS, a_status_request("none", driver="other.example.com"))
    status = await answered(cluster, "none")
    assert (status.pool_count, status.pools) == (0, ())


def slices(*documents):
    return [codec.to_object(document, ResourceSlice) for document in documents]


def count(*documents, **spec):
    return pool_statuses(ResourcePoolStatusRequestSpec(driver=DRIVER, **spec), slices(*documents), [])


def test_an_incomplete_pool_says_so_and_counts_nothing():
    (pool,) = count(pool_slice(count=2))
    assert pool.validation_error == "pool is incomplete: 1 of 2 slices of generation 1 are published"
    assert pool.total_devices is None


def test_a_device_published_twice_is_an_error():
    (pool,) = count(pool_slice("a", count=2), pool_slice("b", count=2))
    assert pool.validation_error == "device dev is published more than once"


def test_an_older_generation_does_not_count():
    (pool,) = count(pool_slice(generation=1, devices=[{"name": "x"}, {"name": "y"}]), pool_slice("new", generation=2))
    assert (pool.generation, pool.total_devices) == (2, 1)


@pytest.mark.parametrize(("amount", "available"), [("10", 2), ("25", 0)])
def test_devices_whose_counters_are_spent_are_unavailable(amount, available):
    consumption = [{"counterSet": "set", "counters": {"memory": {"value": amount}}}]
    kind = {"type.example.com": {"string": "half"}}
    devices = [{"name": name, "consumesCounters": consumption, "attributes": kind} for name in ("a", "b")]
    document = pool_slice(devices=devices, count=1)
    document["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "20"}}}]
    document["spec"]["partitionTypeAttribute"] = "type.example.com"
    (pool,) = count(document)
    assert (pool.available_devices, pool.unavailable_devices) == (available, 2 - available)
    (summary,) = pool.partition_summary
    assert (summary.type, summary.total, summary.allocatable) == ("half", 2, available)


def test_shareable_devices_sum_up_their_capacity():
    device = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
    (pool,) = count(pool_slice(devices=[device, {**device, "name": "b"}]))
    summary = pool.shareable_summary
    assert (summary.fully_available_devices, summary.partially_available_devices) == (2, 0)
    (memory,) = summary.capacity
    assert (str(memory.total), str(memory.consumed), str(memory.available)) == ("16Gi", "0", "16Gi")
