"""Typed calls: what goes over the wire, and how answers and refusals come back."""

import asyncio
import json

import msgspec
import pytest

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.client import CLAIMS, NODES, PODS, SLICES, ApiError, Client, ServerUnreachable
from dray.client.cluster_listing import list_cluster
from dray.client.kinds import SHARED_DEVICES_LIST
from dray.client.rest import headers_of
from dray.clock import SimulatedClock
from tests.client.scripted import ScriptedTransport, error_event, event, ok, refusal

POD = {"kind": "Pod", "metadata": {"namespace": "ns", "name": "p", "uid": "u1", "resourceVersion": "5"}}


def a_client(answers=(), streams=(), clock=None):
    transport = ScriptedTransport(list(answers), list(streams))
    return Client(transport, clock=clock or SimulatedClock(), user_agent="test/1"), transport


async def test_get_decodes_to_a_struct():
    client, transport = a_client([ok(POD)])
    pod = await client.get(PODS, "p", "ns")
    assert (pod.metadata.name, pod.metadata.uid) == ("p", "u1")
    assert (transport.calls[0].method, transport.calls[0].path) == ("GET", "/api/v1/namespaces/ns/pods/p")
    assert transport.calls[0].user_agent == "test/1"


async def test_an_urgent_client_is_the_same_one_in_a_hurry():
    client, transport = a_client([ok(POD), ok(POD)])
    await client.urgent().get(PODS, "p", "ns")
    await client.get(PODS, "p", "ns")
    urgent, calm = transport.calls
    assert (urgent.urgent, calm.urgent) == (True, False)
    assert msgspec.structs.replace(urgent, urgent=False) == calm
    assert headers_of(urgent) == {**headers_of(calm), "priority": "u=0"}


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        pytest.param(refusal(404, "NotFound"), 404, "NotFound", id="status-body"),
        pytest.param(ok(b"bad gateway", 502), 502, "", id="plain-text-from-a-proxy"),
        pytest.param(ok(b"", 403), 403, "Forbidden", id="empty-body"),
        pytest.param(ok(b"[1]", 409), 409, "Conflict", id="json-that-is-no-status"),
        pytest.param(ok(b'{"message":"\xe4"}', 409), 409, "Conflict", id="another-encoding"),
        pytest.param(ok(b'{"x":' + b"[" * 5000, 409), 409, "Conflict", id="nested-deeply"),
    ],
)
async def test_refusals_are_errors_with_code_and_reason(answer, code, reason):
    client, _ = a_client([answer])
    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "p", "ns")
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert str(caught.value)


async def test_find_turns_not_found_into_none_and_nothing_else():
    client, _ = a_client([refusal(404, "NotFound"), refusal(403, "Forbidden")])
    assert await client.find(PODS, "p", "ns") is None
    with pytest.raises(ApiError):
        await client.find(PODS, "p", "ns")


async def test_a_null_list_counts_as_empty():
    document = {"metadata": {"name": "c", "namespace": "ns"}, "status": {"devices": None, "reservedFor": None}}
    client, _ = a_client([ok(document)])
    claim = await client.get(CLAIMS, "c", "ns")
    assert claim.status.devices == ()


async def test_too_many_requests_is_obeyed_and_then_succeeds():
    clock = SimulatedClock()
    client, transport = a_client([refusal(429, "TooManyRequests", retry_after="3"), ok(POD)], clock=clock)
    call = asyncio.create_task(client.get(PODS, "p", "ns"))
    await clock.advance(0)
    await clock.advance(2.9)
    assert not call.done()
    assert len(transport.calls) == 1
    await clock.advance(0.2)
    assert (await call).metadata.name == "p"


