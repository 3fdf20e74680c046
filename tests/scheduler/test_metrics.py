"""Numbers under the names of Kubernetes, with its labels."""

import asyncio
import contextlib
import re

import pytest
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_slice
from tests.scheduler.world import World
from tests.waiting import eventually

from dray.scheduler.metrics import PLUGIN_BUCKETS, POINT_BUCKETS
from dray.scheduler.service import SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions

LABELS = {
    "scheduler_pending_pods": {"queue"},
    "scheduler_schedule_attempts_total": {"result", "profile"},
    "scheduler_scheduling_attempt_duration_seconds": {"result", "profile"},
    "scheduler_scheduling_algorithm_duration_seconds": set(),
    "scheduler_pod_scheduling_attempts": set(),
    "scheduler_pod_scheduling_sli_duration_seconds": {"attempts"},
    "scheduler_framework_extension_point_duration_seconds": {"extension_point", "status", "profile"},
    "scheduler_plugin_execution_duration_seconds": {"plugin", "extension_point", "status"},
    "scheduler_unschedulable_pods": {"plugin", "profile"},
    "scheduler_queue_incoming_pods_total": {"queue", "event"},
    "scheduler_preemption_attempts_total": set(),
    "scheduler_preemption_victims": set(),
    "scheduler_cache_size": {"type"},
    "scheduler_goroutines": {"operation"},
    "scheduler_event_handling_duration_seconds": {"event"},
    "scheduler_queueing_hint_execution_duration_seconds": {"plugin", "event", "hint"},
}


def labels_of(text, name):
    """The labels of a metric's first sample, without those of buckets."""
    found = re.search(rf"^{name}(?:_count)?(?:\{{([^}}]*)\}})? ", text, re.MULTILINE)
    assert found, f"{name} has no sample"
    return set(re.findall(r'(\w+)="', found.group(1) or ""))


def has_sample(text, name):
    return re.search(rf"^{name}(_count)?[{{ ]", text, re.MULTILINE) is not None


async def until_sampled(service, names, seconds=40.0):
    """The text with a sample of each metric."""
    missing = list(names)

    def text():
        found = service.metrics.registry.text()
        missing[:] = [name for name in names if not has_sample(found, name)]
        return "" if missing else found

    return await eventually(text, lambda: f"samples of {missing}", seconds)


@pytest.fixture
async def at_work(tmp_path):
    """What a scheduler at work on a real API server publishes, once it has bound, refused and preempted."""
    plane = ControlPlane(ControlPlaneOptions(tmp_path, with_scheduler=False))
    await plane.start()
    client = plane.client("user")
    service = SchedulerService(plane.client("scheduler"))
    task = asyncio.create_task(service.run())
    try:
        await service.ready.wait()
        yield service, client
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await plane.stop()


async def test_names_and_labels(at_work):
    from dray.client import NODES, PODS

    service, client = at_work
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    await client.create(NODES, node)
    await client.patch(NODES, "n", {"spec": {"taints": None}})

    def pod(name, cpu, priority=0):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": 0}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    # One attempt in ten is measured plugin by plugin.
    for index in range(12):
        await client.create(PODS, pod(f"small-{index}", "10m"), "default")
    await client.create(PODS, pod("too-big", "2"), "default")
    await client.create(PODS, pod("big", "990m"), "default")
    await until_sampled(service, {"scheduler_unschedulable_pods"})
    # A node that grows a little makes plugins say whether that helps.
    await client.patch(NODES, "n", {"status": {"allocatable": {"memory": "2Gi"}}}, subresource="status")
    text = await until_sampled(service, LABELS.keys() - {"scheduler_preemption_victims"})
    for name, labels in LABELS.items():
        if name != "scheduler_preemption_victims":
            assert labels_of(text, name) == labels, name
    for queue in ("active", "backoff", "unschedulable", "gated"):
        assert f'scheduler_pending_pods{{queue="{queue}"}}' in text
    assert re.search(r'scheduler_cache_size\{type="nodes"\} 1', text)


def test_buckets():
    assert POINT_BUCKETS[:2] == (0.0001, 0.0002)
    assert len(POINT_BUCKETS) == 12
    assert PLUGIN_BUCKETS[0] == 0.00001
    assert PLUGIN_BUCKETS[1] == pytest.approx(0.000015)
    assert len(PLUGIN_BUCKETS) == 20


async def test_victims_are_counted():
    world = World(a_node(cpu="1"), a_pod("low", cpu="1", node_name="node-1", priority=0))
    world.apply(a_pod("high", cpu="1", priority=10))
    await world.settle(seconds=3)
    assert "scheduler_preemption_victims_count 1" in world.scheduler.handle.metrics.registry.text()


async def test_attempts_until_a_pod_was_placed():
    world = World(a_node(), a_slice(devices=1), a_class(), a_claim("a"), a_claim("b"), a_pod("p1", "a"))
    await world.settle()
    world.apply(a_pod("p2", "b"))
    await world.settle()
    gone = world.pod("p1")
    world.cluster.delete(gone)
    world.cluster.release_claims_of(gone)
    await world.settle(seconds=2)
    assert world.node_of("p2")
    text = world.scheduler.handle.metrics.registry.text()
    assert 'scheduler_pod_scheduling_attempts_bucket{le="1"} 1' in text
    assert 'scheduler_pod_scheduling_attempts_bucket{le="2"} 2' in text
    assert 'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"} 1' in text


POINTS = {"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "Permit", "PreBind", "Bind"}


async def test_every_extension_point_has_its_time():
    """Of all plugins together in every attempt, and of each plugin in one attempt of ten."""
    world = World()
    world.apply(a_class(), a_node("node-1"), a_node("node-2"), a_slice("node-1", 20))
    for number in range(20):
        claim = f"c{number}"
        world.apply(
            a_claim(claim), a_pod(f"p{number}", claim), a_pod(f"plain{number}"), a_pod(f"large{number}", cpu="999")
        )
    await world.settle()
    text = world.scheduler.handle.metrics.registry.text()
    points = set(re.findall(r'extension_point_duration_seconds_count\{extension_point="(\w+)"', text))
    assert points == POINTS
    sampled = set(re.findall(r'plugin_execution_duration_seconds_count\{plugin="\w+",extension_point="(\w+)"', text))
    assert sampled == POINTS - {"Permit"}


async def test_pods_that_wait_for_devices_are_counted_and_timed():
    world = World(a_class(), a_node("node-1"), a_slice("node-1", 1))
    for number in range(20):
        world.apply(a_claim(f"c{number}"), a_pod(f"p{number}", f"c{number}"))
    await world.settle()
    (waiting,) = world.scheduler.parked_by_plugin()
    assert waiting == ({"plugin": "DynamicResources", "profile": "default-scheduler"}, 19)
    text = world.scheduler.handle.metrics.registry.text()
    timed = r'plugin_execution_duration_seconds_count\{plugin="DynamicResources",extension_point="(\w+)"'
    assert {"PreFilter", "Filter", "PostFilter"} <= set(re.findall(timed, text))
