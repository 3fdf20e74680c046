"""The event recorder: repeats become counts, floods become a trickle, nothing ever blocks or fails."""

import json

import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.client import NORMAL, PODS, WARNING, Client, EventRecorder, ServerUnreachable, reference_to
from dray.client.events import AT_ONCE
from dray.clock import SimulatedClock
from tests.client.scripted import ScriptedTransport, ok, refusal
from tests.waiting import let_others_run

POD = Pod(metadata=ObjectMeta(namespace="ns", name="p", uid="u", resource_version="3"))


@pytest.fixture
def clock():
    return SimulatedClock()


def a_recorder(clock, answers=()):
    transport = ScriptedTransport(list(answers) or [lambda call: ok({"metadata": {"name": "e"}})] * 100)
    return EventRecorder(Client(transport, clock=clock), "scheduler", host="h"), transport


async def say(recorder, *messages, reason="Failed", obj=POD):
    for message in messages:
        recorder.event(reference_to(PODS, obj), WARNING, reason, message)
        await recorder.flush()


async def test_what_an_event_says(clock):
    recorder, transport = a_recorder(clock)
    recorder.event(reference_to(PODS, POD), NORMAL, "Scheduled", "assigned")
    await recorder.flush()
    call = transport.calls[0]
    assert (call.method, call.path) == ("POST", "/api/v1/namespaces/ns/events")
    event = json.loads(call.body)
    assert event["metadata"]["name"].startswith("p.")
    assert event["involvedObject"] == {
        "kind": "Pod", "apiVersion": "v1", "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "3",
    }  # fmt: skip
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Scheduled", "assigned", 1)
    assert event["source"] == {"component": "scheduler", "host": "h"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2024-01-01T00:00:00Z"


async def test_two_events_at_one_moment_are_two(clock):
    recorder, transport = a_recorder(clock)
    await say(recorder, "one", "two")
    names = [json.loads(call.body)["metadata"]["name"] for call in transport.calls]
    assert len(set(names)) == 2


async def test_events_of_many_pods_do_not_wait_for_each_other_but_repeats_do(clock):
    under_way, most, methods = 0, 0, []

    class Slow(ScriptedTransport):
        async def request(self, call):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            methods.append(call.method)
            await let_others_run(5)
            under_way -= 1
            return ok({"metadata": {"name": "e"}})

    recorder = EventRecorder(Client(Slow([]), clock=clock), "scheduler")
    for number in range(40):
        pod = Pod(metadata=ObjectMeta(namespace="ns", name=f"p{number}", uid=f"u{number}"))
        recorder.event(reference_to(PODS, pod), NORMAL, "Scheduled", "assigned")
    for _ in range(3):
        recorder.event(reference_to(PODS, POD), WARNING, "Failed", "no")
    await recorder.flush()
    assert most == AT_ONCE
    assert methods == ["POST"] * 41 + ["PATCH"] * 2


async def test_a_long_name_leaves_room_for_the_time(clock):
    recorder, transport = a_recorder(clock)
    long = Pod(metadata=ObjectMeta(namespace="ns", name=f"{'a' * 200}.{'b' * 52}", uid="u"))
    await say(recorder, "no", obj=long)
    event = json.loads(transport.calls[0].body)
    assert len(event["metadata"]["name"]) <= 253
    assert event["involvedObject"]["name"] == long.metadata.name


async def test_repeats_raise_the_count_of_one_event(clock):
    recorder, transport = a_recorder(clock)
    await say(recorder, "no", "no")
    await clock.advance(60)
    await say(recorder, "no")
    assert [call.method for call in transport.calls] == ["POST", "PATCH", "PATCH"]
    last = json.loads(transport.calls[-1].body)
    assert (last["count"], last["lastTimestamp"]) == (3, "2024-01-01T00:01:00Z")


async def test_an_event_that_expired_is_made_anew(clock):
    created = ok({"metadata": {"name": "e"}})
    recorder, transport = a_recorder(clock, [created, refusal(404, "NotFound"), created])
    await say(recorder, "no", "no")
    assert [call.method for call in transport.calls] == ["POST", "PATCH", "POST"]


async def test_many_different_messages_of_one_reason_are_combined(clock):
    recorder, transport = a_recorder(clock)
    await say(recorder, *(f"message {number}" for number in range(15)))
    assert [call.method for call in transport.calls] == ["POST"] * 11 + ["PATCH"] * 4
    assert json.loads(transport.calls[10].body)["message"] == "(combined from similar events): message 10"


async def test_a_flood_about_one_object_is_cut_and_others_are_still_heard(clock):
    recorder, transport = a_recorder(clock)
    await say(recorder, *["no"] * 60)
    assert len(transport.calls) == 25
    other = Pod(metadata=ObjectMeta(namespace="ns", name="q", uid="v"))
    await say(recorder, "no", obj=other)
    assert len(transport.calls) == 26
    await clock.advance(301)
    await say(recorder, "no")
    assert len(transport.calls) == 27


@pytest.mark.parametrize("trouble", [refusal(403, "Forbidden"), refusal(500, "InternalError"), ServerUnreachable("x")])
async def test_trouble_is_logged_and_forgotten(clock, trouble):
    recorder, transport = a_recorder(clock, [trouble, ok({"metadata": {"name": "e"}})])
    await say(recorder, "one", "two")
    assert len(transport.calls) == 2


async def test_cluster_scoped_objects_have_their_events_in_default(clock):
    recorder, transport = a_recorder(clock)
    await say(recorder, "x" * 5000, obj=Pod(metadata=ObjectMeta(name="node-like")))
    assert transport.calls[0].path == "/api/v1/namespaces/default/events"
    assert len(json.loads(transport.calls[0].body)["message"]) == 1024


async def test_an_idle_recorder_has_no_task(clock):
    recorder, _ = a_recorder(clock)
    assert recorder._sender is None
    await say(recorder, "x")
    assert recorder._sender.done()
    await recorder.stop()
