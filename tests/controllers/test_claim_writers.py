"""Schedulers, controller and users write one claim at the same time, on a real server: the orders that hurt are forced."""

import asyncio

import pytest

from dray.client import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, ApiError, Client
from dray.controllers.claims import ClaimController
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.service import SchedulerService
from tests.controllers.builders import CLASS, FINALIZER, node_with_ready, ns_claim, ns_pod, pool_slice
from tests.controllers.interleaving import Interleaving

CLAIM_WRITE, STATUS_WRITE = "/resourceclaims/claim$", "/resourceclaims/claim/status$"
PATIENCE_S = 30.0


class Schedulers:
    """As many as a test wants, each under a name and behind a wire of its own."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._tasks = []

    async def start(self, name="default-scheduler"):
        wire = Interleaving(self._cluster.wire.inner)
        config = SchedulerConfig(profiles=(ProfileConfig(scheduler_name=name),))
        service = SchedulerService(Client(wire, user_agent=name), config=config)
        self._tasks.append(asyncio.create_task(service.run(), name=name))
        async with asyncio.timeout(PATIENCE_S):
            await service.ready.wait()
        return wire

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def schedulers(cluster):
    node = node_with_ready()
    node["status"] |= {"allocatable": {"pods": "110", "cpu": "8"}, "capacity": {"pods": "110", "cpu": "8"}}
    await cluster.client.create(NODES, node)
    await cluster.client.patch(NODES, "node", {"spec": {"taints": None}})
    await cluster.client.create(SLICES, pool_slice(devices=[{"name": "dev-0"}, {"name": "dev-1"}]))
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {}}
    await cluster.client.create(DEVICE_CLASSES, device_class)
    schedulers = Schedulers(cluster)
    yield schedulers
    await schedulers.stop()


def a_user(name="pod", scheduler="default-scheduler", **claims):
    pod = ns_pod(name, claims=claims or {"gpu": "claim"})
    pod["spec"] |= {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0}
    return pod


async def bound(cluster, name="pod"):
    async def has_node():
        pod = await cluster.pod(name)
        return pod if pod is not None and pod.spec.node_name else None

    return await cluster.eventually(has_node, PATIENCE_S)


async def users(cluster, name="claim"):
    claim = await cluster.claim(name)
    return sorted(user.name for user in claim.status.reserved_for) if claim else []


async def gone(cluster, name="claim"):
    async def look():
        return await cluster.claim(name) is None

    await cluster.eventually(look, PATIENCE_S)


async def test_A1_a_claim_deleted_before_it_is_locked_is_not_allocated(cluster, schedulers):
    wire = await schedulers.start()
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim())
    wire.before("PUT", CLAIM_WRITE, lambda: cluster.client.delete(CLAIMS, "claim", "ns"))
    await cluster.client.create(PODS, a_user())

    await gone(cluster)
    assert not (await cluster.pod()).spec.node_name
    # The next one under that name serves the pod.
    again = await cluster.client.create(CLAIMS, ns_claim())
    await bound(cluster)
    claim = await cluster.claim()
    assert claim.metadata.uid == again.metadata.uid
    assert claim.status.allocation is not None


async def test_A1_a_claim_deleted_after_it_was_locked_goes_when_nobody_uses_it(cluster, schedulers):
    wire = await schedulers.start()
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim())
    wire.before("PUT", STATUS_WRITE, lambda: cluster.client.delete(CLAIMS, "claim", "ns"))
    await cluster.client.create(PODS, a_user())

    async def settled():
        claim, pod = await cluster.claim(), await cluster.pod()
        return claim is None or (claim.status.reserved_for and claim.status.allocation and pod.spec.node_name)

    await cluster.eventually(settled, PATIENCE_S)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await gone(cluster)


async def test_A2_a_claim_replaced_while_it_is_locked_is_started_over_with(cluster, schedulers):
    wire = await schedulers.start()
    await cluster.client.create(CLAIMS, ns_claim())
    made = []

    async def replace():
        await cluster.client.delete(CLAIMS, "claim", "ns")
        made.append(await cluster.client.create(CLAIMS, ns_claim()))

    wire.before("PUT", CLAIM_WRITE, replace)
    await cluster.client.create(PODS, a_user())
    await bound(cluster)
    claim = await cluster.claim()
    assert claim.metadata.uid == made[0].metadata.uid
    assert claim.status.allocation is not None
    assert await users(cluster) == ["pod"]


@pytest.mark.parametrize("state", ["A3-allocated", "A4-unallocated"])
async def test_A3_A4_two_schedulers_write_one_claim_and_no_entry_is_lost(cluster, schedulers, state):
    """The first holds its write back until the second has bound its pod."""
    first, _ = await schedulers.start("one"), await schedulers.start("two")
    await cluster.client.create(CLAIMS, ns_claim())
    if state == "A3-allocated":
        await cluster.allocate("claim", device="dev-0", node="node")
    first.before("PUT", STATUS_WRITE, lambda: bound(cluster, "b"))
    await cluster.client.create(PODS, a_user("a", "one"))

    async def deciding():
        return first.count("PUT", STATUS_WRITE)

    await cluster.eventually(deciding, PATIENCE_S)
    await cluster.client.create(PODS, a_user("b", "two"))
    await bound(cluster, "b")
    allocation = (await cluster.claim()).status.allocation
    await bound(cluster, "a")
    claim = await cluster.claim()
    assert await users(cluster) == ["a", "b"]
    assert claim.status.allocation == allocation
    assert len(claim.status.allocation.devices.results) == 1


async def test_A5_a_second_user_of_a_claim_that_is_being_freed_gets_it_whole(cluster, schedulers):
    """The scheduler reserves for the next pod between the controller's decision to deallocate and its write."""
    await schedulers.start()
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim())
    first = await cluster.client.create(PODS, a_user("first"))
    await bound(cluster, "first")

    async def reserve_for_second():
        await cluster.client.create(PODS, a_user("second"))
        await bound(cluster, "second")

    cluster.wire.before("PUT", STATUS_WRITE, reserve_for_second)
    await cluster.set_phase(first, "Succeeded")

    async def settled():
        return await users(cluster) == ["second"]

    await cluster.eventually(settled, PATIENCE_S)
    await cluster.quiet()
    claim = await cluster.claim()
    assert claim.status.allocation is not None
    assert FINALIZER in claim.metadata.finalizers


