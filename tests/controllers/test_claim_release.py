"""Reservations dropped, claims freed, unlocked and deleted: and everything that must not be."""

import msgspec
import pytest
from msgspec.structs import replace

from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus
from dray.client import CLAIMS, PODS, TEMPLATES
from dray.controllers.claims import ClaimController
from dray.features import FeatureGates
from tests.controllers.builders import FINALIZER, ns_claim, ns_pod, ns_template


async def a_user(cluster, name="pod", node="node", **fields):
    """A pod that uses the claim `claim`, on a node."""
    return await cluster.client.create(PODS, ns_pod(name, claims={"gpu": "claim"}, node=node, **fields))


async def a_claim_in_use(cluster, *pods, **allocation):
    await cluster.client.create(CLAIMS, ns_claim())
    return await cluster.allocate("claim", *pods, **allocation)


async def gone(cluster, name="claim"):
    async def look():
        return await cluster.claim(name) is None

    await cluster.eventually(look)


async def freed(cluster, name="claim"):
    async def look():
        claim = await cluster.claim(name)
        is_free = not claim.status.reserved_for and claim.status.allocation is None
        return is_free and FINALIZER not in claim.metadata.finalizers

    await cluster.eventually(look)


async def stays_reserved(cluster, expected):
    await cluster.quiet()
    claim = await cluster.claim()
    assert [consumer.name for consumer in claim.status.reserved_for] == expected
    assert claim.status.allocation is not None
    assert FINALIZER in claim.metadata.finalizers


async def remove(cluster, name="pod"):
    await cluster.client.delete(PODS, name, "ns", grace_seconds=0)


async def test_a_running_user_keeps_its_claim(cluster):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await stays_reserved(cluster, ["pod"])
    await cluster.set_phase(pod, "Running")
    await stays_reserved(cluster, ["pod"])
    assert cluster.wire.writes == []


async def test_B17_a_container_that_restarts_releases_nothing(cluster):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    restarted = {"name": "main", "restartCount": 3, "image": "i", "imageID": "", "ready": False, "lastState": {}}
    patch = {"status": {"phase": "Running", "containerStatuses": [restarted]}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    await stays_reserved(cluster, ["pod"])


async def test_deletion_of_the_last_user_frees_the_claim_in_two_writes(cluster):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await remove(cluster)
    await freed(cluster)
    await cluster.quiet()
    assert [call.path.rpartition("/")[2] for call in cluster.wire.writes] == ["status", "claim"]
    assert cluster.wire.count("GET", "/pods/pod$") == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_user_frees_the_claim(cluster, phase):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await cluster.set_phase(pod, phase)
    await freed(cluster)


async def test_B14_a_user_deleted_before_it_got_a_node_frees_the_claim(cluster):
    pod = await a_user(cluster, node="", finalizers=["example.com/keep"])
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns")
    await freed(cluster)
    assert await cluster.pod() is not None


async def test_B15_a_user_being_deleted_on_its_node_keeps_the_claim_until_it_is_over(cluster):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=30)
    await stays_reserved(cluster, ["pod"])
    await cluster.set_phase(pod, "Failed")
    await freed(cluster)


async def test_one_of_several_users_leaves(cluster):
    pods = [await a_user(cluster, name) for name in ("a", "b", "c")]
    await a_claim_in_use(cluster, *pods)
    await cluster.start(ClaimController)
    await remove(cluster, "b")

    async def left():
        return [consumer.name for consumer in (await cluster.claim()).status.reserved_for] == ["a", "c"]

    await cluster.eventually(left)
    await stays_reserved(cluster, ["a", "c"])


async def test_a_claim_is_looked_at_when_its_state_changed_or_an_informer_shows_it_again(cluster):
    controller = await cluster.prepare(ClaimController)
    user = ResourceClaimConsumerReference(resource="pods", name="gone", uid="u")
    claim = ResourceClaim(
        metadata=ObjectMeta(namespace="ns", name="claim"), status=ResourceClaimStatus(reserved_for=(user,))
    )
    labelled = replace(claim, metadata=replace(claim.metadata, labels={"a": "b"}))
    controller._claim_changed(claim, labelled)
    assert len(controller.queue) == 0
    controller._claim_changed(labelled, labelled)
    assert len(controller.queue) == 1


async def test_B18_users_that_are_no_pods_are_never_removed(cluster):
    pod = await a_user(cluster)
    claim = await a_claim_in_use(cluster, pod)
    document = await cluster.client.get_document(CLAIMS, "claim", "ns")
    document["status"]["reservedFor"].append({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "u"})
    await cluster.client.update_status(CLAIMS, document)
    await cluster.start(ClaimController)
    await remove(cluster)

    async def left():
        return [consumer.name for consumer in (await cluster.claim()).status.reserved_for] == ["j"]

    await cluster.eventually(left)
    await stays_reserved(cluster, ["j"])
    assert claim.metadata.uid == (await cluster.claim()).metadata.uid


