import copy

import pytest
from tests.builders.manifests import a_claim, a_slice

from dray.api.gated_fields import drop_disabled_fields, dropped_features
from dray.features import FeatureGates

ALL = FeatureGates.default()


def slice_with(**device: object) -> dict:
    return a_slice("s", {"name": "d", **device})


def claim_with(**exactly: object) -> dict:
    return a_claim("c", {"name": "r", "exactly": exactly})


@pytest.mark.parametrize(
    ("gate", "document", "left"),
    [
        ("DRADeviceTaints", slice_with(taints=[{"key": "k"}]), slice_with()),
        ("DRADeviceTaints", claim_with(tolerations=[{"key": "k"}]), claim_with()),
        ("DRAPartitionableDevices", slice_with(consumesCounters=[{}], nodeName="n"), slice_with()),
        ("DRAConsumableCapacity", slice_with(allowMultipleAllocations=True), slice_with()),
        ("DRAConsumableCapacity", claim_with(capacity={"requests": {"a": "1"}}), claim_with()),
        ("DRAListTypeAttributes", slice_with(attributes={"a": {"ints": [1]}}), slice_with(attributes={"a": {}})),
        ("DRANodeAllocatableResources", slice_with(nodeAllocatableResourceMappings={"cpu": {}}), slice_with()),
        ("DRAAdminAccess", claim_with(adminAccess=True), claim_with()),
        ("DRADerivedAttributes", claim_with(derivedAttributes=[{"name": "a/b"}]), claim_with()),
    ],
)
def test_fields_of_a_disabled_feature(gate, document, left):
    off = ALL.without(gate)
    before = copy.deepcopy(document)
    assert drop_disabled_fields(document, None, off) == left
    assert document == before
    assert drop_disabled_fields(document, None, ALL) is document
    assert drop_disabled_fields(document, document, off) is document, "an old object that uses it keeps it"
    assert drop_disabled_fields(document, left, off) == left
    assert any(gate in gates for gates, _ in dropped_features(document, off))


def test_capacity_of_alternatives_goes_with_its_gate():
    option = {"name": "a", "deviceClassName": "gpu"}
    document = a_claim("c", {"name": "r", "firstAvailable": [option | {"capacity": {"requests": {"a": "1"}}}, option]})
    off = ALL.without("DRAConsumableCapacity")
    assert drop_disabled_fields(document, None, off) == a_claim("c", {"name": "r", "firstAvailable": [option, option]})
    template = {"kind": "ResourceClaimTemplate", "spec": {"spec": document["spec"]}}
    left = drop_disabled_fields(template, None, off)["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"]
    assert left == [option, option]


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("device_status", [True, False])
def test_shares_and_the_status_of_devices_have_gates_of_their_own(shares, device_status):
    where = {"driver": "d.example.com", "pool": "p", "device": "d"}
    share = {"shareID": "a"}
    result = {"request": "r", **where}
    document = a_claim("c", results=[result | share | {"consumedCapacity": {"a": "1"}}])
    document["status"]["devices"] = [where | share]
    off = {"DRAConsumableCapacity": shares, "DRAResourceClaimDeviceStatus": device_status}
    gates = ALL.without(*(gate for gate, enabled in off.items() if not enabled))
    # The status of devices needs no share, and the other way round.
    assert gates.enabled("DRAConsumableCapacity") == shares
    assert gates.enabled("DRAResourceClaimDeviceStatus") == device_status
    status = drop_disabled_fields(document, None, gates)["status"]
    (left,) = status["allocation"]["devices"]["results"]
    assert left == (result | share | {"consumedCapacity": {"a": "1"}} if shares else result)
    assert status.get("devices", []) == ([where | (share if shares else {})] if device_status else [])


def test_driver_parameters_are_never_touched():
    document = claim_with(tolerations=[{}])
    document["spec"]["devices"]["config"] = [{"opaque": {"parameters": {"tolerations": [1]}}}]
    made = drop_disabled_fields(document, None, ALL.without("DRADeviceTaints"))
    assert made["spec"]["devices"]["config"] == document["spec"]["devices"]["config"]
    assert "tolerations" not in made["spec"]["devices"]["requests"][0]["exactly"]


def test_templates_and_pods():
    template = {"kind": "ResourceClaimTemplate", "spec": {"spec": claim_with(adminAccess=True)["spec"]}}
    assert drop_disabled_fields(template, None, ALL.without("DRAAdminAccess"))["spec"]["spec"] == claim_with()["spec"]
    pod = {"kind": "Pod", "status": {"nodeAllocatableResourceClaimStatuses": [{}]}}
    assert drop_disabled_fields(pod, None, ALL.without("DRANodeAllocatableResources"))["status"] == {}


POD_SPEC = {"resourceClaims": [{"name": "c"}], "containers": [{"name": "m", "resources": {"claims": [{"name": "c"}]}}]}
WITHOUT_CLAIMS = {"containers": [{"name": "m", "resources": {}}]}


@pytest.mark.parametrize(
    "kind", ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "ReplicationController", "Job"]
)
def test_templates_of_workloads_lose_claims(kind):
    document = {"kind": kind, "spec": {"template": {"spec": copy.deepcopy(POD_SPEC)}}}
    off = ALL.without("DynamicResourceAllocation")
    made = drop_disabled_fields(document, None, off)
    assert made["spec"]["template"]["spec"] == WITHOUT_CLAIMS
    assert drop_disabled_fields(document, document, off) is document, "an old object that has claims keeps them"


def test_other_templates_lose_claims():
    off = ALL.without("DynamicResourceAllocation")
    job = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": POD_SPEC}}}}}
    made = drop_disabled_fields(job, None, off)
    assert made["spec"]["jobTemplate"]["spec"]["template"]["spec"] == WITHOUT_CLAIMS
    template = {"kind": "PodTemplate", "template": {"spec": POD_SPEC}}
    assert drop_disabled_fields(template, None, off)["template"]["spec"] == WITHOUT_CLAIMS