async def test_giving_up_after_many_refusals():
    clock = SimulatedClock()
    client, transport = a_client([refusal(429, "TooManyRequests", retry_after="1")] * 20, clock=clock)
    call = asyncio.create_task(client.get(PODS, "p", "ns"))
    for _ in range(20):
        await clock.advance(1)
    with pytest.raises(ApiError):
        await call
    assert len(transport.calls) == 11


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_server_errors_without_retry_after_are_not_repeated(code):
    client, transport = a_client([refusal(code, "InternalError"), ok(POD)])
    with pytest.raises(ApiError):
        await client.get(PODS, "p", "ns")
    assert len(transport.calls) == 1


async def test_evictions_refused_by_a_budget_come_back_at_once():
    client, _ = a_client([refusal(429, "TooManyRequests", retry_after="10")])
    with pytest.raises(ApiError) as caught:
        await client.evict(Pod(metadata=ObjectMeta(namespace="ns", name="p", uid="u")))
    assert caught.value.code == 429


async def test_a_lost_read_is_repeated_once_and_a_lost_write_never():
    client, transport = a_client([ServerUnreachable("cut"), ok(POD), ServerUnreachable("cut")])
    assert (await client.get(PODS, "p", "ns")).metadata.name == "p"
    with pytest.raises(ServerUnreachable):
        await client.create(PODS, POD, "ns")
    assert len(transport.calls) == 3


async def test_lists_are_fetched_in_pages():
    first = {"metadata": {"continue": "token", "resourceVersion": "9"}, "items": [POD]}
    second = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "q"}}]}
    client, transport = a_client([ok(first), ok(second)])
    listing = await client.list(PODS, label_selector="a=b")
    assert [pod.metadata.name for pod in listing.items] == ["p", "q"]
    assert listing.revision == "9"
    assert transport.calls[0].query == {"labelSelector": "a=b", "limit": "500"}
    assert transport.calls[1].query["continue"] == "token"


async def test_an_expired_continue_token_starts_over_without_pages():
    first = {"metadata": {"continue": "token"}, "items": [POD]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [POD]}
    client, transport = a_client([ok(first), refusal(410, "Expired"), ok(whole)])
    listing = await client.list(PODS)
    assert (len(listing.items), listing.revision) == (1, "12")
    assert "limit" not in transport.calls[2].query


async def test_one_unreadable_object_does_not_spoil_a_list(caplog):
    bad = {"metadata": {"name": "bad"}, "spec": {"containers": "none"}}
    client, _ = a_client([ok({"metadata": {"resourceVersion": "1"}, "items": [bad, POD]})])
    listing = await client.list(PODS)
    assert [pod.metadata.name for pod in listing.items] == ["p"]
    assert "cannot be read" in caplog.text


async def test_a_slice_whose_devices_the_server_forgot_does_not_spoil_a_list(caplog):
    """The server says which of the lists of devices in its answer a slice has."""
    lists = [[{"name": "gpu-0"}], [{"name": "gpu-1"}]]
    items = [{"metadata": {"name": f"s-{number}"}, "spec": {"devices": number}} for number in (1, 2, 0)]
    client, transport = a_client([ok({"items": items, "deviceLists": lists})])
    found = (await client.list(SLICES)).items
    assert [(each.metadata.name, each.spec.devices[0].name) for each in found] == [("s-1", "gpu-1"), ("s-0", "gpu-0")]
    assert "left out an object that cannot be read" in caplog.text
    assert transport.calls[0].accept == SHARED_DEVICES_LIST


async def test_a_cluster_is_asked_for_the_wanted_kinds_only():
    client, transport = a_client([ok({"items": []}), ok({"items": []})])
    await list_cluster(client, kinds=("ResourceSlice", "DeviceClass"))
    assert [call.path.rpartition("/")[2] for call in transport.calls] == ["resourceslices", "deviceclasses"]


async def test_views_are_never_written_back():
    client, transport = a_client()
    with pytest.raises(TypeError, match="views"):
        await client.update(PODS, Pod(metadata=ObjectMeta(name="p", namespace="ns")))
    assert not transport.calls


