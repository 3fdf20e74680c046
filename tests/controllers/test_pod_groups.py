"""Claims of pod groups: made for the group, shared by its pods, released with it."""

from functools import partial

import pytest

from dray.client import CLAIMS, POD_GROUPS, PODS, TEMPLATES, ApiError, Hopeless, ServerUnreachable
from dray.controllers.claims import ClaimController
from dray.features import FeatureGates
from tests.controllers.builders import FINALIZER, ns_claim, ns_group, ns_pod, ns_template

FOLLOWING_GROUPS = partial(ClaimController, groups=POD_GROUPS)
WITHOUT_SHARING = FeatureGates(FeatureGates.default().on - {"DRAWorkloadResourceClaims"})
WITHOUT_GROUPS = FeatureGates(WITHOUT_SHARING.on - {"GenericWorkload"})
GROUP_USER = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group"}


def a_member(name="pod", group="group", **fields):
    pod = ns_pod(name, **fields)
    pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


async def start(cluster, gates=None):
    return await cluster.start(FOLLOWING_GROUPS, gates=gates)


async def make_group(cluster, **fields):
    fields = fields or {"templates": {"gpu": "template"}}
    return await cluster.client.create(POD_GROUPS, ns_group(**fields))


async def group_claims(cluster):
    group = await cluster.client.get(POD_GROUPS, "group", "ns")
    return {item.name: item.resource_claim_name for item in group.status.resource_claim_statuses}


async def shared_claim(cluster):
    """The name of the claim that was made for the group's only entry."""

    async def recorded():
        return (await group_claims(cluster)).get("gpu")

    return await cluster.eventually(recorded)


async def reserve_for_group(cluster, name, group, *others):
    await cluster.allocate(name, *others)
    document = await cluster.client.get_document(CLAIMS, name, "ns")
    consumers = document["status"].setdefault("reservedFor", [])
    consumers.append({**GROUP_USER, "uid": group.metadata.uid})
    return await cluster.client.update_status(CLAIMS, document)


async def consumers(cluster, name="claim"):
    claim = await cluster.claim(name)
    return [consumer.name for consumer in claim.status.reserved_for]


async def freed(cluster, name="claim"):
    async def is_free():
        claim = await cluster.claim(name)
        status = claim.status
        return not status.reserved_for and status.allocation is None and FINALIZER not in claim.metadata.finalizers

    await cluster.eventually(is_free)


# --- claims from templates


async def test_a_claim_is_made_for_the_group_and_recorded(cluster):
    await start(cluster)
    template = ns_template(metadata={"labels": {"l": "1"}, "annotations": {"a": "2"}})
    await cluster.client.create(TEMPLATES, template)
    group = await make_group(cluster)
    name = await shared_claim(cluster)
    claim = await cluster.claim(name)
    (owner,) = claim.metadata.owner_references
    assert name.startswith("group-gpu-")
    assert (owner.api_version, owner.kind, owner.name) == ("scheduling.k8s.io/v1beta1", "PodGroup", "group")
    assert (owner.uid, owner.controller) == (group.metadata.uid, True)
    assert claim.metadata.labels == {"l": "1"}
    assert claim.metadata.annotations == {"a": "2", "resource.kubernetes.io/pod-claim-name": "gpu"}
    await cluster.quiet()
    assert [call.method for call in cluster.wire.writes] == ["POST", "PATCH"]
    labels = '{status="success",admin_access="false",owner_api_group="scheduling.k8s.io",owner_api_kind="PodGroup"}'
    assert f"dynamic_resource_allocation_resourceclaim_creates_total{labels} 1" in cluster.registry.text()


async def test_pods_of_the_group_use_its_claim_and_get_none_of_their_own(cluster):
    await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)
    for name in ("a", "b"):
        await cluster.client.create(PODS, a_member(name, templates={"gpu": "template"}))
    shared = await shared_claim(cluster)
    for name in ("a", "b"):

        async def recorded(name=name):
            return await cluster.recorded(name) == {"gpu": shared}

        await cluster.eventually(recorded)
    await cluster.quiet()
    assert [claim.metadata.name for claim in await cluster.claims()] == [shared]
    # One claim, the group's status, and the status of each pod.
    assert len(cluster.wire.writes) == 4


async def test_an_entry_that_differs_from_the_groups_is_the_pods_own(cluster):
    await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(TEMPLATES, ns_template("other"))
    await make_group(cluster)
    await cluster.client.create(PODS, a_member(templates={"gpu": "other", "second": "template"}))

    async def recorded():
        return len(await cluster.recorded()) == 2

    await cluster.eventually(recorded)
    shared = await shared_claim(cluster)
    assert shared not in (await cluster.recorded()).values()
    assert len(await cluster.claims()) == 3


