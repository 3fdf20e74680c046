"""PodGroups and Workloads: what is refused, and in which words."""

import pytest
from tests.builders.manifests import a_pod_group

from dray.validation import ValidationContext, validate_create, validate_status_update, validate_update


def group_with(policy=None, claims=(), **spec):
    return a_pod_group("g", *claims, namespace="ns", schedulingPolicy=policy or {"basic": {}}, **spec)


def a_workload(*templates):
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podGroupTemplates": list(templates)},
    }


def texts(errors):
    return [str(error) for error in errors]


BASIC = {"name": "t", "schedulingPolicy": {"basic": {}}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(group_with(), [], id="basic"),
        pytest.param(group_with({"gang": {"minCount": 4}}), [], id="gang"),
        pytest.param(
            group_with({"gang": {}}), ["spec.schedulingPolicy.gang.minCount: Required value"], id="gang-without-size"
        ),
        pytest.param(
            group_with({"gang": {"minCount": -1}}),
            ["spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"],
            id="negative-gang",
        ),
        pytest.param(
            group_with({"none": {}}),
            ['spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'],
            id="no-policy",
        ),
        pytest.param(
            group_with({"basic": {}, "gang": {"minCount": 1}}),
            ['spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`'],
            id="two-policies",
        ),
        pytest.param(
            group_with(claims=[{"name": f"c{i}", "resourceClaimName": "c"} for i in range(5)]),
            ["spec.resourceClaims: Too many: 5: must have at most 4 items"],
            id="too-many-claims",
        ),
        pytest.param(
            group_with(claims=[{"name": "c", "resourceClaimName": "c"}, {"name": "c", "resourceClaimName": "c"}]),
            ['spec.resourceClaims[1].name: Duplicate value: "c"'],
            id="same-name-twice",
        ),
        pytest.param(a_workload(BASIC), [], id="workload"),
        pytest.param(
            a_workload(), ["spec.podGroupTemplates: Required value: must have at least one item"], id="no-template"
        ),
        pytest.param(
            a_workload(*[{**BASIC, "name": f"t{i}"} for i in range(9)]),
            ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
            id="too-many-templates",
        ),
        pytest.param(
            a_workload({"schedulingPolicy": {"basic": {}}}),
            ["spec.podGroupTemplates[0].name: Required value"],
            id="nameless-template",
        ),
    ],
)
def test_new_objects(document, expected):
    assert texts(validate_create(document, ValidationContext())) == expected


def with_revision(document):
    return {**document, "metadata": {**document["metadata"], "resourceVersion": "1"}}


def test_only_the_size_of_a_gang_can_change():
    old = with_revision(group_with({"gang": {"minCount": 2}}, [{"name": "c", "resourceClaimName": "c"}]))
    grown = with_revision(group_with({"gang": {"minCount": 3}}, [{"name": "c", "resourceClaimName": "c"}]))
    assert validate_update(grown, old, ValidationContext()) == []
    other = with_revision(group_with({"basic": {}}, priority=7))
    assert [error.field for error in validate_update(other, old, ValidationContext())] == [
        "spec.resourceClaims",
        "spec.priority",
        "spec.schedulingPolicy.basic",
        "spec.schedulingPolicy.gang",
    ]


def test_templates_of_a_workload_neither_come_nor_go():
    old = with_revision(a_workload(BASIC))
    new = with_revision(a_workload(BASIC, {**BASIC, "name": "u"}))
    assert texts(validate_update(new, old, ValidationContext())) == [
        "spec.podGroupTemplates: Forbidden: items may not be added or removed"
    ]


def test_the_status_names_entries_of_the_spec():
    old = with_revision(group_with(claims=[{"name": "c", "resourceClaimTemplateName": "t"}]))
    good = {**old, "status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "g-c-x"}]}}
    assert validate_status_update(good, old, ValidationContext()) == []
    bad = {**old, "status": {"resourceClaimStatuses": [{"name": "d", "resourceClaimName": "g-d-x"}]}}
    (error,) = validate_status_update(bad, old, ValidationContext())
    assert error.field == "status.resourceClaimStatuses[0].name"


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param({"podGroupName": "g"}, [], id="named"),
        pytest.param({}, ["spec.schedulingGroup"], id="unnamed"),
        pytest.param({"podGroupName": "G!"}, ["spec.schedulingGroup.podGroupName"], id="no-name-at-all"),
    ],
)
def test_the_group_of_a_pod(group, expected):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGroup": group},
    }
    assert [error.field for error in validate_create(pod, ValidationContext())] == expected
