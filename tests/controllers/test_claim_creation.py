"""Claims from templates: what is made, what is found again, what is refused, and what is said about it."""

import json
import re

import pytest

from dray.api.core import Pod, PodResourceClaim, PodSpec
from dray.api.dra.pod_claims import claim_from_template, generated_claim_prefix
from dray.api.meta import ObjectMeta
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION as ANNOTATION
from dray.client import CLAIMS, PODS, TEMPLATES, Hopeless
from dray.controllers.claims import ClaimController
from dray.controllers.claims.creating import ClaimNotCreated
from dray.features import FeatureGates
from tests.controllers.builders import ns_claim, ns_pod, ns_template

CREATES = "dynamic_resource_allocation_resourceclaim_creates_total"


async def a_pod_with_template(cluster, **fields):
    await cluster.client.create(TEMPLATES, ns_template())
    return await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}, **fields))


async def recorded_claim(cluster, entry="gpu", name="pod"):
    async def look():
        names = await cluster.recorded(name)
        return names.get(entry)

    return await cluster.claim(await cluster.eventually(look))


async def test_a_claim_is_made_for_the_pod_and_recorded(cluster):
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    await cluster.client.create(TEMPLATES, ns_template(metadata=metadata, count=2))
    pod = await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))
    await cluster.start(ClaimController)
    claim = await recorded_claim(cluster)
    assert claim.metadata.name.startswith("pod-gpu-")
    assert len(claim.metadata.name) == len("pod-gpu-") + 5
    assert claim.metadata.labels == {"a": "b"}
    assert claim.metadata.annotations == {"c": "d", ANNOTATION: "gpu"}
    (owner,) = claim.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Pod", "pod", pod.metadata.uid)
    assert owner.controller is True
    assert owner.block_owner_deletion is None
    assert claim.spec.devices.requests[0].exactly.count == 2


async def test_two_writes_a_pod_and_then_silence(cluster):
    await a_pod_with_template(cluster)
    await cluster.start(ClaimController)
    await recorded_claim(cluster)
    await cluster.quiet()
    assert [(call.method, call.path.rpartition("/")[2]) for call in cluster.wire.writes] == [
        ("POST", "resourceclaims"),
        ("PATCH", "status"),
    ]
    assert cluster.wire.writes[0].user_agent == "resource-claim-controller"
    assert cluster.wire.writes[1].query == {"fieldManager": "ResourceClaimController", "force": "true"}


async def test_all_entries_are_recorded_together_and_sorted(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    names = {"z": "template", "a": "template", "m": "template"}
    await cluster.client.create(PODS, ns_pod(templates=names, claims={"mine": "own"}))
    await cluster.start(ClaimController)
    await recorded_claim(cluster, "z")
    await cluster.quiet()
    assert list(await cluster.recorded()) == ["a", "m", "z"]
    assert len(await cluster.claims()) == 3
    assert cluster.wire.count("PATCH", "/status$") == 1


async def test_a_recorded_claim_that_exists_needs_nothing(cluster):
    await a_pod_with_template(cluster)
    await cluster.start(ClaimController)
    await recorded_claim(cluster)
    await cluster.crash()
    cluster.wire.calls.clear()
    await cluster.start(ClaimController)
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_an_entry_that_needs_no_claim_is_left_alone(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    await cluster.start(ClaimController)
    await cluster.quiet()
    assert await cluster.claims() == []


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(ns_pod(), id="no-claims"),
        pytest.param(ns_pod(claims={"gpu": "missing"}), id="direct-reference-to-nothing"),
    ],
)
async def test_pods_that_need_nothing(cluster, pod):
    await cluster.client.create(PODS, pod)
    await cluster.start(ClaimController)
    await cluster.quiet()
    assert cluster.wire.writes == []


async def test_a_pod_being_deleted_gets_no_claim(cluster):
    await a_pod_with_template(cluster, node="node", finalizers=["example.com/keep"])
    await cluster.client.delete(PODS, "pod", "ns")
    await cluster.start(ClaimController)
    await cluster.quiet()
    assert await cluster.claims() == []


async def test_B3_a_lost_claim_is_made_again(cluster):
    await a_pod_with_template(cluster)
    await cluster.start(ClaimController)
    first = await recorded_claim(cluster)
    await cluster.client.delete(CLAIMS, first.metadata.name, "ns")

    async def made_again():
        names = await cluster.recorded()
        return names["gpu"] != first.metadata.name and await cluster.claim(names["gpu"])

    second = await cluster.eventually(made_again)
    assert second.metadata.uid != first.metadata.uid
    assert len(await cluster.claims()) == 1


