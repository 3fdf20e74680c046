"""Informers: the first state, changes, resuming, and what happens when the server forgets."""

import asyncio

import pytest

from dray.client import PODS, SLICES, ApiError, Client, Handler, Informer, Informers, ServerUnreachable
from dray.client.indexed_objects import (
    BY_NAMESPACE,
    by_namespace,
)
from dray.clock import SimulatedClock
from tests.client.scripted import HANG, ScriptedTransport, bookmark, error_event, event, ok, refusal


def pod(name, revision, uid="", node="", namespace="ns"):
    metadata = {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(revision)}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def listing(revision, *pods):
    return ok({"metadata": {"resourceVersion": str(revision)}, "items": list(pods)})


class Seen:
    """A handler that writes everything down."""

    def __init__(self):
        self.lines = []

    def handler(self):
        return Handler(
            lambda new: self.lines.append(f"+{new.metadata.name}"),
            lambda old, new: self.lines.append(f"~{new.metadata.name}"),
            lambda old: self.lines.append(f"-{old.metadata.name}"),
        )


class InformerRig:
    def __init__(self, answers=(), streams=(), kind=PODS, **options):
        self.clock = SimulatedClock()
        self.transport = ScriptedTransport(list(answers), list(streams))
        self.informer = Informer(Client(self.transport, clock=self.clock), kind, **options)
        self.seen = Seen()
        self.informer.add_handler(self.seen.handler())

    async def __aenter__(self):
        self.informer.start()
        await self.settle()
        return self

    async def __aexit__(self, *_):
        await self.informer.stop()

    async def settle(self, seconds=0.0):
        for _ in range(5):
            await self.clock.advance(seconds / 5)


async def test_watch_list_gives_the_first_state_in_one_go_and_then_changes():
    go_on = asyncio.Event()
    stream = [event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), bookmark("5", ends_initial=True)]
    async with InformerRig(streams=[[*stream, go_on, event("MODIFIED", pod("a", 6, node="n")), HANG]]) as rig:
        assert rig.informer.has_synced
        assert rig.seen.lines == ["+a", "+b"]
        assert rig.informer.revision == "5"
        go_on.set()
        await rig.settle()
        assert rig.seen.lines == ["+a", "+b", "~a"]
        assert rig.informer.get("ns/a").spec.node_name == "n"
    query = rig.transport.stream_calls[0].query
    assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")


async def test_nothing_is_synced_before_the_initial_events_end():
    async with InformerRig(streams=[[event("ADDED", pod("a", 1)), HANG]]) as rig:
        assert not rig.informer.has_synced
        assert rig.seen.lines == []


@pytest.mark.parametrize("code", [400, 405, 422])
async def test_a_server_without_watch_list_is_listed_and_watched(code):
    refused = ApiError(code, "Invalid", "sendInitialEvents is forbidden")
    async with InformerRig([listing(7, pod("a", 3))], [refused, [event("DELETED", pod("a", 8)), HANG]]) as rig:
        assert rig.seen.lines == ["+a", "-a"]
        assert rig.transport.stream_calls[1].query["resourceVersion"] == "7"
        assert "sendInitialEvents" not in rig.transport.stream_calls[1].query


async def test_slices_are_listed_since_a_list_has_equal_devices_once():
    items = [{"metadata": {"name": name, "resourceVersion": "3"}, "spec": {"devices": 0}} for name in ("a", "b")]
    shared = ok({"metadata": {"resourceVersion": "7"}, "items": items, "deviceLists": [[{"name": "gpu-0"}]]})
    async with InformerRig([shared], [[HANG]], SLICES) as rig:
        assert rig.seen.lines == ["+a", "+b"]
        assert [each.spec.devices[0].name for each in rig.informer] == ["gpu-0", "gpu-0"]
        assert rig.transport.stream_calls[0].query["resourceVersion"] == "7"


async def test_a_watch_list_that_ends_too_early_turns_to_listing():
    async with InformerRig([listing(7, pod("a", 3))], [[event("ADDED", pod("a", 3))], [HANG]]) as rig:
        assert rig.informer.has_synced
        assert rig.seen.lines == ["+a"]