async def test_a_pod_that_comes_before_its_group_is_told_and_waits(cluster):
    controller = await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, a_member(templates={"gpu": "template"}))

    async def told():
        return [event.message for event in await cluster.events("FailedResourceClaimCreation")]

    (message,) = await cluster.eventually(told)
    assert message == 'pod group "group": podgroup.scheduling.k8s.io "group" not found'
    assert controller.queue.failures("pod:ns/pod") >= 1
    assert await cluster.claims() == []
    await make_group(cluster)

    async def recorded():
        return (await cluster.recorded()).get("gpu")

    assert await cluster.eventually(recorded) == await shared_claim(cluster)


async def test_a_group_that_needs_no_claim_gets_none(cluster):
    await start(cluster)
    await cluster.client.create(CLAIMS, ns_claim())
    await make_group(cluster, claims={"gpu": "claim", "absent": "missing"})
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_a_group_being_deleted_gets_no_claim(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(POD_GROUPS, ns_group(templates={"gpu": "template"}, finalizers=["example.com/keep"]))
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await start(cluster)
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_a_missing_template_is_told_on_the_group_and_waited_for(cluster):
    await start(cluster)
    await make_group(cluster)

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    (event,) = await cluster.eventually(told)
    assert event.involved_object.kind == "PodGroup"
    assert event.message.startswith('PodGroupResourceClaim gpu: resource claim template "template": ')
    await cluster.client.create(TEMPLATES, ns_template())
    await shared_claim(cluster)


async def test_a_lost_claim_of_a_group_is_made_again_and_its_pods_follow(cluster):
    await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)
    await cluster.client.create(PODS, a_member(templates={"gpu": "template"}))
    first = await shared_claim(cluster)
    await cluster.client.delete(CLAIMS, first, "ns")

    async def replaced():
        names = {(await group_claims(cluster)).get("gpu"), (await cluster.recorded()).get("gpu")}
        return len(names) == 1 and names != {first} and names

    (second,) = await cluster.eventually(replaced)
    assert [claim.metadata.name for claim in await cluster.claims()] == [second]


async def test_a_foreign_claim_under_the_groups_recorded_name_is_not_used(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)
    await cluster.client.create(CLAIMS, ns_claim("foreign"))
    status = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "foreign"}]}}
    await cluster.client.patch(POD_GROUPS, "group", status, "ns", subresource="status")
    await start(cluster)

    async def replaced():
        return (await group_claims(cluster)).get("gpu") not in (None, "foreign")

    await cluster.eventually(replaced)


async def test_a_crash_after_creation_leaves_no_second_claim_of_a_group(cluster):
    await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    cluster.wire.fail("PATCH", "podgroups/group/status", ServerUnreachable("cut"), times=1000)
    await make_group(cluster)

    async def made():
        return await cluster.claims()

    (claim,) = await cluster.eventually(made)
    await cluster.crash()
    cluster.wire.forget_rules()
    await start(cluster)
    assert await shared_claim(cluster) == claim.metadata.name
    assert len(await cluster.claims()) == 1


async def test_own_writes_cover_a_watch_that_lags_behind_a_group(cluster):
    controller = await cluster.prepare(FOLLOWING_GROUPS)
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)

    async def seen():
        return controller._groups.informer.get("ns/group") and len(controller._creator._templates)

    await cluster.eventually(seen)
    cluster.wire.hold(CLAIMS)
    cluster.wire.hold(POD_GROUPS)
    await controller.sync("podgroup:ns/group")
    await controller.sync("podgroup:ns/group")
    assert len(await cluster.claims()) == 1


async def test_a_refused_creation_for_a_group_is_told_counted_and_tried_again(cluster):
    cluster.wire.fail("POST", "resourceclaims$", ApiError(403, "Forbidden", "exceeded quota"))
    await start(cluster)
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)
    await shared_claim(cluster)
    (event,) = await cluster.events("FailedResourceClaimCreation")
    assert event.message == "PodGroupResourceClaim gpu: create ResourceClaim : exceeded quota"
    labels = '{status="failure",admin_access="false",owner_api_group="scheduling.k8s.io",owner_api_kind="PodGroup"}'
    assert f"dynamic_resource_allocation_resourceclaim_creates_total{labels} 1" in cluster.registry.text()


# --- gates


async def test_a_member_is_refused_for_good_without_groups(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, a_member(templates={"gpu": "template"}))
    controller = await cluster.prepare(FOLLOWING_GROUPS, gates=WITHOUT_GROUPS)
    with pytest.raises(Hopeless, match="Pod is a member of PodGroup group but GenericWorkload feature is disabled"):
        await controller.sync("pod:ns/pod")