async def test_A5_a_user_that_comes_after_the_claim_was_freed_gets_it_anew(cluster, schedulers):
    await schedulers.start()
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim())
    first = await cluster.client.create(PODS, a_user("first"))
    await bound(cluster, "first")

    async def second_comes():
        await cluster.client.create(PODS, a_user("second"))

    cluster.wire.after("PUT", STATUS_WRITE, second_comes)
    await cluster.set_phase(first, "Succeeded")
    await bound(cluster, "second")
    claim = await cluster.claim()
    assert await users(cluster) == ["second"]
    assert claim.status.allocation is not None
    assert FINALIZER in claim.metadata.finalizers


async def test_A6_pods_that_hold_what_the_other_needs_both_run_in_the_end(cluster, schedulers):
    """Both claims get lost half way once: each pod has one of two, and has to give it up."""
    wire = await schedulers.start()
    await cluster.start(ClaimController)
    for name in ("a", "b"):
        await cluster.client.create(CLAIMS, ns_claim(name))
        wire.fail("PUT", f"/resourceclaims/{name}/status$", ApiError(500, "InternalError", "no luck"))
    await cluster.client.create(PODS, a_user("one", first="a", second="b"))
    await cluster.client.create(PODS, a_user("two", first="b", second="a"))
    await bound(cluster, "one")
    await bound(cluster, "two")
    assert await users(cluster, "a") == await users(cluster, "b") == ["one", "two"]


async def test_A7_a_claim_torn_away_from_its_user_leaves_the_pod_alone(cluster, schedulers):
    await schedulers.start()
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim())
    pod = await cluster.client.create(PODS, a_user())
    await bound(cluster)
    await cluster.set_phase(pod, "Running")
    await cluster.client.delete(CLAIMS, "claim", "ns")
    with pytest.raises(ApiError, match="cannot be removed while"):
        await cluster.client.patch(CLAIMS, "claim", {"metadata": {"finalizers": None}}, "ns")
    # Who may write the status can still free the claim first, and then tear it away.
    await cluster.client.patch(CLAIMS, "claim", {"status": {"reservedFor": None}}, "ns", subresource="status")
    await cluster.client.patch(CLAIMS, "claim", {"metadata": {"finalizers": None}}, "ns")
    await gone(cluster)
    await cluster.quiet()
    current = await cluster.pod()
    assert current.metadata.deletion_timestamp is None
    assert current.status.phase == "Running"


async def test_A10_a_pod_whose_source_was_lost_on_the_way_is_refused(cluster):
    """As a webhook with an old schema would leave it."""
    pod = ns_pod(claims={"gpu": "claim"})
    del pod["spec"]["resourceClaims"][0]["resourceClaimName"]
    with pytest.raises(ApiError, match="must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"):
        await cluster.client.create(PODS, pod)


async def test_A11_an_old_client_that_writes_the_status_takes_nothing_away(cluster):
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}, claims={"own": "claim"}))
    statuses = [{"name": "gpu", "resourceClaimName": "pod-gpu-x"}]
    amounts = [{"resourceClaimName": "pod-gpu-x", "resources": {"cpu": "2"}}]
    status = {"resourceClaimStatuses": statuses, "nodeAllocatableResourceClaimStatuses": amounts}
    await cluster.client.patch(PODS, "pod", {"status": status}, "ns", subresource="status")
    document = await cluster.client.get_document(PODS, "pod", "ns")
    old = {key: value for key, value in document["status"].items() if key not in status}
    await cluster.client.update(PODS, {**document, "status": {**old, "phase": "Running"}}, subresource="status")
    after = (await cluster.client.get_document(PODS, "pod", "ns"))["status"]
    assert after["phase"] == "Running"
    assert after["resourceClaimStatuses"] == statuses
    assert after["nodeAllocatableResourceClaimStatuses"] == document["status"]["nodeAllocatableResourceClaimStatuses"]
    # Whoever says so can still clear them.
    cleared = {**after, "resourceClaimStatuses": [], "nodeAllocatableResourceClaimStatuses": []}
    document = await cluster.client.get_document(PODS, "pod", "ns")
    await cluster.client.update(PODS, {**document, "status": cleared}, subresource="status")
    assert "resourceClaimStatuses" not in (await cluster.client.get_document(PODS, "pod", "ns"))["status"]
