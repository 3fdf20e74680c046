"""The rest of the claim controller's cases: admin access, extended resources, gauges, keys of what is gone."""

import pytest

from dray.client import CLAIMS, NAMESPACES, PODS, TEMPLATES
from dray.controllers.claims import ClaimController
from tests.controllers.builders import ns_claim, ns_pod, ns_template

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
CREATES = "dynamic_resource_allocation_resourceclaim_creates_total"
GAUGE = "dynamic_resource_allocation_resource_claims"
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


def creations(status, admin_access):
    return f'{CREATES}{{status="{status}",admin_access="{admin_access}",owner_api_group="",owner_api_kind="Pod"}} 1'


def gauge(allocated, admin_access="false", source=""):
    return f'{GAUGE}{{allocated="{allocated}",admin_access="{admin_access}",source="{source}"}} 1'


async def shown(cluster, line):
    async def look():
        return line in cluster.registry.text()

    await cluster.eventually(look)


async def an_admin_template(cluster):
    await cluster.namespace("admin", **{ADMIN_LABEL: "true"})
    await cluster.client.create(TEMPLATES, ns_template(namespace="admin", adminAccess=True))


async def test_admin_access_is_handed_on_and_counted(cluster):
    await cluster.start(ClaimController)
    await an_admin_template(cluster)
    await cluster.client.create(PODS, ns_pod(namespace="admin", templates={"gpu": "template"}))

    async def recorded():
        return (await cluster.recorded(namespace="admin")).get("gpu")

    name = await cluster.eventually(recorded)
    claim = await cluster.claim(name, "admin")
    assert claim.spec.devices.requests[0].exactly.admin_access is True
    assert creations("success", "true") in cluster.registry.text()
    await shown(cluster, gauge("false", "true", "resource_claim_template"))


async def test_admin_access_in_a_namespace_that_lost_its_label_is_told_and_counted(cluster):
    """The server decides when the claim is made, not when the template was."""
    await an_admin_template(cluster)
    await cluster.client.patch(NAMESPACES, "admin", {"metadata": {"labels": {ADMIN_LABEL: None}}})
    await cluster.start(ClaimController)
    await cluster.client.create(PODS, ns_pod(namespace="admin", templates={"gpu": "template"}))

    async def told():
        return await cluster.events("FailedResourceClaimCreation", "admin")

    event, *_ = await cluster.eventually(told)
    assert event.message.startswith("PodResourceClaim gpu: create ResourceClaim : ")
    assert f"{CREATES}{{" in cluster.registry.text()
    assert 'status="failure",admin_access="true"' in cluster.registry.text()
    assert await cluster.claims("admin") == []
    await cluster.client.patch(NAMESPACES, "admin", {"metadata": {"labels": {ADMIN_LABEL: "true"}}})

    async def made():
        return await cluster.claims("admin")

    assert await cluster.eventually(made)


@pytest.mark.parametrize("key", ["pod:ns/nobody", "claim:ns/nothing", "podgroup:ns/none"])
async def test_keys_of_what_is_gone_are_done(cluster, key):
    controller = await cluster.prepare(ClaimController)
    await controller.sync(key)
    assert cluster.wire.writes == []


@pytest.mark.parametrize(
    ("annotations", "source"),
    [pytest.param({}, "", id="plain"), pytest.param(EXTENDED, "extended_resource", id="extended")],
)
async def test_the_gauge_follows_a_claim_through_its_life(cluster, annotations, source):
    await cluster.start(ClaimController)
    await cluster.client.create(CLAIMS, ns_claim(annotations=annotations))
    await shown(cluster, gauge("false", source=source))
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await cluster.allocate("claim", pod)
    await shown(cluster, gauge("true", source=source))
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await shown(cluster, gauge("false", source=source))
    await cluster.client.delete(CLAIMS, "claim", "ns")

    async def empty():
        return f"{GAUGE}{{" not in cluster.registry.text()

    await cluster.eventually(empty)


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "deleted"])
async def test_a_pod_with_a_claim_of_its_own_and_one_for_extended_resources_gives_both_back(cluster, end):
    await cluster.start(ClaimController)
    document = ns_pod(claims={"gpu": "claim"}, node="node")
    amount = {"example.com/gpu": "1"}
    document["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
    pod = await cluster.client.create(PODS, document)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.client.create(CLAIMS, ns_claim("extended", ownerReferences=[owner], annotations=EXTENDED))
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "req"}
    status = {"resourceClaimName": "extended", "requestMappings": [mapping]}
    patch = {"status": {"phase": "Running", "extendedResourceClaimStatus": status}}
    await cluster.client.patch(PODS, "pod", patch, "ns", subresource="status")
    for name in ("claim", "extended"):
        await cluster.allocate(name, pod)
    await cluster.quiet()
    for name in ("claim", "extended"):
        assert (await cluster.claim(name)).status.reserved_for
    if end == "deleted":
        await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    else:
        await cluster.set_phase(pod, end)

    async def given_back():
        own, extended = await cluster.claim("claim"), await cluster.claim("extended")
        is_released = extended is None or extended.status.allocation is None
        return own.status.allocation is None and is_released and (extended is None) == (end != "deleted")

    await cluster.eventually(given_back)


async def test_a_claim_that_its_user_has_to_make_is_not_made_and_used_once_it_is_there(cluster):
    controller = await cluster.start(ClaimController)
    pod = await cluster.client.create(PODS, ns_pod(claims={"gpu": "claim"}, node="node"))
    await cluster.quiet()
    assert cluster.wire.writes == []
    await cluster.client.create(CLAIMS, ns_claim())
    await cluster.allocate("claim")

    async def reserved():
        return [user.uid for user in (await cluster.claim()).status.reserved_for] == [pod.metadata.uid]

    await cluster.eventually(reserved)
    assert controller.queue.failures("pod:ns/pod") == 0
