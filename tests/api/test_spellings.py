import pytest
from tests.builders.manifests import a_slice

from dray.api.codec import shape_document
from dray.api.errors import DecodeError
from dray.api.kep_field_names import uses_old_spelling

V1 = "resource.k8s.io/v1"


def slice_with(**device: object) -> dict:
    return a_slice("s", {"name": "d", **device})


def device_of(document: dict) -> dict:
    reading = shape_document(document)
    assert reading.unknown_fields == ()
    return reading.document["spec"]["devices"][0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"quantityFrom": {"perInstanceQuantity": "2"}}, {"allocationMultiplier": "2"}),
        ({"quantityFrom": {"capacity": "cpu"}}, {"capacityKey": "cpu"}),
        (
            {"quantityFrom": {"capacity": "c"}, "accountingPolicy": "Max"},
            {"accountingPolicy": "Max", "capacityKey": "c"},
        ),
    ],
)
@pytest.mark.parametrize("field", ["nativeResourceMappings", "nodeAllocatableResourceMappings"])
def test_the_oldest_device_fields_come_back_canonical(field, old, new):
    assert uses_old_spelling(slice_with(**{field: {"cpu": old}}))
    assert device_of(slice_with(**{field: {"cpu": old}})) == {
        "name": "d",
        "nodeAllocatableResourceMappings": {"cpu": new},
    }


def test_under_basic_as_well():
    document = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "spec": {"devices": [{"name": "d", "basic": {"nativeResourceMappings": {"cpu": {}}}}]},
    }
    assert device_of(document)["basic"] == {"nodeAllocatableResourceMappings": {"cpu": {}}}


@pytest.mark.parametrize("other", ["nodeAllocatableResources", "nodeAllocatableResourceMappings"])
def test_two_spellings_on_one_device_are_refused(other):
    with pytest.raises(DecodeError, match="use one of them"):
        shape_document(slice_with(nativeResourceMappings={"cpu": {}}, **{other: {"cpu": {}}}))


def test_classes():
    document = {
        "apiVersion": V1,
        "kind": "DeviceClass",
        "spec": {"managesNativeResources": True, "nativeResourceAccountingPolicies": {"cpu": "Max"}},
    }
    assert shape_document(document).document["spec"] == {
        "managesNodeAllocatableResources": True,
        "nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
    }


MAX = [{"name": "cpu", "quantity": "30", "accountingPolicy": "Max"}]


@pytest.mark.parametrize(("policy", "accounting"), [({}, {}), ({"accountingPolicy": "Max"}, {"accounting": MAX})])
def test_pod_status(policy, accounting):
    entry = {"resourceName": "cpu", "quantity": 30, **policy}
    status = {"nativeResourceClaimStatus": [{"claimInfo": {"name": "c"}, "containers": ["a"], "resources": [entry]}]}
    shaped = shape_document({"apiVersion": "v1", "kind": "Pod", "status": status}).document
    assert shaped["status"]["nodeAllocatableResourceClaimStatuses"] == [
        {"resourceClaimName": "c", "containers": ["a"], "resources": {"cpu": "30"}, **accounting}
    ]


def test_canonical_documents_pass_untouched():
    document = slice_with(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "x"}})
    assert not uses_old_spelling(document)


def test_what_is_malformed_is_named_where_it_stands():
    with pytest.raises(DecodeError):
        shape_document(slice_with(nativeResourceMappings={"cpu": 1}))
    reading = shape_document(slice_with(nativeResourceMappings=[]))
    assert reading.unknown_fields == ("spec.devices[0].nativeResourceMappings",)


@pytest.mark.parametrize("source", [{"perInstanceQuantity": "3", "capacity": "cpu"}, {}])
@pytest.mark.parametrize("field", ["nativeResourceMappings", "nodeAllocatableResourceMappings"])
def test_an_amount_comes_from_exactly_one_place(field, source):
    with pytest.raises(DecodeError, match="exactly one of perInstanceQuantity and capacity") as refused:
        shape_document(slice_with(**{field: {"cpu": {"quantityFrom": source}}}))
    assert refused.value.path == f"spec.devices[0].{field}[cpu].quantityFrom"


def test_a_class_has_no_mappings():
    """They belong to devices: a DeviceClass with them is refused by a strict reader, and they are dropped by others."""
    document = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}
    reading = shape_document(document | {"spec": {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "x"}}}})
    assert reading.unknown_fields == ("spec.nodeAllocatableResourceMappings",)
    assert reading.document["spec"] == {}
