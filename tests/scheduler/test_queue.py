"""Waiting pods: order, backoff, parking, gates, flushes."""

import pytest
from tests.builders.objects import a_pod

from dray.scheduler.framework.interface import (
    Action,
    ClusterChange,
    ClusterEvent,
    EventRegistration,
    EventResource,
    Hint,
    unresolvable,
)
from dray.scheduler.queue import PodBackoff, QueuedPod, QueueName, SchedulingQueue

NODE_ADDED = ClusterEvent(EventResource.NODE, Action.ADD, "NodeAdd")
NODE_LABEL = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL, "NodeUpdate")


def by_priority(pod, queued_at):
    return (-(pod.spec.priority or 0), queued_at)


def a_queue(registrations=None, gate=lambda pod: None, **kwargs):
    rows = {"Plugin": [EventRegistration(NODE_ADDED)]} if registrations is None else registrations
    return SchedulingQueue(gate, rows, by_priority, **kwargs)


def names(queue, now=0.0):
    popped = []
    while (entry := queue.pop(now)) is not None:
        popped.append(entry.pod.metadata.name)
    return popped


def test_priority_first_then_age():
    queue = a_queue()
    queue.add(a_pod("old"), 1.0)
    queue.add(a_pod("new"), 2.0)
    queue.add(a_pod("important", priority=10), 3.0)
    assert names(queue) == ["important", "old", "new"]


def test_changed_priority_changes_the_order():
    queue = a_queue()
    queue.add(a_pod("a"), 1.0)
    queue.add(a_pod("b"), 2.0)
    queue.update(a_pod("b"), a_pod("b", priority=5), 3.0)
    assert names(queue) == ["b", "a"]


def test_a_pod_that_is_changed_before_it_was_seen_enters_the_queue():
    queue = a_queue()
    queue.update(a_pod("a"), a_pod("a", priority=5), 1.0)
    assert names(queue) == ["a"]


def test_a_pod_that_is_changed_during_its_attempt_is_not_tried_a_second_time_beside_it():
    queue = a_queue()
    queue.add(a_pod("a"), 1.0)
    entry = queue.pop(1.0)
    queue.update(a_pod("a"), a_pod("a", priority=5), 2.0)
    assert names(queue, 2.0) == []
    queue.put_back_failed(entry, 2.0)
    queue.flush_backoff(100.0)
    assert names(queue, 100.0) == ["a"]


@pytest.mark.parametrize(
    ("rejections", "errors", "expected"),
    [(1, 0, 1), (2, 0, 2), (3, 0, 4), (4, 0, 8), (5, 0, 10), (60, 0, 10), (7, 1, 1), (7, 3, 4), (0, 0, 0)],
)
def test_backoff_doubles_up_to_its_maximum(rejections, errors, expected):
    entry = QueuedPod(a_pod(), 0.0, 0.0, rejections=rejections, errors_in_a_row=errors)
    assert PodBackoff().ends_at(entry) == expected


def test_no_backoff_if_switched_off():
    assert PodBackoff(0, 0).ends_at(QueuedPod(a_pod(), 0.0, 5.0, rejections=3)) == 0


def rejected(queue, plugin="Plugin", now=0.0, pod=None):
    queue.add(pod or a_pod(), now)
    entry = queue.pop(now)
    queue.put_back_rejected(entry, {plugin}, now)
    return entry


def test_rejected_pod_waits_for_an_event_of_the_plugin_that_rejected_it():
    queue = a_queue({"Plugin": [EventRegistration(NODE_ADDED)], "Other": [EventRegistration(NODE_LABEL)]})
    entry = rejected(queue)
    assert entry.where.value == "unschedulable"
    assert queue.move(ClusterChange(NODE_LABEL), 20.0) == 0
    assert queue.move(ClusterChange(NODE_ADDED), 20.0) == 1
    assert entry.where.value == "active"


def test_what_is_said_of_a_waiting_pod_reaches_pods_in_their_attempts():
    queue = a_queue()
    rejected(queue, pod=a_pod("waits"))
    queue.add(a_pod("tried"), 0.0)
    tried = queue.pop(0.0)
    queue.update(a_pod("waits"), a_pod("waits"), 1.0, [ClusterChange(NODE_ADDED)])
    queue.put_back_rejected(tried, {"Plugin"}, 2.0)
    assert tried.where.value != "unschedulable"


