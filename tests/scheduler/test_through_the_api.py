"""The scheduler at work on a real API server with its controllers: YAML in, bound pods, claims and ledgers out."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.builders.manifests import a_claim, a_device, a_node, a_pod, a_request, a_slice
from tests.scheduler.overdrawn import overdrawn
from tests.waiting import eventually

from dray.client import CLAIMS, DEVICE_CLASSES, EVENTS, NODES, PODS, SERVICE_ACCOUNTS, SLICES, TEMPLATES
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.queue import QueueName
from dray.scheduler.service import MOST_BINDINGS, SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

KINDS = {
    "Node": NODES,
    "DeviceClass": DEVICE_CLASSES,
    "ResourceSlice": SLICES,
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": TEMPLATES,
    "Pod": PODS,
}
GI = 1024**3
CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
USE_CASES = yaml.safe_load((Path(__file__).parent / "data" / "kep_5517_use_cases.yaml").read_text())


class Cluster:
    """A control plane and the hand of a user."""

    def __init__(self, plane):
        self.plane = plane
        self.client = plane.client("user")

    async def apply(self, *documents):
        for document in documents:
            kind = KINDS[document["kind"]]
            namespace = "default" if kind.namespaced else ""
            await self.client.create(kind, document, namespace)
            if document["kind"] == "Node":
                await self.client.patch(NODES, document["metadata"]["name"], {"spec": {"taints": None}})

    async def until(self, condition, seconds=20.0):
        return await eventually(condition, within_s=seconds)

    async def bound(self, name):
        async def is_bound():
            pod = await self.client.get(PODS, name, "default")
            return pod if pod.spec.node_name else None

        return await self.until(is_bound)

    async def condition(self, name):
        async def has_condition():
            pod = await self.client.get(PODS, name, "default")
            return next(
                (row for row in pod.status.conditions if row.type == "PodScheduled" and row.status == "False"), None
            )

        return await self.until(has_condition)

    def requested(self, node="node1"):
        state = self.plane.scheduler.scheduler.handle.snapshot.nodes.get(node)
        return {"cpu": state.ledger.requested("cpu"), "memory": state.ledger.requested("memory")}


@pytest.fixture
async def cluster(tmp_path):
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data"))
    await plane.start()
    try:
        yield Cluster(plane)
    finally:
        await plane.stop()


def full_node(name="node1", cpu="128", memory="256Gi", pods="110"):
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": None}
    labels = {"kubernetes.io/hostname": name}
    return a_node(name, amounts, labels=labels, status={"capacity": amounts, "conditions": [ready]})


def gpus(node, count):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{index}"} for index in range(count)],
        },
    }


GPU_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
ONE_GPU = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


def gpu_pod(name, scheduler="default-scheduler"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        },
    }


def plain_pod(name, scheduler="default-scheduler", cpu="1"):
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_pod_with_claim_template_is_bound_with_a_device(cluster):
    await cluster.apply(full_node(), gpus("node1", 1), GPU_CLASS, ONE_GPU, gpu_pod("first"))
    pod = await cluster.bound("first")
    name = pod.status.resource_claim_statuses[0].resource_claim_name
    claim = await cluster.client.get(CLAIMS, name, "default")
    assert [row.device for row in claim.status.allocation.devices.results] == ["gpu-0"]
    assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)

    async def told():
        events = (await cluster.client.list(EVENTS, "default")).items
        return [event for event in events if event.reason == "Scheduled"]

    (event,) = await cluster.until(told)
    assert event.message == "Successfully assigned default/first to node1"
    assert (event.reporting_component, event.action, event.type) == ("default-scheduler", "Binding", "Normal")


async def test_shares_are_in_the_claims_and_the_slice_stays_as_it_was(cluster):
    nic = a_device("nic-0", allowMultipleAllocations=True, capacity={"bandwidth": "10G"})
    published = a_slice("nics", nic, node="node1")
    await cluster.apply(full_node(), published, GPU_CLASS)
    before = await cluster.client.get(SLICES, "nics")
    for name, amount in (("a", "3G"), ("b", "4G")):
        claim = a_claim(name, a_request(capacity={"requests": {"bandwidth": amount}}), namespace="")
        await cluster.apply(claim, a_pod(name, claims={"nic": name}))
        await cluster.bound(name)
    assert await cluster.client.get(SLICES, "nics") == before
    results = [
        json.loads((await cluster.client.raw("GET", f"{CLAIMS_PATH}/{name}")).body)["status"]["allocation"]["devices"][
            "results"
        ]
        for name in ("a", "b")
    ]
    assert [(row["device"], row["consumedCapacity"]) for (row,) in results] == [
        ("nic-0", {"bandwidth": "3G"}),
        ("nic-0", {"bandwidth": "4G"}),
    ]
    assert len({row["shareID"] for (row,) in results}) == 2


async def test_second_pod_waits_and_gets_the_device_when_the_first_is_gone(cluster):
    await cluster.apply(full_node(), gpus("node1", 1), GPU_CLASS, ONE_GPU, gpu_pod("first"))
    await cluster.bound("first")
    await cluster.apply(gpu_pod("second"))
    condition = await cluster.condition("second")
    assert condition.reason == "Unschedulable"
    assert condition.message.startswith("0/1 nodes are available: 1 cannot allocate all claims. ")
    await cluster.client.delete(PODS, "first", "default", grace_seconds=0)
    assert (await cluster.bound("second")).spec.node_name == "node1"


@pytest.mark.parametrize("case", USE_CASES, ids=[case["name"] for case in USE_CASES])
async def test_kep_use_case(cluster, case):
    await cluster.apply(full_node(), *case["objects"])
    pod = await cluster.bound(case["pod"])
    written = {
        row.resource_claim_name.rpartition("-")[0] if case.get("generated") else row.resource_claim_name: {
            "containers": list(row.containers),
            **{resource: str(amount) for resource, amount in row.resources.items()},
        }
        for row in pod.status.node_allocatable_resource_claim_statuses
    }
    assert written == case["status"]
    assert cluster.requested() == case["requested"]


async def test_two_schedulers_share_devices_without_giving_one_twice(cluster):
    second = SchedulerService(
        cluster.plane.client("second-scheduler"), config=SchedulerConfig(profiles=(ProfileConfig("second"),))
    )
    task = asyncio.create_task(second.run())
    try:
        await second.ready.wait()
        for index in range(3):
            await cluster.apply(full_node(f"node-{index}"), gpus(f"node-{index}", 4))
        await cluster.apply(GPU_CLASS, ONE_GPU)
        pods = [gpu_pod(f"p{index}", "second" if index % 2 else "default-scheduler") for index in range(12)]
        await asyncio.gather(*(cluster.apply(pod) for pod in pods))
        for pod in pods:
            await cluster.bound(pod["metadata"]["name"])
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    claims = (await cluster.client.list(CLAIMS, "default")).items
    slices = (await cluster.client.list(SLICES)).items
    assert list(overdrawn(claims, slices)) == []
    held = {row.device + row.pool for claim in claims for row in claim.status.allocation.devices.results}
    assert len(held) == 12


async def test_two_schedulers_do_not_overbook_a_node(cluster):
    """Nodes with room for six pods; ten want it, half of them through either scheduler, all at once."""
    second = SchedulerService(
        cluster.plane.client("second-scheduler"), config=SchedulerConfig(profiles=(ProfileConfig("second"),))
    )
    task = asyncio.create_task(second.run())
    try:
        await second.ready.wait()
        for index in range(2):
            await cluster.apply(full_node(f"node-{index}", cpu="3"))
        pods = [plain_pod(f"p{index}", "second" if index % 2 else "default-scheduler") for index in range(10)]
        await asyncio.gather(*(cluster.apply(pod) for pod in pods))

        async def are_placed():
            found = (await cluster.client.list(PODS, "default")).items
            waiting = [pod for pod in found if any(row.reason == "Unschedulable" for row in pod.status.conditions)]
            placed = Counter(pod.spec.node_name for pod in found if pod.spec.node_name)
            assert max(placed.values(), default=0) <= 3
            return placed if placed.total() + len(waiting) == 10 else None

        assert await cluster.until(are_placed) == {"node-0": 3, "node-1": 3}
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_scheduler_that_restarts_goes_on_where_the_last_one_stopped(cluster):
    await cluster.apply(full_node(), gpus("node1", 3), GPU_CLASS, ONE_GPU, gpu_pod("before"))
    await cluster.bound("before")
    await cluster.apply(gpu_pod("after", "later"))
    later = SchedulerService(cluster.plane.client("later"), config=SchedulerConfig(profiles=(ProfileConfig("later"),)))
    task = asyncio.create_task(later.run())
    try:
        await cluster.bound("after")
        later.scheduler.handle.devices.check()
        later.scheduler.handle.snapshot.check()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    claims = (await cluster.client.list(CLAIMS, "default")).items
    assert len({row.device for claim in claims for row in claim.status.allocation.devices.results}) == 2


async def test_claim_with_a_full_list_of_users_takes_no_further_pod(cluster):
    from msgspec.structs import replace

    from dray.api.resource import ResourceClaimConsumerReference

    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared"},
        "spec": ONE_GPU["spec"]["spec"],
    }
    pod = gpu_pod("first")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    await cluster.apply(full_node(), gpus("node1", 1), GPU_CLASS, claim, pod)
    await cluster.bound("first")
    stored = await cluster.client.get(CLAIMS, "shared", "default")
    # Users of another kind: the claim controller never removes those.
    others = tuple(
        ResourceClaimConsumerReference(api_group="example.com", resource="things", name=f"t{n}", uid=f"uid-{n}")
        for n in range(255)
    )
    users = (*stored.status.reserved_for, *others)
    await cluster.client.update_status(CLAIMS, replace(stored, status=replace(stored.status, reserved_for=users)))
    second = {**pod, "metadata": {"name": "second"}}
    await cluster.apply(second)
    condition = await cluster.condition("second")
    assert condition.reason == "SchedulerError"
    assert "add reservation to claim default/shared" in condition.message
    after = await cluster.client.get(CLAIMS, "shared", "default")
    assert len(after.status.reserved_for) == 256


async def test_pods_that_wait_for_their_devices_do_not_hold_up_others(cluster):
    """More pods than are bound at a time wait for binding conditions that nobody sets."""
    slow = gpus("node1", 12)
    for device in slow["spec"]["devices"]:
        device |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    await cluster.apply(full_node(), slow, GPU_CLASS, ONE_GPU, *(gpu_pod(f"slow-{index}") for index in range(12)))

    async def all_wait():
        return cluster.plane.scheduler.scheduler.handle.waiting == 12

    await cluster.until(all_wait)
    plain = gpu_pod("plain")
    del plain["spec"]["resourceClaims"], plain["spec"]["containers"][0]["resources"]
    await cluster.apply(plain)
    assert (await cluster.bound("plain")).spec.node_name == "node1"


class Bindings:
    """The most that were under way at once, and how they asked to be treated."""

    def __init__(self, plane):
        self._handle = plane.running.server.handle
        self._now = self.most = 0
        self.priorities = set()
        plane.scheduler.client.transport._handle = self.handle

    async def handle(self, request):
        if not request.path.endswith("/binding"):
            return await self._handle(request)
        self._now += 1
        self.most = max(self.most, self._now)
        self.priorities.add(request.headers.get("priority"))
        try:
            return await self._handle(request)
        finally:
            self._now -= 1


async def test_pods_are_bound_many_at_once_and_before_the_writes_of_others(cluster):
    count = 5 * MOST_BINDINGS
    bindings = Bindings(cluster.plane)
    await cluster.until(lambda: cluster.client.find(SERVICE_ACCOUNTS, "default", "default"))
    await cluster.apply(full_node(pods="500"))
    await cluster.client.patch(NODES, "node1", {"spec": {"unschedulable": True}})
    for number in range(count):
        await cluster.apply(a_pod(f"pod-{number}"))
    counts = cluster.plane.scheduler.scheduler.queue.counts

    async def all_wait():
        return counts[QueueName.UNSCHEDULABLE] == count

    await cluster.until(all_wait)
    queue, clock = cluster.plane.scheduler.scheduler.queue, cluster.plane.client("test").clock
    backoff_ends = max(queue._backoff.ends_at(entry) for entry in queue.waiting())
    await eventually(lambda: clock.monotonic() > backoff_ends, "the end of the backoff")
    await cluster.client.patch(NODES, "node1", {"spec": {"unschedulable": None}})

    async def are_bound():
        return all(pod.spec.node_name for pod in (await cluster.client.list(PODS, "default")).items)

    await cluster.until(are_bound)
    assert MOST_BINDINGS // 4 < bindings.most <= MOST_BINDINGS
    assert bindings.priorities == {"u=0"}


async def test_a_pod_that_came_before_the_first_node_is_bound_once_there_is_one(cluster):
    await cluster.until(lambda: cluster.client.find(SERVICE_ACCOUNTS, "default", "default"))
    await cluster.apply(a_pod("early"))
    assert (await cluster.condition("early")).message == "no nodes available to schedule pods"
    await cluster.apply(full_node())
    await cluster.bound("early")


def five_cpus_each(document):
    mappings = {"cpu": {"allocationMultiplier": "5"}}
    devices = [{**device, "nodeAllocatableResourceMappings": mappings} for device in document["spec"]["devices"]]
    return {**document, "spec": {**document["spec"], "devices": devices}}


async def test_devices_behind_an_extended_resource_are_charged_in_status_and_ledger(cluster):
    serving = {**GPU_CLASS, "spec": {**GPU_CLASS["spec"], "extendedResourceName": "example.com/gpu"}}
    pods = [plain_pod(name) for name in ("first", "second")]
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    await cluster.apply(full_node(cpu="8"), five_cpus_each(gpus("node1", 2)), serving, pods[0])
    bound = await cluster.bound("first")
    (status,) = bound.status.node_allocatable_resource_claim_statuses
    assert status.resource_claim_name == bound.status.extended_resource_claim_status.resource_claim_name
    assert {name: str(amount) for name, amount in status.resources.items()} == {"cpu": "5"}
    await cluster.apply(pods[1])
    assert "1 Insufficient cpu" in (await cluster.condition("second")).message

    async def is_charged():
        return cluster.requested()["cpu"] == 5000

    await cluster.until(is_charged)
