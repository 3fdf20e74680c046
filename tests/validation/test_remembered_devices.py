"""A list of devices that was found faultless is not looked at again; any other is."""

import copy

import pytest
from tests.builders.manifests import a_device, a_slice

from dray.features import FeatureGates
from dray.validation import ValidationContext, validate_create


def slice_with(**changes):
    document = a_slice(
        "s", *(a_device(f"d-{i}", attributes={"index": i}) for i in range(20)), node="n", driver="d.example.com"
    )
    document["spec"] |= changes
    return document


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
    broken = slice_with()
    break_it(broken["spec"])
    first = problems(copy.deepcopy(broken))
    assert problems(slice_with()) == []
    assert problems(slice_with()) == []
    assert problems(broken) == first != []


def test_the_same_devices_are_judged_anew_where_each_has_its_own_node():
    assert problems(slice_with()) == []
    per_device = slice_with(perDeviceNodeSelection=True)
    del per_device["spec"]["nodeName"]
    assert len(problems(per_device)) == 20


def slice_with_counters(**changes):
    counters = {f"memory-slice-{number}": {"value": "1"} for number in range(8)} | changes
    return {
        **slice_with(),
        "spec": {
            **{key: value for key, value in slice_with()["spec"].items() if key != "devices"},
            "sharedCounters": [{"name": f"gpu-{number}", "counters": counters} for number in range(8)],
        },
    }


@pytest.mark.parametrize("wrong", [{"Not a label": {"value": "1"}}, {f"c-{n}": {"value": "1"} for n in range(40)}])
def test_faults_of_counters_are_found_before_and_after_faultless_ones_were_seen(wrong):
    first = problems(slice_with_counters(**wrong))
    assert problems(slice_with_counters()) == []
    assert problems(slice_with_counters()) == []
    assert problems(slice_with_counters(**wrong)) == first != []


def test_counters_of_equal_nodes_are_looked_at_once(monkeypatch):
    asked = []
    monkeypatch.setattr("dray.validation.slices.check_counters", lambda counters, path, errors: asked.append(path))
    document = slice_with_counters(counted={"value": "1"})
    assert (problems(document), problems(copy.deepcopy(document))) == ([], [])
    assert len(asked) == 8