def test_woken_pod_waits_out_its_backoff():
    queue = a_queue(pop_from_backoff=False)
    entry = rejected(queue)
    queue.move(ClusterChange(NODE_ADDED), 0.5)
    assert entry.where.value == "backoff"
    assert queue.pop(0.6) is None
    queue.flush_backoff(0.9)
    assert entry.where.value == "backoff"
    queue.flush_backoff(1.0)
    assert entry.where.value == "active"


def test_idle_scheduler_takes_a_rejected_pod_out_of_backoff_early():
    queue = a_queue()
    entry = rejected(queue)
    queue.move(ClusterChange(NODE_ADDED), 0.5)
    assert queue.pop(0.6) is entry


def test_idle_scheduler_is_told_of_a_rejected_pod_at_once_and_of_a_failed_one_after_its_backoff():
    told = []
    queue = a_queue(on_ready=lambda: told.append(queue.counts[QueueName.BACKOFF]))
    entry = rejected(queue)
    told.clear()
    queue.move(ClusterChange(NODE_ADDED), 0.5)
    assert told == [1], "it may be taken out of backoff early"
    assert queue.pop(0.6) is entry
    queue.put_back_failed(entry, 0.6)
    assert told == [1]
    queue.flush_backoff(10.0)
    assert told == [1, 0]


def test_failed_pod_waits_out_its_backoff_and_for_no_event():
    queue = a_queue()
    queue.add(a_pod(), 0.0)
    entry = queue.pop(0.0)
    queue.put_back_failed(entry, 0.0)
    assert entry.where.value == "backoff"
    assert queue.pop(0.5) is None
    queue.flush_backoff(1.0)
    assert queue.pop(1.0) is entry


def test_hint_decides_and_an_event_without_hint_always_wakes():
    calls = []

    def hint(pod, change):
        calls.append(pod.metadata.name)
        return Hint.QUEUE if pod.metadata.name == "lucky" else Hint.SKIP

    queue = a_queue({"Plugin": [EventRegistration(NODE_ADDED, hint)]})
    lucky = rejected(queue, pod=a_pod("lucky"))
    other = rejected(queue, pod=a_pod("other"))
    queue.move(ClusterChange(NODE_ADDED), 50.0)
    assert (lucky.where.value, other.where.value) == ("active", "unschedulable")
    assert sorted(calls) == ["lucky", "other"]


def test_narrowing_asks_only_the_pods_concerned():
    calls = []

    def hint(pod, change):
        calls.append(pod.metadata.name)
        return Hint.SKIP

    queue = a_queue({"Plugin": [EventRegistration(NODE_ADDED, hint, lambda change: ["uid-p7"])]})
    for index in range(20):
        rejected(queue, pod=a_pod(f"p{index}"))
    queue.move(ClusterChange(NODE_ADDED), 50.0)
    assert calls == ["p7"]


def test_events_during_an_attempt_are_replayed():
    queue = a_queue()
    queue.add(a_pod(), 0.0)
    entry = queue.pop(0.0)
    queue.move(ClusterChange(NODE_ADDED), 0.1)
    queue.put_back_rejected(entry, {"Plugin"}, 0.2)
    assert entry.where.value == "backoff"


def test_events_before_the_attempt_are_not():
    queue = a_queue()
    queue.add(a_pod("first"), 0.0)
    queue.add(a_pod("second"), 0.0)
    first = queue.pop(0.0)
    queue.move(ClusterChange(NODE_ADDED), 0.1)
    second = queue.pop(0.2)
    queue.put_back_rejected(second, {"Plugin"}, 0.3)
    queue.put_back_rejected(first, {"Plugin"}, 0.3)
    assert (first.where.value, second.where.value) == ("backoff", "unschedulable")


