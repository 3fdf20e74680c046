"""Races of the claim controller, each with its interleaving forced. Ids as in the list of failure modes."""

import msgspec
import pytest

from dray.api.resource import POD_CLAIM_NAME_ANNOTATION as ANNOTATION
from dray.client import CLAIMS, PODS, TEMPLATES, Answer, ApiError, ServerUnreachable
from dray.controllers.claims import ClaimController
from dray.controllers.claims.controller import DeletedUids
from tests.controllers.builders import FINALIZER, ns_claim, ns_pod, ns_template
from tests.waiting import eventually


async def a_template_pod(cluster, **fields):
    await cluster.client.create(TEMPLATES, ns_template())
    return await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}, **fields))


async def recorded(cluster, entry="gpu"):
    async def look():
        return (await cluster.recorded()).get(entry)

    return await cluster.eventually(look)


async def seen(informer_get, key, wanted=lambda obj: obj is not None):
    await eventually(lambda: wanted(informer_get(key)), f"the informer to see {key}")


# --- B1, B2: between creation and status write


async def test_B1_a_crash_after_creation_leaves_no_second_claim(cluster):
    await a_template_pod(cluster)
    controller = await cluster.prepare(ClaimController)
    cluster.wire.fail("PATCH", "/status$", ServerUnreachable("crashed here"))
    with pytest.raises(ServerUnreachable):
        await controller.sync("pod:ns/pod")
    (claim,) = await cluster.claims()
    await cluster.crash()
    await cluster.start(ClaimController)
    assert await recorded(cluster) == claim.metadata.name
    await cluster.quiet()
    assert len(await cluster.claims()) == 1


async def test_B2_own_writes_cover_a_watch_that_lags(cluster):
    await a_template_pod(cluster)
    controller = await cluster.prepare(ClaimController)
    cluster.wire.hold(CLAIMS)
    cluster.wire.fail("PATCH", "/status$", ServerUnreachable("lost"))
    with pytest.raises(ServerUnreachable):
        await controller.sync("pod:ns/pod")
    await controller.sync("pod:ns/pod")
    (claim,) = await cluster.claims()
    assert await recorded(cluster) == claim.metadata.name
    cluster.wire.release(CLAIMS)


async def test_B2_a_recorded_claim_known_only_to_the_server_is_found_by_asking(cluster):
    """After a restart: the status names a claim that the new watch has not shown."""
    pod = await a_template_pod(cluster)
    controller = await cluster.prepare(ClaimController)
    cluster.wire.hold(CLAIMS)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    await cluster.client.create(CLAIMS, ns_claim("made", ownerReferences=[owner], annotations={ANNOTATION: "gpu"}))
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    await seen(controller._pods.get, "ns/pod", lambda obj: bool(obj.status.resource_claim_statuses))
    await controller.sync("pod:ns/pod")
    assert cluster.wire.count("GET", "resourceclaims/made$") == 1
    assert cluster.wire.writes == []
    cluster.wire.release(CLAIMS)


async def test_a_creation_whose_answer_was_lost_is_adopted_once_the_watch_shows_it(cluster):
    await a_template_pod(cluster)
    cluster.wire.lose_answer("POST", "resourceclaims$")
    await cluster.start(ClaimController)
    name = await recorded(cluster)
    await cluster.quiet()
    claims = await cluster.claims()
    assert name in [claim.metadata.name for claim in claims]
    # A second claim may have been made before the watch brought the first; only one is recorded.
    assert len(claims) <= 2
    assert len(await cluster.recorded()) == 1


async def test_a_failing_existence_check_makes_no_claim(cluster):
    await a_template_pod(cluster)
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "unknown"}]}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    controller = await cluster.prepare(ClaimController)
    cluster.wire.fail("GET", "resourceclaims/unknown$", ApiError(500, "InternalError", "boom"))
    with pytest.raises(Exception, match="checking claim existence: boom"):
        await controller.sync("pod:ns/pod")
    assert await cluster.claims() == []
    await controller.sync("pod:ns/pod")
    assert len(await cluster.claims()) == 1


