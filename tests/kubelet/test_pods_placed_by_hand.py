"""Pods that reach a node past the scheduler, with claims that nobody has allocated or reserved for them."""

from dray.client import CLAIMS
from tests.builders.manifests import a_claim, a_request
from tests.kubelet.node_rig import NODE, NodeRig

RIG = NodeRig


async def create_claim(rig, name="c"):
    return await rig.client.create(CLAIMS, a_claim(name, a_request(device_class="fan")), "default")


async def create_pod(rig, name="p", claim="c", **spec):
    entry = {"name": "fan", "resourceClaimName": claim}
    await rig.create_pod(name, resourceClaims=[entry], **spec)


async def refusal(rig, words):
    """The event in which the agent says why it does not run the pod."""
    found = []

    async def is_told():
        found[:] = [text for reason, text in await rig.events() if reason == "FailedPrepareDynamicResources"]
        return any(words in text for text in found)

    await rig.until(is_told, f"an event with {words!r}")


async def test_a_pod_whose_claim_is_not_allocated_is_not_run_until_it_is(rig, caplog):
    """Another pod has the claim allocated; the controller then reserves it for the waiting pod, too."""
    await create_claim(rig)
    await create_pod(rig, nodeName=NODE)
    await refusal(rig, "is not allowed to use ResourceClaim c")
    assert "is not allowed to use ResourceClaim c" in caplog.text
    assert (await rig.pod()).status.phase == "Pending"
    assert rig.fan.prepared == []
    await create_pod(rig, "placed")
    await rig.until_phase("Running", "placed")
    await rig.until_phase("Running")
    users = {each.name for each in (await rig.client.get(CLAIMS, "c", "default")).status.reserved_for}
    assert users == {"p", "placed"}


async def test_a_pod_whose_claim_is_missing_is_not_run(rig, caplog):
    await create_pod(rig, nodeName=NODE)
    await refusal(rig, 'resourceclaims.resource.k8s.io "c" not found')
    assert '"c" not found' in caplog.text
    assert (await rig.pod()).status.phase == "Pending"
    assert rig.fan.prepared == []
    await rig.delete_pod()


async def test_a_claim_without_requests_is_allocated_without_devices(rig):
    claim = a_claim("nothing")
    claim["spec"] = {"devices": {}}
    await rig.client.create(CLAIMS, claim, "default")
    entries = [
        {"name": "fan", "resourceClaimTemplateName": "fan"},
        {"name": "nothing", "resourceClaimName": "nothing"},
    ]
    await rig.create_pod(resourceClaims=entries)
    await rig.until_phase("Running")
    status = (await rig.client.get(CLAIMS, "nothing", "default")).status
    assert status.allocation is not None
    assert status.allocation.devices.results == ()
    assert [each.name for each in status.reserved_for] == ["p"]
    assert len(rig.fan.prepared) == 1, "no driver is asked about a claim without devices"