def test_memory_of_events_does_not_grow_without_bounds():
    queue = a_queue()
    for index in range(2000):
        queue.add(a_pod(f"p{index}"), 0.0)
        entry = queue.pop(0.0)
        queue.move(ClusterChange(NODE_ADDED), 0.0)
        queue.done(entry.uid)
    assert len(queue._in_flight._events) < 300


def test_gated_pod_reacts_to_its_gate_only():
    open_gate = []

    def gate(pod):
        return None if open_gate else unresolvable("closed").by("Gate")

    rows = {"Plugin": [EventRegistration(NODE_ADDED)], "Gate": [EventRegistration(NODE_LABEL)]}
    queue = a_queue(rows, gate)
    queue.add(a_pod(), 0.0)
    entry = queue.get("uid-pod")
    assert entry.where.value == "gated"
    open_gate.append(True)
    queue.move(ClusterChange(NODE_ADDED), 1.0)
    assert entry.where.value == "gated"
    queue.move(ClusterChange(NODE_LABEL), 1.0)
    assert entry.where.value == "active"


def test_a_pod_that_passed_a_gate_waits_for_the_plugin_that_rejected_it():
    closed = []

    def gate(pod):
        return unresolvable("closed").by("Gate") if closed else None

    rows = {"Plugin": [EventRegistration(NODE_ADDED)], "Gate": [EventRegistration(NODE_LABEL)]}
    queue = a_queue(rows, gate)
    queue.add(a_pod(), 0.0)
    entry = queue.pop(0.0)
    closed.append(True)
    queue.put_back_rejected(entry, ["Plugin"], 0.0)
    queue.move(ClusterChange(NODE_ADDED), 50.0)
    assert entry.where.value == "gated"
    closed.clear()
    entry.queued_at = 50.0
    queue.move(ClusterChange(NODE_LABEL), 50.0)
    assert entry.where.value == "backoff"
    assert queue.pop(50.0) is entry
    queue.put_back_rejected(entry, ["Plugin"], 50.0)
    queue.move(ClusterChange(NODE_ADDED), 100.0)
    assert entry.where.value == "active"


def test_gate_is_asked_again_on_every_move():
    closed = []

    def gate(pod):
        return unresolvable("closed").by("Gate") if closed else None

    queue = a_queue(gate=gate)
    entry = rejected(queue)
    closed.append(True)
    queue.move(ClusterChange(NODE_ADDED), 50.0)
    assert entry.where.value == "gated"


def test_forgotten_pods_are_tried_again_after_five_minutes():
    queue = a_queue()
    entry = rejected(queue)
    queue.flush_unschedulable(299.0)
    assert entry.where.value == "unschedulable"
    queue.flush_unschedulable(301.0)
    assert entry.where.value == "active"


def test_deleted_pod_is_gone_from_wherever_it_was():
    queue = a_queue()
    queue.add(a_pod("active"), 0.0)
    queue.delete("uid-active")
    rejected(queue, pod=a_pod("parked"))
    queue.delete("uid-parked")
    assert names(queue) == []
    assert queue.move(ClusterChange(NODE_ADDED), 50.0) == 0
    assert len(queue) == 0
    assert not +queue.counts


def test_counts_follow_the_pods():
    queue = a_queue()
    for index in range(3):
        queue.add(a_pod(f"p{index}"), 0.0)
    entry = queue.pop(0.0)
    queue.put_back_rejected(entry, {"Plugin"}, 0.0)
    counted = {where.value: count for where, count in queue.counts.items() if count}
    assert counted == {"active": 2, "unschedulable": 1}


def test_a_pod_that_no_plugin_rejected_is_tried_again():
    """Such as one that came before the first node: no event is known to help it."""
    queue = a_queue()
    queue.add(a_pod("early"), 0.0)
    for now, backoff in ((0.0, 1.0), (2.0, 2.0), (5.0, 4.0)):
        entry = queue.pop(now)
        queue.put_back_rejected(entry, (), now)
        assert entry.where is QueueName.BACKOFF
        queue.flush_backoff(now + backoff - 0.1)
        assert queue.counts[QueueName.ACTIVE] == 0
        queue.flush_backoff(now + backoff)
        assert queue.counts[QueueName.ACTIVE] == 1