async def test_B4_a_foreign_claim_under_the_recorded_name_is_not_used(cluster):
    pod = await a_pod_with_template(cluster)
    foreign = await cluster.client.create(CLAIMS, ns_claim("foreign"))
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "foreign"}]}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    await cluster.start(ClaimController)

    async def replaced():
        return (await cluster.recorded())["gpu"] != "foreign"

    await cluster.eventually(replaced)
    claim = await recorded_claim(cluster)
    assert claim.metadata.owner_references[0].uid == pod.metadata.uid
    assert (await cluster.claim("foreign")).metadata.resource_version == foreign.metadata.resource_version


async def test_a_claim_of_the_same_pod_for_another_entry_is_not_taken(cluster):
    pod = await a_pod_with_template(cluster)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    other = ns_claim("other", ownerReferences=[owner], annotations={ANNOTATION: "something-else"})
    await cluster.client.create(CLAIMS, other)
    await cluster.start(ClaimController)
    assert (await recorded_claim(cluster)).metadata.name != "other"


async def test_a_claim_of_another_namespace_is_not_taken(cluster):
    """Whoever knows a pod's UID would have it wait for a claim that is not in its namespace."""
    pod = await a_pod_with_template(cluster)
    await cluster.namespace("elsewhere")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    foreign = ns_claim("foreign", ownerReferences=[owner], annotations={ANNOTATION: "gpu"})
    foreign["metadata"]["namespace"] = "elsewhere"
    await cluster.client.create(CLAIMS, foreign)
    await cluster.start(ClaimController)
    assert (await recorded_claim(cluster)).metadata.name != "foreign"


async def test_a_claim_with_the_annotation_but_another_owner_is_not_taken(cluster):
    await a_pod_with_template(cluster)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "another-uid", "controller": True}
    await cluster.client.create(CLAIMS, ns_claim("other", ownerReferences=[owner], annotations={ANNOTATION: "gpu"}))
    await cluster.start(ClaimController)
    assert (await recorded_claim(cluster)).metadata.name != "other"


async def test_B6_template_edits_do_not_touch_existing_claims(cluster):
    await a_pod_with_template(cluster)
    await cluster.start(ClaimController)
    claim = await recorded_claim(cluster)
    await cluster.client.delete(TEMPLATES, "template", "ns")
    await cluster.client.create(TEMPLATES, ns_template(count=7))
    await cluster.quiet()
    assert (await cluster.claims()) == [claim]


# --- failures


async def test_B5_a_missing_template_is_told_and_waited_for(cluster):
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))
    await cluster.start(ClaimController)

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    (event,) = await cluster.eventually(told)
    assert event.type == "Warning"
    assert event.message.startswith('PodResourceClaim gpu: resource claim template "template": ')
    assert "not found" in event.message
    assert (event.source.component, event.involved_object.kind) == ("resource_claim", "Pod")
    await cluster.client.create(TEMPLATES, ns_template())
    await recorded_claim(cluster)


async def test_a_template_in_another_namespace_does_not_count(cluster):
    await cluster.namespace("other")
    await cluster.client.create(TEMPLATES, ns_template(namespace="other"))
    await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))
    controller = await cluster.start(ClaimController)

    async def failing():
        return controller.queue.failures("pod:ns/pod")

    await cluster.eventually(failing)
    assert await cluster.claims() == []


@pytest.mark.parametrize(
    ("gate", "template", "message"),
    [
        pytest.param(
            "DRAAdminAccess",
            ns_template(adminAccess=True),
            "admin access is requested, but the feature is disabled",
            id="admin-access",
        ),
        pytest.param(
            "DRAPrioritizedList",
            {
                **ns_template(),
                "spec": {
                    "spec": {
                        "devices": {
                            "requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}]
                        }
                    }
                },
            },
            "template includes a prioritized list of subrequests, but the feature is disabled",
            id="prioritized-list",
        ),
    ],
)
async def test_templates_with_features_that_are_off(cluster, gate, template, message):
    await cluster.namespace("admin", **{"resource.kubernetes.io/admin-access": "true"})
    template = {**template, "metadata": {"name": "template", "namespace": "admin"}}
    await cluster.client.create(TEMPLATES, template)
    await cluster.client.create(PODS, ns_pod(namespace="admin", templates={"gpu": "template"}))
    await cluster.start(ClaimController, gates=FeatureGates(FeatureGates.default().on - {gate}))

    async def told():
        return await cluster.events("FailedResourceClaimCreation", "admin")

    (event, *_) = await cluster.eventually(told)
    assert event.message == f"PodResourceClaim gpu: {message}"
    assert await cluster.claims("admin") == []
    await cluster.crash()
    await cluster.start(ClaimController)

    async def made():
        return await cluster.claims("admin")

    await cluster.eventually(made)