async def test_a_watch_list_that_is_cut_half_way_turns_to_listing():
    cut = [event("ADDED", pod("a", 3)), ServerUnreachable("reset")]
    async with InformerRig([listing(7, pod("a", 3), pod("b", 4))], [cut, [HANG]]) as rig:
        await rig.settle(5)
        assert rig.informer.has_synced
        assert rig.seen.lines == ["+a", "+b"]


async def test_a_server_that_was_not_there_yet_is_asked_for_a_watch_list_again():
    async with InformerRig(streams=[ServerUnreachable("refused"), [bookmark("5", ends_initial=True), HANG]]) as rig:
        await rig.settle(5)
        assert rig.informer.has_synced


async def test_a_watch_that_ends_resumes_after_the_last_event_and_bookmark():
    first = [event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True), event("ADDED", pod("b", 9)), bookmark("20")]
    async with InformerRig(streams=[first, [event("ADDED", pod("c", 21))], [HANG]]) as rig:
        await rig.settle()
        assert rig.seen.lines == ["+a", "+b", "+c"]
        assert [call.query.get("resourceVersion") for call in rig.transport.stream_calls] == [None, "20", "21"]
        assert rig.informer.relists == 1


async def test_a_cut_connection_resumes_without_a_new_list():
    first = [bookmark("5", ends_initial=True), event("ADDED", pod("a", 6)), ServerUnreachable("reset")]
    async with InformerRig(streams=[first, [event("ADDED", pod("b", 7)), HANG]]) as rig:
        await rig.settle(10)
        assert rig.seen.lines == ["+a", "+b"]
        assert rig.informer.relists == 1


async def test_a_watch_that_brought_news_before_the_cut_goes_on_at_once():
    cut = ServerUnreachable("reset")
    first = [bookmark("5", ends_initial=True), event("ADDED", pod("a", 6)), cut]
    async with InformerRig(
        streams=[first, [event("ADDED", pod("b", 7)), cut], [event("ADDED", pod("c", 8)), HANG]]
    ) as rig:
        await rig.settle(0)
        assert rig.seen.lines == ["+a", "+b", "+c"]
        assert [call.query.get("resourceVersion") for call in rig.transport.stream_calls] == [None, "6", "7"]


async def test_a_quiet_watch_that_is_cut_after_a_while_goes_on_at_once():
    """Kinds that seldom change have watches without news; they must not wait longer with every cut."""
    cuts = [asyncio.Event() for _ in range(6)]
    streams = [[bookmark("5", ends_initial=True), cuts[0], ServerUnreachable("reset")]]
    streams += [[cut, ServerUnreachable("reset")] for cut in cuts[1:]]
    async with InformerRig(streams=[*streams, [event("ADDED", pod("a", 6)), HANG]]) as rig:
        for number, cut in enumerate(cuts, 1):
            await rig.settle(20)
            assert len(rig.transport.stream_calls) == number
            cut.set()
            await rig.settle(0)
        assert rig.seen.lines == ["+a"]


async def test_a_watch_that_is_cut_without_news_is_not_hammered():
    cut = ServerUnreachable("reset")
    async with InformerRig(streams=[[bookmark("5", ends_initial=True), cut], *([[cut]] * 30)]) as rig:
        await rig.settle(3)
        assert len(rig.transport.stream_calls) < 8


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param([error_event(410, "Expired")], id="error-in-the-stream"),
        pytest.param(ApiError(410, "Expired", "too old resource version"), id="refused"),
    ],
)
async def test_a_forgotten_revision_means_one_list_and_only_the_differences(gone):
    first = [event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), event("ADDED", pod("c", 3))]
    again = [event("ADDED", pod("a", 1)), event("ADDED", pod("b", 40)), event("ADDED", pod("d", 41))]
    streams = [[*first, bookmark("5", ends_initial=True)], gone, [*again, bookmark("50", ends_initial=True), HANG]]
    async with InformerRig(streams=streams) as rig:
        await rig.settle(10)
        assert rig.seen.lines[3:] == ["-c", "~b", "+d"]
        assert rig.informer.revision == "50"
        assert rig.informer.relists == 2