# --- B8: the status write


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(ServerUnreachable("cut"), id="cut"),
        pytest.param(ApiError(409, "Conflict", "changed"), id="conflict"),
        pytest.param(ApiError(500, "InternalError", "broken"), id="server-error"),
    ],
)
async def test_B8_a_failed_status_write_is_repeated_and_loses_no_entry(cluster, trouble):
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, ns_pod(templates={"a": "template", "b": "template"}))
    cluster.wire.fail("PATCH", "/status$", trouble, times=2)
    await cluster.start(ClaimController)
    await recorded(cluster, "b")
    await cluster.quiet()
    assert sorted(await cluster.recorded()) == ["a", "b"]
    assert len(await cluster.claims()) == 2


async def test_B8_a_new_entry_does_not_push_out_a_recorded_one(cluster):
    """The pod our copy shows has entry a recorded; only b is missing; the apply must carry both."""
    await cluster.client.create(TEMPLATES, ns_template("early"))
    await cluster.client.create(PODS, ns_pod(templates={"a": "early", "b": "late"}))
    await cluster.client.create(TEMPLATES, ns_template("late"))
    await cluster.start(ClaimController)
    first = await recorded(cluster, "b")
    names = await cluster.recorded()
    await cluster.client.delete(CLAIMS, first, "ns")

    async def replaced():
        return (await cluster.recorded()).get("b") not in (None, first)

    await cluster.eventually(replaced)
    assert (await cluster.recorded())["a"] == names["a"]
    await cluster.quiet()
    assert len(await cluster.claims()) == 2


async def test_the_status_of_a_pod_that_was_replaced_is_not_written(cluster):
    await a_template_pod(cluster)
    controller = await cluster.prepare(ClaimController)

    async def replace():
        await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
        await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))

    cluster.wire.before("PATCH", "/pods/pod/status$", replace)
    with pytest.raises(Exception, match="update pod ns/pod ResourceClaimStatuses: "):
        await controller.sync("pod:ns/pod")
    assert await cluster.recorded() == {}


# --- B9 to B12: dropping reservations


async def a_claim_in_use(cluster, *pods):
    await cluster.client.create(CLAIMS, ns_claim())
    return await cluster.allocate("claim", *pods)


async def test_B9_the_reservation_of_a_replaced_pod_is_dropped_and_the_new_one_kept(cluster):
    old = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    new = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, old, new)
    await cluster.start(ClaimController)

    async def left():
        return [item.uid for item in (await cluster.claim()).status.reserved_for] == [new.metadata.uid]

    await cluster.eventually(left)
    assert (await cluster.claim()).status.allocation is not None


async def test_B10_a_pod_that_only_the_server_knows_keeps_its_reservation(cluster):
    controller = await cluster.prepare(ClaimController)
    cluster.wire.hold(PODS)
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, pod)
    await seen(controller.claims.get, "ns/claim", lambda claim: claim is not None and claim.status.reserved_for)
    await controller.sync("claim:ns/claim")
    assert cluster.wire.count("GET", "/pods/pod$") == 1
    assert cluster.wire.writes == []
    cluster.wire.release(PODS)


async def test_B11_an_unreachable_server_drops_nothing(cluster):
    controller = await cluster.prepare(ClaimController)
    cluster.wire.hold(PODS)
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, pod)
    await seen(controller.claims.get, "ns/claim", lambda claim: claim is not None and claim.status.reserved_for)
    for trouble in (ServerUnreachable("down"), ServerUnreachable("down"), ApiError(500, "InternalError", "x")):
        cluster.wire.fail("GET", "/pods/pod$", trouble)
    with pytest.raises(ServerUnreachable):
        await controller.sync("claim:ns/claim")
    with pytest.raises(ApiError):
        await controller.sync("claim:ns/claim")
    assert (await cluster.claim()).status.reserved_for
    assert cluster.wire.writes == []
    cluster.wire.release(PODS)