async def test_B7_a_refused_creation_is_told_counted_and_tried_again(cluster):
    from dray.client import Answer

    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "exceeded quota: q"}
    cluster.wire.fail("POST", "resourceclaims$", Answer(403, {}, json.dumps(body).encode()), times=2)
    await a_pod_with_template(cluster)
    await cluster.start(ClaimController)
    await recorded_claim(cluster)

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    (event,) = await cluster.eventually(told)
    assert event.message == "PodResourceClaim gpu: create ResourceClaim : exceeded quota: q"
    text = cluster.registry.text()
    labels = 'admin_access="false",owner_api_group="",owner_api_kind="Pod"'
    assert f'{CREATES}{{status="failure",{labels}}} 2' in text
    assert f'{CREATES}{{status="success",{labels}}} 1' in text
    assert "resourceclaim_controller_create_total 3" in text
    assert "resourceclaim_controller_create_failures_total 2" in text
    assert 'workqueue_retries_total{name="resource_claim"} 2' in text
    assert re.search('workqueue_adds_total{name="resource_claim"} [1-9]', text)
    assert 'workqueue_depth{name="resource_claim"} 0' in text
    assert re.search('workqueue_work_duration_seconds_count{name="resource_claim"} [1-9]', text)


async def test_B7_earlier_claims_survive_the_failure_of_a_later_one(cluster):
    await cluster.client.create(TEMPLATES, ns_template("good"))
    await cluster.client.create(PODS, ns_pod(templates={"a": "good", "b": "late"}))
    controller = await cluster.start(ClaimController)

    async def failing():
        return controller.queue.failures("pod:ns/pod") >= 3

    await cluster.eventually(failing)
    (first,) = await cluster.claims()
    await cluster.client.create(TEMPLATES, ns_template("late"))
    await recorded_claim(cluster, "b")
    names = await cluster.recorded()
    assert names["a"] == first.metadata.name
    assert len(await cluster.claims()) == 2


async def test_keys_that_make_no_sense_are_dropped(cluster):
    controller = await cluster.prepare(ClaimController)
    with pytest.raises(Hopeless, match="unexpected key: x"):
        await controller.sync("x")
    with pytest.raises(Hopeless, match="unexpected key prefix: node"):
        await controller.sync("node:x")


def test_workers_must_be_positive():
    with pytest.raises(ValueError, match="must be larger than 0, got 0"):
        ClaimController(None, workers=0)


async def test_an_entry_of_a_newer_api_is_told_and_not_guessed_at(cluster):
    """A pod claim whose source field we do not know, as a newer server would hand it to us."""
    entry = PodResourceClaim(name="x")
    pod = Pod(metadata=ObjectMeta(namespace="ns", name="p", uid="u"), spec=PodSpec(resource_claims=(entry,)))
    controller = await cluster.prepare(ClaimController)
    controller._pods.objects.put(pod)
    controller._pod_seen(pod)
    assert len(controller.queue) == 1
    text = (
        'checking for claim before creating it: pod "ns/p", spec.resourceClaim "x": '
        "none of the supported fields are set"
    )
    with pytest.raises(ClaimNotCreated) as caught:
        await controller.sync("pod:ns/p")
    assert str(caught.value) == text

    async def told():
        return await cluster.events("FailedResourceClaimCreation")

    (event,) = await cluster.eventually(told)
    assert event.message == f"PodResourceClaim x: {text}"
    assert await cluster.claims() == []


# --- names


@pytest.mark.parametrize(
    ("pod", "claim", "expected"),
    [
        pytest.param("pod", "claim", "pod-claim-", id="short"),
        pytest.param("p" * 50, "claim", f"{'p' * 50}-claim-", id="exactly-57"),
        pytest.param("p" * 51, "claim", f"{'p' * 50}-{'c' + 'lai'}", id="one-too-long"),
        pytest.param("p" * 253, "c" * 63, f"{'p' * 45}-{'c' * 11}", id="very-long"),
        pytest.param("p", "c" * 63, f"p-{'c' * 54}", id="short-pod-long-claim"),
    ],
)
def test_generated_names(pod, claim, expected):
    name = generated_claim_prefix(pod, claim)
    assert name == expected
    assert len(name) <= 57


async def test_B23_long_names_are_cut_by_the_server_to_63(cluster):
    await cluster.client.create(TEMPLATES, ns_template())
    name, entry = "p" * 60, "c" * 60
    await cluster.client.create(PODS, ns_pod(name, templates={entry: "template"}))
    await cluster.start(ClaimController)
    claim = await recorded_claim(cluster, entry, name)
    assert len(claim.metadata.name) <= 63
    assert claim.metadata.name.startswith("ppp")
    assert "-ccc" in claim.metadata.name


async def test_the_template_is_not_changed_by_making_claims(cluster):
    await cluster.client.create(TEMPLATES, ns_template(metadata={"annotations": {"c": "d"}}))
    pod = await cluster.client.create(PODS, ns_pod(templates={"gpu": "template"}))
    template = await cluster.client.get(TEMPLATES, "template", "ns")
    claim_from_template(pod, "gpu", template)
    assert template.spec.metadata.annotations == {"c": "d"}
