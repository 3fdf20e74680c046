"""The rest of taint eviction's cases: groups, taints that come again, effects from the future, claims that are others."""

from datetime import UTC, datetime

from dray.api.resource import Device, DeviceTaint, DeviceToleration, ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.client import CLAIMS, POD_GROUPS, PODS, SLICES
from dray.controllers.taint_eviction import TaintEvictionController
from dray.controllers.taint_eviction.deadlines import PublishedTaints, eviction_time
from tests.controllers.builders import DRIVER, ns_claim, ns_group, ns_pod
from tests.controllers.test_taint_eviction import (
    a_taint,
    a_user,
    evicted,
    is_leaving,
    messages,
    publish,
    republish,
    stays,
    tainted_device,
    toleration,
)


async def test_pods_of_a_group_leave_its_tainted_device(cluster):
    group = await cluster.client.create(POD_GROUPS, ns_group(claims={"gpu": "claim"}))
    for name in ("a", "b"):
        member = ns_pod(name, claims={"gpu": "claim"}, node="node")
        member["spec"]["schedulingGroup"] = {"podGroupName": "group"}
        await cluster.client.create(PODS, member)
    await cluster.client.create(PODS, ns_pod("stranger", claims={"gpu": "claim"}, node="node"))
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim", device="dev")
    document = await cluster.client.get_document(CLAIMS, "claim", "ns")
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": group.metadata.uid}
    document["status"]["reservedFor"] = [user]
    await cluster.client.update_status(CLAIMS, document)
    await cluster.start(TaintEvictionController)
    await publish(cluster, tainted_device(a_taint()))
    await evicted(cluster, "a")
    await evicted(cluster, "b")
    await stays(cluster, "stranger")


async def test_a_taint_that_comes_again_evicts_after_all(cluster):
    await a_user(cluster, tolerations=[toleration("sick", "Exists", seconds=3600)])
    await cluster.start(TaintEvictionController)
    await publish(cluster, tainted_device(a_taint()))

    async def cancelled():
        return "Cancelling deletion" in await messages(cluster)

    controller = cluster.running[-1]

    async def pending():
        return len(controller.pending)

    await cluster.eventually(pending)
    await republish(cluster, tainted_device())
    await cluster.eventually(cancelled)
    assert not await is_leaving(cluster)
    await republish(cluster, tainted_device(a_taint(key="other")))
    await evicted(cluster)


async def test_a_claim_that_was_made_anew_is_another_claim(cluster):
    """The pod was let into the old one; the new one of that name has nothing to do with it."""
    await a_user(cluster)
    await cluster.client.patch(CLAIMS, "claim", {"status": {"reservedFor": None}}, "ns", subresource="status")
    await cluster.client.patch(CLAIMS, "claim", {"metadata": {"finalizers": None}}, "ns")
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await cluster.client.create(CLAIMS, ns_claim())
    other = await cluster.client.create(PODS, ns_pod("other", claims={"gpu": "claim"}))
    await cluster.allocate("claim", other, device="dev")
    await publish(cluster, tainted_device(a_taint()))
    await cluster.start(TaintEvictionController)
    await stays(cluster)


def test_effects_from_the_future_evict_nobody():
    """A newer server may have more of them."""
    taint = DeviceTaint(key="k", effect="NoFuture", time_added="2026-01-01T00:00:00Z")
    assert eviction_time(taint, (), datetime(2026, 1, 2, tzinfo=UTC)) is None
    spec = ResourceSliceSpec(driver=DRIVER, pool=ResourcePool(name="p", generation=1), devices=(Device(name="d"),))
    published = PublishedTaints()
    published.put(ResourceSlice(spec=spec))
    assert list(published.of(DRIVER, "p", "d")) == []


async def test_a_slice_that_moves_to_another_pool_takes_its_taints_along(cluster):
    await a_user(cluster, tolerations=[toleration("sick", "Exists", seconds=3600)])
    await cluster.start(TaintEvictionController)
    await publish(cluster, tainted_device(a_taint()))
    controller = cluster.running[-1]

    async def pending():
        return len(controller.pending)

    await cluster.eventually(pending)
    await cluster.client.delete(SLICES, "slice")
    await publish(cluster, tainted_device(a_taint()), pool="elsewhere")

    async def cancelled():
        return not controller.pending

    await cluster.eventually(cancelled)
    await stays(cluster)


def test_a_toleration_for_longer_than_there_are_dates_is_one_for_ever():
    """One such claim must not keep the eviction of other pods from being looked at."""
    taint = DeviceTaint(key="k", effect="NoExecute", time_added="2026-01-01T00:00:00Z")
    now = datetime(2026, 1, 2, tzinfo=UTC)
    for seconds in (2**62, 10**12):
        toleration = DeviceToleration(operator="Exists", effect="NoExecute", toleration_seconds=seconds)
        assert eviction_time(taint, (toleration,), now) is None
