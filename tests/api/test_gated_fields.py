import copy

import pytest

from dray.api.gated_fields import drop_disabled_fields, dropped_features
from dray.features import FeatureGates

ALL = FeatureGates.default()


def a_slice(**device: object) -> dict:
    return {"kind": "ResourceSlice", "spec": {"devices": [{"name": "d", **device}]}}


def a_claim(**exactly: object) -> dict:
    return {"kind": "ResourceClaim", "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


@pytest.mark.parametrize(
    ("gate", "document", "left"),
    [
        ("DRADeviceTaints", a_slice(taints=[{"key": "k"}]), a_slice()),
        ("DRADeviceTaints", a_claim(tolerations=[{"key": "k"}]), a_claim()),
        ("DRAPartitionableDevices", a_slice(consumesCounters=[{}], nodeName="n"), a_slice()),
        ("DRAConsumableCapacity", a_slice(allowMultipleAllocations=True), a_slice()),
        ("DRAConsumableCapacity", a_claim(capacity={"requests": {"a": "1"}}), a_claim()),
        ("DRAListTypeAttributes", a_slice(attributes={"a": {"ints": [1]}}), a_slice(attributes={"a": {}})),
        ("DRANodeAllocatableResources", a_slice(nodeAllocatableResourceMappings={"cpu": {}}), a_slice()),
        ("DRAAdminAccess", a_claim(adminAccess=True), a_claim()),
        ("DRADerivedAttributes", a_claim(derivedAttributes=[{"name": "a/b"}]), a_claim()),
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


def test_driver_parameters_are_never_touched():
    document = a_claim(tolerations=[{}])
    document["spec"]["devices"]["config"] = [{"opaque": {"parameters": {"tolerations": [1]}}}]
    made = drop_disabled_fields(document, None, ALL.without("DRADeviceTaints"))
    assert made["spec"]["devices"]["config"] == document["spec"]["devices"]["config"]
    assert "tolerations" not in made["spec"]["devices"]["requests"][0]["exactly"]


def test_templates_and_pods():
    template = {"kind": "ResourceClaimTemplate", "spec": {"spec": a_claim(adminAccess=True)["spec"]}}
    assert drop_disabled_fields(template, None, ALL.without("DRAAdminAccess"))["spec"]["spec"] == a_claim()["spec"]
    pod = {"kind": "Pod", "status": {"nodeAllocatableResourceClaimStatuses": [{}]}}
    assert drop_disabled_fields(pod, None, ALL.without("DRANodeAllocatableResources"))["status"] == {}