async def test_a_shared_claim_is_refused_for_good_without_sharing(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await make_group(cluster)
    await cluster.client.create(PODS, a_member(templates={"gpu": "template"}))
    controller = await start(cluster, WITHOUT_SHARING)
    text = "claim gpu is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"

    async def told():
        return [event.message for event in await cluster.events("FailedResourceClaimCreation")]

    assert await cluster.eventually(told) == [f"PodResourceClaim gpu: {text}"]
    await cluster.quiet()
    assert controller.queue.failures("pod:ns/pod") == 0
    assert await cluster.claims() == []


async def test_a_group_user_is_kept_without_sharing(cluster):
    group = await make_group(cluster)
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await start(cluster, WITHOUT_SHARING)
    await cluster.quiet()
    assert await consumers(cluster) == ["group"]


# --- release


async def test_a_group_keeps_its_claim_until_it_is_gone(cluster):
    group = await make_group(cluster, claims={"gpu": "claim"})
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await start(cluster)
    pod = await cluster.client.create(PODS, a_member(claims={"gpu": "claim"}, node="node"))
    await cluster.set_phase(pod, "Succeeded")
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await cluster.quiet()
    assert await consumers(cluster) == ["group"]
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await freed(cluster)
    # The deletion was seen, so nobody had to ask for it.
    assert cluster.wire.count("GET", "/podgroups/group$") == 0


async def test_a_group_being_deleted_keeps_its_claim(cluster):
    """Pods of the group may still run: there is no such thing as a finished group."""
    group = await cluster.client.create(POD_GROUPS, ns_group(claims={"gpu": "claim"}, finalizers=["example.com/keep"]))
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await start(cluster)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await cluster.quiet()
    assert await consumers(cluster) == ["group"]


async def test_a_group_that_was_gone_before_we_looked_is_asked_for_and_dropped(cluster):
    group = await make_group(cluster, claims={"gpu": "claim"})
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await start(cluster)
    await freed(cluster)
    assert cluster.wire.count("GET", "/podgroups/group$") == 1


async def test_a_group_that_was_re_created_is_another_group(cluster):
    group = await make_group(cluster, claims={"gpu": "claim"})
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await make_group(cluster, claims={"gpu": "claim"})
    await start(cluster)
    await freed(cluster)


async def test_a_group_that_only_the_server_knows_keeps_its_reservation(cluster):
    await cluster.client.create(CLAIMS, ns_claim())
    await start(cluster)
    cluster.wire.hold(POD_GROUPS)
    group = await make_group(cluster, claims={"gpu": "claim"})
    await reserve_for_group(cluster, "claim", group)

    async def asked():
        return cluster.wire.count("GET", "/podgroups/group$")

    await cluster.eventually(asked)
    await cluster.quiet()
    assert await consumers(cluster) == ["group"]


async def test_a_server_that_cannot_be_asked_about_a_group_drops_nothing(cluster):
    group = await make_group(cluster, claims={"gpu": "claim"})
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    cluster.wire.fail("GET", "/podgroups/group$", ApiError(500, "InternalError", "not now"), times=2)
    controller = await cluster.prepare(FOLLOWING_GROUPS)
    with pytest.raises(ApiError, match="not now"):
        await controller.sync("claim:ns/claim")
    assert await consumers(cluster) == ["group"]


async def test_pods_and_groups_leave_apart(cluster):
    group = await make_group(cluster, claims={"gpu": "claim"})
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await cluster.client.create(CLAIMS, ns_claim())
    await reserve_for_group(cluster, "claim", group, pod)
    await start(cluster)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)

    async def left():
        return await consumers(cluster) == ["group"]

    await cluster.eventually(left)
    await cluster.client.delete(POD_GROUPS, "group", "ns")
    await freed(cluster)


async def test_a_member_placed_by_hand_is_reserved_as_its_group(cluster):
    await start(cluster)
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim")
    group = await make_group(cluster, claims={"gpu": "claim"})

    async def known():
        return cluster.running[0]._groups.informer.get("ns/group")

    await cluster.eventually(known)
    for name in ("a", "b"):
        await cluster.client.create(PODS, a_member(name, claims={"gpu": "claim"}, node="node"))

    async def reserved():
        return [consumer.uid for consumer in (await cluster.claim()).status.reserved_for] == [group.metadata.uid]

    await cluster.eventually(reserved)
    await cluster.quiet()
    assert await reserved()


async def test_a_server_without_groups_is_followed_all_the_same(cluster):
    """As every Kubernetes by default: the kind is not served, and a member waits for a group that cannot be."""
    await cluster.start(ClaimController)
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, a_member(templates={"gpu": "template"}))
    await cluster.client.create(PODS, ns_pod("alone", templates={"gpu": "template"}))

    async def recorded():
        return (await cluster.recorded("alone")).get("gpu")

    await cluster.eventually(recorded)

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    assert await cluster.eventually(told)