async def test_B12_a_reservation_added_in_between_survives(cluster):
    first = await cluster.client.create(PODS, ns_pod("first", claims={"gpu": "claim"}, node="node"))
    second = await cluster.client.create(PODS, ns_pod("second", claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, first)
    controller = await cluster.prepare(ClaimController)
    await cluster.client.delete(PODS, "first", "ns", grace_seconds=0)
    await seen(controller._pods.get, "ns/first", lambda obj: obj is None)

    async def reserve_for_second():
        document = await cluster.client.get_document(CLAIMS, "claim", "ns")
        consumer = {"resource": "pods", "name": "second", "uid": second.metadata.uid}
        document["status"]["reservedFor"].append(consumer)
        await cluster.client.update_status(CLAIMS, document)

    cluster.wire.before("PUT", "/status$", reserve_for_second)
    with pytest.raises(ApiError) as caught:
        await controller.sync("claim:ns/claim")
    assert caught.value.is_conflict
    claim = await cluster.claim()
    assert claim.status.allocation is not None
    await seen(controller.claims.get, "ns/claim", lambda obj: len(obj.status.reserved_for) == 2)
    await controller.sync("claim:ns/claim")
    claim = await cluster.claim()
    assert [item.name for item in claim.status.reserved_for] == ["second"]
    assert claim.status.allocation is not None


async def test_B13_a_crash_between_deallocation_and_unlocking_is_made_good(cluster):
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, pod)
    controller = await cluster.prepare(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await seen(controller._pods.get, "ns/pod", lambda obj: obj is None)
    cluster.wire.fail("PUT", "resourceclaims/claim$", ServerUnreachable("crashed here"))
    with pytest.raises(ServerUnreachable):
        await controller.sync("claim:ns/claim")
    claim = await cluster.claim()
    assert claim.status.allocation is None
    assert FINALIZER in claim.metadata.finalizers
    await cluster.crash()
    await cluster.start(ClaimController)
    await cluster.client.delete(CLAIMS, "claim", "ns")

    async def gone():
        return await cluster.claim() is None

    await cluster.eventually(gone)


async def test_an_allocation_made_while_unlocking_keeps_its_finalizer(cluster):
    """Freed, and at once allocated again by a scheduler: the second write must not unlock it."""
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, pod)
    controller = await cluster.prepare(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await seen(controller._pods.get, "ns/pod", lambda obj: obj is None)
    other = await cluster.client.create(PODS, ns_pod("other", claims={"gpu": "claim"}))

    async def allocate_again():
        await cluster.allocate("claim", other)

    cluster.wire.before("PUT", "resourceclaims/claim$", allocate_again)
    with pytest.raises(ApiError) as caught:
        await controller.sync("claim:ns/claim")
    assert caught.value.is_conflict
    claim = await cluster.claim()
    assert FINALIZER in claim.metadata.finalizers
    assert [item.name for item in claim.status.reserved_for] == ["other"]


async def test_A2_a_claim_re_created_under_the_same_name_is_not_touched(cluster):
    """The old claim was judged free; before the write arrives, another one has its name."""
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await a_claim_in_use(cluster, pod)
    controller = await cluster.prepare(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await seen(controller._pods.get, "ns/pod", lambda obj: obj is None)

    async def replace():
        document = await cluster.client.get_document(CLAIMS, "claim", "ns")
        document["metadata"]["finalizers"] = []
        await cluster.client.update(CLAIMS, document)
        await cluster.client.delete(CLAIMS, "claim", "ns")
        await cluster.client.create(CLAIMS, ns_claim())
        await cluster.allocate("claim", device="other")

    cluster.wire.before("PUT", "/status$", replace)
    with pytest.raises(ApiError):
        await controller.sync("claim:ns/claim")
    claim = await cluster.claim()
    assert claim.status.allocation is not None
    assert FINALIZER in claim.metadata.finalizers


async def test_a_generated_claim_is_deleted_by_uid(cluster):
    pod = await a_template_pod(cluster, node="node")
    controller = await cluster.prepare(ClaimController)
    await controller.sync("pod:ns/pod")
    (claim,) = await cluster.claims()
    await cluster.set_phase(pod, "Succeeded")
    await seen(controller._pods.get, "ns/pod", lambda obj: obj.status.phase == "Succeeded")

    async def replace():
        await cluster.client.delete(CLAIMS, claim.metadata.name, "ns")
        await cluster.client.create(CLAIMS, ns_claim(claim.metadata.name))

    cluster.wire.before("DELETE", "resourceclaims", replace)
    with pytest.raises(Exception, match="delete unused generated claim"):
        await controller.sync(f"claim:ns/{claim.metadata.name}")
    assert (await cluster.claim(claim.metadata.name)).metadata.owner_references == ()


# --- B21: long absence


async def test_B21_many_pods_deleted_while_the_controller_was_down(cluster):
    names = [f"p{number}" for number in range(12)]
    pods = [await cluster.client.create(PODS, ns_pod(name, claims={"gpu": name}, node="node")) for name in names]
    for name, pod in zip(names, pods, strict=True):
        await cluster.client.create(CLAIMS, ns_claim(name))
        await cluster.allocate(name, pod)
    for name in names:
        await cluster.client.delete(PODS, name, "ns", grace_seconds=0)
    await cluster.start(ClaimController)

    async def all_free():
        return all(c.status.allocation is None and not c.metadata.finalizers for c in await cluster.claims())

    await cluster.eventually(all_free)
    assert cluster.wire.count("GET", "/pods/p") >= len(names)


def test_B21_the_memory_of_deleted_pods_is_bounded():
    memory = DeletedUids(3)
    for uid in "abcd":
        memory.add(uid)
    assert [uid in memory for uid in "abcd"] == [False, True, True, True]


# --- trouble all around


async def test_impossible_objects_end_in_events_and_backoff_not_in_a_crash_loop(cluster):
    """A claim owned by another pod, a template that vanished, a status edited by hand: all at once."""
    await cluster.client.create(TEMPLATES, ns_template("good"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": True}
    await cluster.client.create(CLAIMS, ns_claim("theirs", ownerReferences=[owner]))
    await cluster.client.create(PODS, ns_pod("edited", templates={"gpu": "good"}))
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}}
    await cluster.client.patch(PODS, "edited", patch, "ns", subresource="status")
    await cluster.client.create(PODS, ns_pod("vanished", templates={"gpu": "gone"}))
    controller = await cluster.start(ClaimController)
    await cluster.client.create(PODS, ns_pod("fine", templates={"gpu": "good"}))

    async def fine():
        return (await cluster.recorded("fine")).get("gpu") and (await cluster.recorded("edited"))["gpu"] != "theirs"

    await cluster.eventually(fine)

    async def failing():
        return controller.queue.failures("pod:ns/vanished") >= 5

    await cluster.eventually(failing)
    assert len(await cluster.events("FailedResourceClaimCreation")) == 1
    before = cluster.wire.count("POST", "resourceclaims$")
    failed = controller.queue.failures("pod:ns/vanished")
    await eventually(lambda: controller.queue.failures("pod:ns/vanished") > failed, "another attempt")
    assert cluster.wire.count("POST", "resourceclaims$") == before


async def test_an_answer_that_cannot_be_read_is_an_error_like_any_other(cluster):
    await a_template_pod(cluster)
    cluster.wire.fail("POST", "resourceclaims$", Answer(200, {}, b"<html>"))
    controller = await cluster.start(ClaimController)
    assert await recorded(cluster)
    assert controller.queue.failures("pod:ns/pod") == 0


async def test_finalizer_removal_does_not_lose_fields(cluster):
    """What the controller writes back is the whole claim, also what it does not look at."""
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    document = ns_claim(labels={"a": "b"})
    document["spec"]["devices"]["config"] = [
        {"opaque": {"driver": "gpu.example.com", "parameters": {"deep": [1, {"x": None}], "n": 0}}}
    ]
    await cluster.client.create(CLAIMS, document)
    before = await cluster.client.get(CLAIMS, "claim", "ns")
    await cluster.allocate("claim", pod)
    await cluster.start(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)

    async def free():
        claim = await cluster.claim()
        return claim if not claim.metadata.finalizers else None

    after = await cluster.eventually(free)
    assert msgspec.structs.replace(after.metadata, resource_version="", managed_fields=()) == msgspec.structs.replace(
        before.metadata, resource_version="", managed_fields=()
    )
    assert bytes(after.spec.devices.config[0].opaque.parameters) == bytes(
        before.spec.devices.config[0].opaque.parameters
    )