async def test_a_claim_without_the_finalizer_keeps_its_allocation(cluster):
    pod = await a_user(cluster)
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim", pod, protect=False)
    await cluster.start(ClaimController)
    await remove(cluster)

    async def left():
        return not (await cluster.claim()).status.reserved_for

    await cluster.eventually(left)
    await cluster.quiet()
    assert (await cluster.claim()).status.allocation is not None


async def test_B19_an_allocated_claim_without_users_is_left_alone_until_it_is_deleted(cluster):
    await a_claim_in_use(cluster)
    await cluster.start(ClaimController)
    await stays_reserved(cluster, [])
    assert cluster.wire.writes == []
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await gone(cluster)


async def test_a_deleted_claim_in_use_stays_until_its_user_is_over(cluster):
    pod = await a_user(cluster)
    await a_claim_in_use(cluster, pod)
    await cluster.start(ClaimController)
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await stays_reserved(cluster, ["pod"])
    await remove(cluster)
    await gone(cluster)


async def test_a_deleted_unallocated_claim_loses_the_finalizer(cluster):
    await cluster.client.create(CLAIMS, ns_claim(finalizers=[FINALIZER]))
    await cluster.start(ClaimController)
    await cluster.client.delete(CLAIMS, "claim", "ns")
    await gone(cluster)


async def test_other_finalizers_are_kept(cluster):
    pod = await a_user(cluster)
    await cluster.client.create(CLAIMS, ns_claim(finalizers=["example.com/mine"]))
    await cluster.allocate("claim", pod)
    await cluster.start(ClaimController)
    await remove(cluster)
    await freed(cluster)
    assert (await cluster.claim()).metadata.finalizers == ("example.com/mine",)


# --- generated claims


async def a_generated_claim(cluster, node="node"):
    await cluster.client.create(TEMPLATES, ns_template())
    pod = await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}, node=node))

    async def recorded():
        return (await cluster.recorded()).get("gpu")

    name = await cluster.eventually(recorded)
    await cluster.allocate(name, pod)
    return pod, name


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_B16_the_generated_claim_of_a_finished_pod_is_freed_and_deleted(cluster, phase):
    await cluster.start(ClaimController)
    pod, name = await a_generated_claim(cluster)
    await cluster.set_phase(pod, phase)
    await gone(cluster, name)
    await cluster.quiet()
    assert await cluster.claims() == []
    assert (await cluster.pod()).status.phase == phase


async def test_the_generated_claim_of_a_running_pod_stays(cluster):
    await cluster.start(ClaimController)
    pod, name = await a_generated_claim(cluster)
    await cluster.set_phase(pod, "Running")
    await cluster.quiet()
    assert (await cluster.claim(name)).status.allocation is not None


async def test_the_generated_claim_of_a_missing_pod_is_left_to_the_garbage_collector(cluster):
    await cluster.start(ClaimController)
    _, name = await a_generated_claim(cluster)
    await remove(cluster)
    await freed(cluster, name)
    await cluster.quiet()
    assert await cluster.claim(name) is not None
    assert cluster.wire.count("DELETE", "resourceclaims") == 0


async def test_B14_the_generated_claim_of_an_unscheduled_deleted_pod_goes_at_once(cluster):
    await cluster.start(ClaimController)
    await cluster.client.create(TEMPLATES, ns_template())
    pod = ns_pod(templates={"gpu": "template"}, finalizers=["example.com/keep"])
    await cluster.client.create(PODS, pod)

    async def recorded():
        return (await cluster.recorded()).get("gpu")

    name = await cluster.eventually(recorded)
    await cluster.client.delete(PODS, "pod", "ns")
    await gone(cluster, name)


async def test_a_failed_deletion_says_so_and_is_tried_again(cluster, caplog):
    from dray.client import ApiError

    await cluster.start(ClaimController)
    pod, name = await a_generated_claim(cluster)
    cluster.wire.fail("DELETE", "resourceclaims", ApiError(500, "InternalError", "not now"))
    await cluster.set_phase(pod, "Succeeded")
    await gone(cluster, name)
    assert cluster.wire.count("DELETE", "resourceclaims") == 2


# --- extended resources


