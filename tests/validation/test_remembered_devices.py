"""A list of devices that was found faultless is not looked at again; any other is."""

import copy

import pytest

from dray.features import FeatureGates
from dray.validation import ValidationContext, validate_create


def a_slice(**changes):
    devices = [{"name": f"d-{i}", "attributes": {"index": {"int": i}}} for i in range(20)]
    spec = {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {**spec, **changes},
    }


def problems(document):
    return [
        str(each)
        for each in validate_create(document, ValidationContext(FeatureGates.default(), None, "resource.k8s.io/v1"))
    ]


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(lambda spec: spec["devices"][3].update(name="D!"), id="name"),
        pytest.param(lambda spec: spec["devices"].append(spec["devices"][0]), id="twice"),
        pytest.param(lambda spec: spec["devices"][0]["attributes"]["index"].update(string="x"), id="two-values"),
        pytest.param(lambda spec: spec["devices"][0].update(nodeName="n"), id="node-of-a-device"),
    ],
)
def test_a_fault_is_found_before_and_after_the_faultless_list_was_seen(break_it):
    broken = a_slice()
    break_it(broken["spec"])
    first = problems(copy.deepcopy(broken))
    assert problems(a_slice()) == []
    assert problems(a_slice()) == []
    assert problems(broken) == first != []


def test_the_same_devices_are_judged_anew_where_each_has_its_own_node():
    assert problems(a_slice()) == []
    per_device = a_slice(perDeviceNodeSelection=True)
    del per_device["spec"]["nodeName"]
    assert len(problems(per_device)) == 20