async def test_a_store_that_was_replaced_is_listed_anew():
    too_large = ApiError(504, "Timeout", "Too large resource version", None)
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    body = {"kind": "Status", "code": 504, "reason": "Timeout", "message": "x", "details": {"causes": [cause]}}
    too_large = ApiError.from_answer(504, ok(body).body)
    streams = [[event("ADDED", pod("a", 90)), bookmark("99", ends_initial=True)], too_large]
    async with InformerRig(
        streams=[*streams, [event("ADDED", pod("b", 2)), bookmark("3", ends_initial=True), HANG]]
    ) as rig:
        await rig.settle(10)
        assert rig.seen.lines == ["+a", "-a", "+b"]
        assert rig.informer.revision == "3"


async def test_an_object_re_created_while_we_looked_away_is_deleted_and_added():
    streams = [
        [event("ADDED", pod("a", 1, uid="old")), bookmark("5", ends_initial=True)],
        [error_event(410, "Expired")],
        [event("ADDED", pod("a", 9, uid="new")), bookmark("10", ends_initial=True), HANG],
    ]
    async with InformerRig(streams=streams) as rig:
        await rig.settle(10)
        assert rig.seen.lines == ["+a", "-a", "+a"]
        assert rig.informer.get("ns/a").metadata.uid == "new"


async def test_the_same_state_seen_twice_calls_nobody():
    streams = [[bookmark("5", ends_initial=True), event("ADDED", pod("a", 6)), event("MODIFIED", pod("a", 6)), HANG]]
    async with InformerRig(streams=streams) as rig:
        assert rig.seen.lines == ["+a"]


async def test_failures_wait_longer_each_time_and_reset_after_success():
    down = ServerUnreachable("refused")
    async with InformerRig(streams=[down, down, down, down, [bookmark("5", ends_initial=True), HANG]]) as rig:
        counts = []
        for _ in range(20):
            await rig.settle(1)
            counts.append(len(rig.transport.stream_calls))
        assert counts[0] <= 2
        assert counts[-1] == 5
        assert rig.informer.has_synced


async def test_a_watch_that_ends_at_once_is_not_hammered():
    streams = [[bookmark("5", ends_initial=True)], *([[]] * 30)]
    async with InformerRig(streams=streams) as rig:
        await rig.settle(3)
        assert len(rig.transport.stream_calls) < 8


async def test_an_error_that_is_not_gone_keeps_the_state():
    streams = [
        [event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True)],
        ApiError(403, "Forbidden", "no"),
        [HANG],
    ]
    async with InformerRig(streams=streams) as rig:
        await rig.settle(5)
        assert rig.informer.get("ns/a") is not None
        assert rig.transport.stream_calls[-1].query["resourceVersion"] == "5"


async def test_one_broken_handler_does_not_stop_the_others(caplog):
    rig = InformerRig(streams=[[event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True), HANG]])
    second = Seen()
    rig.informer.add_handler(Handler(on_add=lambda _: 1 / 0))
    rig.informer.add_handler(second.handler())
    async with rig:
        assert rig.seen.lines == ["+a"]
        assert second.lines == ["+a"]
        assert "ZeroDivisionError" in caplog.text


async def test_late_handlers_hear_of_everything_there_is():
    async with InformerRig(streams=[[event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True), HANG]]) as rig:
        late = Seen()
        rig.informer.add_handler(late.handler())
        assert late.lines == ["+a"]


async def test_resync_hands_everything_out_again():
    rig = InformerRig(streams=[[event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True), HANG]], resync_s=100)
    async with rig:
        await rig.settle(250)
        assert rig.seen.lines == ["+a", "~a", "~a"]