async def an_extended_claim(cluster, phase="Running"):
    """A pod whose claim the scheduler made for extended resources: it is in the status only."""
    document = ns_pod(node="node")
    amount = {"example.com/gpu": "1"}
    document["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
    pod = await cluster.client.create(PODS, document)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim = ns_claim("pod-extended-resources-x", ownerReferences=[owner], annotations=annotations)
    await cluster.client.create(CLAIMS, claim)
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "req"}
    status = {"resourceClaimName": "pod-extended-resources-x", "requestMappings": [mapping]}
    patch = {"status": {"phase": phase, "extendedResourceClaimStatus": status}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    await cluster.allocate("pod-extended-resources-x", pod)
    return pod


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_an_extended_resource_claim_is_released_with_its_pod(cluster, phase):
    await cluster.start(ClaimController)
    pod = await an_extended_claim(cluster)
    await cluster.quiet()
    assert (await cluster.claim("pod-extended-resources-x")).status.reserved_for
    await cluster.set_phase(pod, phase)
    await gone(cluster, "pod-extended-resources-x")


async def test_an_extended_resource_claim_is_freed_when_its_pod_is_deleted(cluster):
    await cluster.start(ClaimController)
    await an_extended_claim(cluster)
    await remove(cluster)
    await freed(cluster, "pod-extended-resources-x")


async def test_B22_an_extended_resource_claim_is_released_while_the_gate_is_off(cluster):
    pod = await an_extended_claim(cluster)
    await cluster.start(ClaimController, gates=FeatureGates(FeatureGates.default().on - {"DRAExtendedResource"}))
    await cluster.set_phase(pod, "Succeeded")
    await gone(cluster, "pod-extended-resources-x")


# --- pods placed by hand


async def test_B20_a_pod_placed_by_hand_is_reserved_for_an_allocated_claim(cluster):
    first = await a_user(cluster, "first")
    await a_claim_in_use(cluster, first)
    await cluster.start(ClaimController)
    second = await a_user(cluster, "second")

    async def reserved():
        return [consumer.uid for consumer in (await cluster.claim()).status.reserved_for] == [
            first.metadata.uid,
            second.metadata.uid,
        ]

    await cluster.eventually(reserved)


async def test_B20_a_pod_placed_by_hand_never_gets_an_allocation(cluster):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.start(ClaimController)
    await a_user(cluster)
    await cluster.quiet()
    claim = await cluster.claim()
    assert claim.status.allocation is None
    assert claim.status.reserved_for == ()


async def test_a_template_pod_placed_by_hand_gets_its_claim(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}, node="node"))
    await cluster.start(ClaimController)

    async def recorded():
        return (await cluster.recorded()).get("gpu")

    assert await cluster.eventually(recorded)


async def test_A9_a_full_claim_takes_no_more_users(cluster):
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim")
    document = await cluster.client.get_document(CLAIMS, "claim", "ns")
    document["status"]["reservedFor"] = [
        {"apiGroup": "example.com", "resource": "users", "name": f"u{n}", "uid": str(n)} for n in range(256)
    ]
    full = await cluster.client.update_status(CLAIMS, document)
    controller = await cluster.start(ClaimController)
    await a_user(cluster)

    async def refused():
        return controller.queue.failures("pod:ns/pod")

    await cluster.eventually(refused)
    assert (await cluster.claim()).metadata.resource_version == full.metadata.resource_version


async def test_the_gauge_counts_claims_by_state_and_source(cluster):
    await cluster.start(ClaimController)
    pod, _ = await a_generated_claim(cluster)
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.quiet()
    text = cluster.registry.text()
    name = "dynamic_resource_allocation_resource_claims"
    assert f'{name}{{allocated="true",admin_access="false",source="resource_claim_template"}} 1' in text
    assert f'{name}{{allocated="false",admin_access="false",source=""}} 1' in text
    assert "resourceclaim_controller_resource_claims 2" in text
    assert "resourceclaim_controller_allocated_resource_claims 1" in text
    await cluster.set_phase(pod, "Failed")
    await cluster.quiet()
    assert 'allocated="true"' not in cluster.registry.text()


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param([], "false", id="no-requests"),
        pytest.param([{"name": "a", "exactly": {"deviceClassName": "c"}}], "false", id="unset"),
        pytest.param([{"name": "a", "exactly": {"deviceClassName": "c", "adminAccess": False}}], "false", id="false"),
        pytest.param([{"name": "a", "exactly": {"deviceClassName": "c", "adminAccess": True}}], "true", id="true"),
        pytest.param(
            [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "c"}]}], "false", id="prioritized"
        ),
        pytest.param(
            [
                {"name": "a", "exactly": {"deviceClassName": "c"}},
                {"name": "b", "exactly": {"deviceClassName": "c", "adminAccess": True}},
            ],
            "true",
            id="one-of-several",
        ),
    ],
)
def test_the_admin_access_label(requests, expected):
    from dray.api.resource import ResourceClaim
    from dray.controllers.claims.creating import ClaimMetrics

    claim = msgspec.convert({"spec": {"devices": {"requests": requests}}}, ResourceClaim)
    assert ClaimMetrics.admin_access(claim) == expected
    assert ClaimMetrics.admin_access(None) == "false"
