"""Rules for FlowSchemas and PriorityLevelConfigurations, in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from dray.apiserver.security.default_flow_control import default_flow_control
from dray.validation.dispatch import validate_create, validate_update
from dray.validation.errors import ValidationContext

Document = dict[str, Any]
CONTEXT = ValidationContext(trusts_stored=True)
GROUP = {"kind": "Group", "group": {"name": "g"}}
RESOURCES = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}
SCHEMA: Document = {
    "matchingPrecedence": 500,
    "priorityLevelConfiguration": {"name": "l"},
    "rules": [{"subjects": [GROUP], "resourceRules": [RESOURCES]}],
}
QUEUING = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}


def _object(kind: str, spec: Document, name: str = "a") -> Document:
    return {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _limited(response: Document, **fields: Any) -> Document:
    return {"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": response, **fields}}


def _schema(**rule: Any) -> Document:
    return {**SCHEMA, "rules": [{**SCHEMA["rules"][0], **rule}]}


@pytest.mark.parametrize(
    "document", [*default_flow_control()], ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_the_defaults_pass(document: Document) -> None:
    assert validate_create(document, CONTEXT) == []


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (SCHEMA, []),
        (_schema(nonResourceRules=[{"verbs": ["*"], "nonResourceURLs": ["/", "/a/*", "/b"]}]), []),
        (
            {"matchingPrecedence": 1, "distinguisherMethod": {"type": "Foo"}},
            [
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                'spec.distinguisherMethod.type: Unsupported value: {"Type":"Foo"}: supported values: "ByNamespace", "ByUser"',
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ],
        ),
        ({**SCHEMA, "matchingPrecedence": 10001}, ["spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"]),
        (
            {**SCHEMA, "rules": [{}]},
            [
                "spec.rules[0].subjects: Required value: subjects must contain at least one value",
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ],
        ),
        (
            _schema(subjects=[{"kind": "Foo"}, {"kind": "User", "group": {"name": "g"}}, {"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}]),
            [
                'spec.rules[0].subjects[0].kind: Unsupported value: "Foo": supported values: "Group", "ServiceAccount", "User"',
                "spec.rules[0].subjects[1].user: Required value: user is required when subject kind is 'User'",
                "spec.rules[0].subjects[1].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                "spec.rules[0].subjects[2].serviceAccount.namespace: Required value: must specify namespace for service account",
            ],
        ),
        (
            _schema(resourceRules=[{"verbs": ["*", "get"], "apiGroups": ["*", ""], "resources": [], "namespaces": ["A"]}]),
            [
                "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                "spec.rules[0].resourceRules[0].apiGroups: Invalid value: [\"*\",\"\"]: if '*' is present, must not specify other api groups",
                "spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
                "spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be '*' or a DNS-1123 label; ",
            ],
        ),
        (
            _schema(nonResourceRules=[{"verbs": ["head"], "nonResourceURLs": ["a", "/a b", "//", "/a*", ""]}]),
            [
                'spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["head"]: supported values: "create", "delete"',
                'spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash',
                'spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a b": must not contain white-space',
                'spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: "//": must not contain double slash',
                'spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: "/a*": wildcard can only do suffix matching',
                'spec.rules[0].nonResourceRules[0].nonResourceURLs[4]: Invalid value: "": must not be empty',
            ],
        ),
    ],
)  # fmt: skip
def test_flow_schemas(spec: Document, problems: list[str]) -> None:
    _assert_found(_object("FlowSchema", spec), problems)


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (_limited({"type": "Reject"}), []),
        (_limited({"type": "Queue", "queuing": QUEUING}, lendablePercent=100, borrowingLimitPercent=0), []),
        ({}, ["spec.type: Required value"]),
        ({"type": "Foo"}, ['spec.type: Unsupported value: "Foo": supported values: "Exempt", "Limited"']),
        ({"type": "Exempt"}, ["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"]),
        ({"type": "Limited", "exempt": {}}, ["spec.exempt: Forbidden", "spec.limited: Required value"]),
        (
            _limited({}, nominalConcurrencyShares=-1, lendablePercent=101, borrowingLimitPercent=-1),
            [
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
                "spec.limited.limitResponse.type: Required value",
            ],
        ),
        (_limited({"type": "Queue"}), ["spec.limited.limitResponse.queuing: Required value"]),
        (_limited({"type": "Reject", "queuing": QUEUING}), ["spec.limited.limitResponse.queuing: Forbidden"]),
        (
            _limited({"type": "Queue", "queuing": {"queues": 10_000_001, "handSize": 3, "queueLengthLimit": -1}}),
            [
                "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive",
                "spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 3: required entropy bits of deckSize 10000001 and handSize 3 "
                "should not be greater than 60",
            ],
        ),
        (
            _limited({"type": "Queue", "queuing": {**QUEUING, "queues": 4}}),
            ["spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (4)"],
        ),
    ],
)  # fmt: skip
def test_priority_levels(spec: Document, problems: list[str]) -> None:
    _assert_found(_object("PriorityLevelConfiguration", spec), problems)


def _assert_found(document: Document, problems: list[str]) -> None:
    found = [str(error) for error in validate_create(document, CONTEXT)]
    assert len(found) == len(problems), found
    assert all(text.startswith(problem) for text, problem in zip(found, problems, strict=True)), found


def test_a_name_is_a_subdomain() -> None:
    (found,) = validate_create(_object("FlowSchema", SCHEMA, "A b"), CONTEXT)
    assert str(found).startswith('metadata.name: Invalid value: "A b": a lowercase RFC 1123 subdomain must consist of')


@pytest.mark.parametrize("kind", ["FlowSchema", "PriorityLevelConfiguration"])
def test_what_an_earlier_version_took_may_stay(kind: str) -> None:
    old = _object(kind, {"type": "Foo"})
    old["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert validate_update(new, old, CONTEXT) == []
