"""Every "no" explains itself: records for waiting pods, metrics, event texts."""

import pytest
from tests.builders.objects import a_claim, a_class, a_node, a_pod, a_request, a_slice, template_pod
from tests.scheduler.world import World

from dray.api.reasons import texts
from dray.scheduler.outcomes import event_text


async def test_record_names_nodes_requests_and_devices():
    world = World(
        a_node("node-1"),
        a_node("node-2", unschedulable=True),
        a_slice("node-1", 2),
        a_class(),
        a_claim("claim", a_request("big", count=3)),
        a_pod("pod", "claim"),
    )
    await world.settle()
    record = world.scheduler.explanations.find("default", "pod")
    document = record.document()
    assert document["message"] == world.message()
    assert {(row["code"], row["plugin"], row["count"], tuple(row["nodes"])) for row in document["nodes"]} == {
        ("devices", "DynamicResources", 1, ("node-1",)),
        ("node-unschedulable", "NodeUnschedulable", 1, ("node-2",)),
    }
    (verdict, *_) = document["devices"]
    assert (verdict["node"], verdict["request"]) == ("node-1", "big")
    assert verdict["code"]
    assert verdict["detail"]


async def test_record_goes_when_the_pod_is_placed():
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("p1"), *template_pod("p2"))
    await world.settle()
    assert [record.name for record in world.scheduler.explanations] == ["p2"]
    gone = world.pod("p1")
    world.cluster.delete(gone)
    world.cluster.release_claims_of(gone)
    await world.settle(seconds=2)
    assert len(world.scheduler.explanations) == 0


async def test_pre_filter_refusal_is_recorded_for_all_nodes():
    world = World(a_node("node-1"), a_node("node-2"), a_claim(), a_pod("pod", "claim"))
    await world.settle()
    (row,) = world.scheduler.explanations.find("default", "pod").nodes
    assert (row.code, row.count) == ("missing-class", 2)
    assert texts(row.reasons) == ("request req: device class gpu does not exist",)


async def test_metrics_carry_kubernetes_names():
    world = World(a_node(cpu="1"), a_pod("p1", cpu="1"), a_pod("p2", cpu="1"))
    await world.settle()
    text = world.scheduler.handle.metrics.registry.text()
    for line in (
        'scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"} 1',
        'scheduler_schedule_attempts_total{result="unschedulable",profile="default-scheduler"} 1',
        'scheduler_queue_incoming_pods_total{queue="active",event="PodAdd"} 2',
        'scheduler_queue_incoming_pods_total{queue="unschedulable",event="ScheduleAttemptFailure"} 1',
        "scheduler_pod_scheduling_attempts_count 1",
        "scheduler_preemption_attempts_total 1",
    ):
        assert line in text
    assert 'scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter"' in text
    (gauge,) = world.scheduler.parked_by_plugin()
    assert gauge == ({"plugin": "NodeResourcesFit", "profile": "default-scheduler"}, 1)


@pytest.mark.parametrize(("length", "expected"), [(10, 10), (1024, 1024), (1025, 1024), (5000, 1024)])
def test_event_texts_are_cut_with_a_mark(length, expected):
    text = event_text("x" * length)
    assert len(text.encode()) == expected
    assert text.endswith(" ...") is (length > 1024)


async def test_condition_is_written_once_for_the_same_answer():
    world = World(a_node(cpu="1"), a_pod("p1", cpu="2"))
    await world.settle()
    before = world.cluster.writes.count("patch pod status p1")
    world.scheduler.queue.activate("uid-p1", world.clock.monotonic())
    await world.settle()
    assert world.cluster.writes.count("patch pod status p1") == before == 1