async def test_indexes_follow_changes():
    go_on = asyncio.Event()
    stream = [event("ADDED", pod("a", 1, node="n1")), bookmark("5", ends_initial=True), go_on]
    rig = InformerRig(
        streams=[[*stream, event("MODIFIED", pod("a", 6, node="n2")), event("DELETED", pod("a", 7)), HANG]]
    )
    rig.informer.add_indexer("node", lambda item: (item.spec.node_name,))
    async with rig:
        rig.informer.add_indexer(BY_NAMESPACE, by_namespace)
        assert [p.metadata.name for p in rig.informer.by_index("node", "n1")] == ["a"]
        assert [p.metadata.name for p in rig.informer.by_index(BY_NAMESPACE, "ns")] == ["a"]
        go_on.set()
        await rig.settle()
        assert rig.informer.by_index("node", "n1") == rig.informer.by_index("node", "n2") == []
        assert len(rig.informer) == 0


async def test_informers_are_shared_and_wait_together():
    transport = ScriptedTransport(streams=[[bookmark("5", ends_initial=True), HANG]])
    informers = Informers(Client(transport))
    pods = informers.of(PODS)
    assert informers.of(PODS) is pods
    assert informers.of(PODS, field_selector="spec.nodeName=n") is not pods
    informers.start()
    await asyncio.wait_for(pods.synced(), 30)
    await informers.stop()


async def test_idle_informers_ask_nothing():
    async with InformerRig(streams=[[bookmark("5", ends_initial=True), HANG]]) as rig:
        await rig.settle(3600)
        assert len(rig.transport.stream_calls) == 1
        assert rig.transport.calls == []


async def test_a_missing_kind_is_waited_for():
    not_found = ApiError(404, "NotFound", "the server could not find the requested resource")
    streams = [not_found, [bookmark("3", ends_initial=True), HANG]]
    async with InformerRig([refusal(404, "NotFound")], streams) as rig:
        await rig.settle(10)
        assert rig.informer.has_synced


async def test_managed_fields_are_not_kept():
    fields = [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]
    heavy = pod("a", 1)
    heavy["metadata"] |= {"managedFields": fields, "labels": {"kept": "yes"}}
    changed = pod("a", 6)
    changed["metadata"]["managedFields"] = fields
    go_on = asyncio.Event()
    stream = [event("ADDED", heavy), bookmark("5", ends_initial=True), go_on, event("MODIFIED", changed), HANG]
    async with InformerRig(streams=[stream]) as rig:
        assert rig.informer.get("ns/a").metadata.managed_fields == ()
        assert rig.informer.get("ns/a").metadata.labels == {"kept": "yes"}
        go_on.set()
        await rig.settle()
        assert rig.informer.get("ns/a").metadata.resource_version == "6"
        assert rig.informer.get("ns/a").metadata.managed_fields == ()


async def test_a_server_that_names_its_wait_is_obeyed():
    details = {"retryAfterSeconds": 20}
    body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "x", "details": details}
    busy = ApiError.from_answer(429, ok(body).body)
    async with InformerRig(streams=[busy, [bookmark("3", ends_initial=True), HANG]]) as rig:
        await rig.settle(15)
        assert len(rig.transport.stream_calls) == 1
        await rig.settle(10)
        assert rig.informer.has_synced


async def test_a_share_waits_only_for_its_own_kinds():
    transport = ScriptedTransport(streams=[[bookmark("5", ends_initial=True), HANG], [HANG]])
    informers = Informers(Client(transport))
    mine, theirs = informers.share(), informers.share()
    pods = mine.of(PODS)
    theirs.of(PODS, field_selector="spec.nodeName=n")
    assert theirs.of(PODS) is pods
    informers.start()
    await asyncio.wait_for(mine.synced(), 30)
    assert mine.has_synced
    assert not theirs.has_synced
    await informers.stop()


async def test_a_frame_that_is_no_json_and_a_bug_do_not_end_the_watch():
    streams = [
        [event("ADDED", pod("a", 1)), bookmark("5", ends_initial=True), b"<html>"],
        RuntimeError("bug"),
        [event("ADDED", pod("b", 7)), HANG],
    ]
    async with InformerRig(streams=streams) as rig:
        await rig.settle(10)
        assert rig.seen.lines == ["+a", "+b"]