async def test_update_status_puts_the_whole_claim():
    claim = ResourceClaim(metadata=ObjectMeta(namespace="ns", name="c", resource_version="7"))
    client, transport = a_client([ok(b'{"metadata":{"name":"c"}}')])
    await client.update_status(CLAIMS, claim)
    call = transport.calls[0]
    assert (call.method, call.path) == ("PUT", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status")
    assert json.loads(call.body)["metadata"]["resourceVersion"] == "7"


async def test_patches_carry_the_uid():
    client, transport = a_client([ok(POD)])
    await client.patch(PODS, "p", {"status": {"phase": "Failed"}}, "ns", subresource="status", uid="u1")
    call = transport.calls[0]
    assert call.content_type == "application/merge-patch+json"
    assert json.loads(call.body) == {"status": {"phase": "Failed"}, "metadata": {"uid": "u1"}}


async def test_apply_names_its_manager():
    client, transport = a_client([ok(POD)])
    await client.apply(PODS, {"metadata": {"name": "p", "namespace": "ns"}}, field_manager="me", force=True)
    call = transport.calls[0]
    assert call.content_type == "application/apply-patch+yaml"
    assert call.query == {"fieldManager": "me", "force": "true"}
    assert json.loads(call.body)["kind"] == "Pod"


@pytest.mark.parametrize("finalizers", [["example.com/f"], None])
async def test_what_a_write_returns_has_no_managed_fields_and_all_the_rest(finalizers):
    owner = {"manager": "me", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    metadata = {"namespace": "ns", "name": "c", "resourceVersion": "5", "finalizers": finalizers}
    document = {"kind": "ResourceClaim", "metadata": {**metadata, "managedFields": [owner]}, "spec": {"devices": {}}}
    client, _ = a_client([ok(document)] * 5)
    read = await client.get(CLAIMS, "c", "ns")
    assert read.metadata.managed_fields
    expected = msgspec.structs.replace(read, metadata=msgspec.structs.replace(read.metadata, managed_fields=()))
    assert await client.create(CLAIMS, document) == expected
    assert await client.update_status(CLAIMS, read) == expected
    assert await client.patch(CLAIMS, "c", {}, "ns") == expected
    assert await client.apply(CLAIMS, {"metadata": metadata}, field_manager="me") == expected


async def test_delete_sends_preconditions_grace_and_policy():
    client, transport = a_client([ok({})])
    await client.delete(PODS, "p", "ns", uid="u", revision="4", grace_seconds=0, propagation="Orphan")
    assert json.loads(transport.calls[0].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "4"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
    }


async def test_bind_guards_the_pod_by_uid():
    client, transport = a_client([ok({}, 201)])
    await client.bind(Pod(metadata=ObjectMeta(namespace="ns", name="p", uid="u")), "node-1")
    call = transport.calls[0]
    assert call.path == "/api/v1/namespaces/ns/pods/p/binding"
    assert json.loads(call.body)["target"] == {"kind": "Node", "apiVersion": "v1", "name": "node-1"}
    assert json.loads(call.body)["metadata"]["uid"] == "u"


async def test_watch_gives_events_and_raises_the_error_the_server_sends():
    client, transport = a_client(streams=[[event("ADDED", POD), error_event(410, "Expired")]])
    seen = []

    async def follow():
        async with client.watch(PODS, since="5", timeout_s=60) as events:
            async for item in events:
                seen.append((item.type, item.object.metadata.name))

    with pytest.raises(ApiError) as caught:
        await follow()
    assert seen == [("ADDED", "p")]
    assert caught.value.is_expired
    query = transport.stream_calls[0].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"], query["timeoutSeconds"]) == ("5", "true", "60")
    assert transport.closed_streams == 1


async def test_cluster_scoped_paths_have_no_namespace():
    client, transport = a_client([ok({"metadata": {"name": "n"}})])
    await client.get(NODES, "n")
    assert transport.calls[0].path == "/api/v1/nodes/n"
