"""Rules for classes and drivers of volumes, and for APIServices, in the words of Kubernetes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.validation.dispatch import validate_create, validate_status_update, validate_update
from dray.validation.errors import ValidationContext

Document = dict[str, Any]
CONTEXT = ValidationContext(trusts_stored=True)
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"
IMMUTABLE = "field is immutable"
BAD_NAME = "name part must consist of alphanumeric characters"


def _named(kind: str, group: str, **fields: Any) -> Document:
    metadata = {"name": "a.example", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, **fields}


OBJECTS: dict[str, Document] = {
    "StorageClass": _named("StorageClass", "storage.k8s.io", provisioner="a.example", volumeBindingMode="Immediate"),
    "VolumeAttributesClass": _named(
        "VolumeAttributesClass", "storage.k8s.io", driverName="a.example", parameters={"a": "b"}
    ),
    "CSIDriver": _named(
        "CSIDriver",
        "storage.k8s.io",
        spec={
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "volumeLifecycleModes": ["Persistent"],
        },
    ),
    "CSINode": _named("CSINode", "storage.k8s.io", spec={"drivers": [{"name": "a.example", "nodeID": "n"}]}),
    "CSIStorageCapacity": _named("CSIStorageCapacity", "storage.k8s.io", storageClassName="c"),
    "VolumeAttachment": _named(
        "VolumeAttachment",
        "storage.k8s.io",
        spec={"attacher": "a.example", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    ),
    "APIService": _named(
        "APIService",
        "apiregistration.k8s.io",
        spec={"group": "x.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
    ),
}
OBJECTS["CSIStorageCapacity"]["metadata"]["namespace"] = "default"
OBJECTS["APIService"]["metadata"]["name"] = "v1.x.example"


def _with(kind: str, fields: Document) -> Document:
    """A valid object with other fields, named by their path; None removes one."""
    made = copy.deepcopy(OBJECTS[kind])
    for path, value in fields.items():
        place = made
        *above, last = path.split(".")
        for step in above:
            place = place.setdefault(step, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return made


@pytest.mark.parametrize("kind", sorted(OBJECTS))
def test_valid_objects_pass(kind: str) -> None:
    made = _with(kind, {})
    assert validate_create(made, CONTEXT) == []
    assert validate_update(_with(kind, {"metadata.labels": {"a": "b"}}), made, CONTEXT) == []


ONE_TERM = [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}]
INLINE = {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.example", "volumeHandle": "h"}}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("StorageClass", {"parameters": {f"k{i}": "" for i in range(512)}}),
        ("StorageClass", {"allowedTopologies": [*ONE_TERM, {"matchLabelExpressions": [{"key": "a", "values": ["c"]}]}]}),
        ("CSIDriver", {"spec.tokenRequests": [{"audience": ""}, {"audience": "a", "expirationSeconds": 600}]}),
        ("CSIDriver", {"spec.volumeLifecycleModes": ["Persistent", "Ephemeral"], "spec.fsGroupPolicy": "File"}),
        ("CSINode", {"spec.drivers": [{"name": "A.example", "nodeID": "n", "topologyKeys": ["a/b"], "allocatable": {"count": 0}}]}),
        ("CSINode", {"spec.drivers": None}),
        ("CSIStorageCapacity", {"capacity": "0", "nodeTopology": {}}),
        ("VolumeAttachment", {"spec.source": {"inlineVolumeSpec": INLINE}}),
        ("APIService", {"metadata.name": "v1.", "spec.group": ""}),
        ("APIService", {"spec.service": {"namespace": "n", "name": "s", "port": 443}, "spec.insecureSkipTLSVerify": True}),
        ("APIService", {"spec.groupPriorityMinimum": 20000, "spec.versionPriority": 1000}),
    ],
)  # fmt: skip
def test_what_kubernetes_takes(kind: str, fields: Document) -> None:
    assert validate_create(_with(kind, fields), CONTEXT) == []


@pytest.mark.parametrize(
    ("kind", "fields", "problems"),
    [
        ("StorageClass", {"parameters": {f"k{i}": "" for i in range(513)}}, ["parameters: Too long: may not be more than 512 bytes"]),
        ("StorageClass", {"parameters": {"k": "x" * 262144}}, ["parameters: Too long: may not be more than 262144 bytes"]),
        ("StorageClass", {"allowedTopologies": ONE_TERM * 2}, ['allowedTopologies[1].matchLabelExpressions: Duplicate value: ""']),
        ("StorageClass", {"allowedTopologies": [{}]}, ['allowedTopologies[0].matchLabelExpressions: Duplicate value: ""']),
        (
            "StorageClass",
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b", "b"]}]}]},
            ['allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"'],
        ),
        (
            "VolumeAttributesClass",
            {"driverName": None, "parameters": None},
            ["driverName: Required value", "parameters: Required value: must contain at least one key/value pair"],
        ),
        ("VolumeAttributesClass", {"driverName": "a b"}, [f'driverName: Invalid value: "a b": {BAD_NAME}']),
        ("VolumeAttributesClass", {"parameters": {"": "b"}}, ['parameters: Invalid value: "": field can not be empty.']),
        (
            "CSIDriver",
            {"spec.fsGroupPolicy": "Foo"},
            ['spec.fsGroupPolicy: Unsupported value: "Foo": supported values: "File", "None", "ReadWriteOnceWithFSType"'],
        ),
        (
            "CSIDriver",
            {"spec.volumeLifecycleModes": ["Foo"]},
            ['spec.volumeLifecycleModes: Unsupported value: "Foo": supported values: "Persistent", "Ephemeral"'],
        ),
        (
            "CSIDriver",
            {"spec.nodeAllocatableUpdatePeriodSeconds": 9},
            ["spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"],
        ),
        (
            "CSIDriver",
            {"spec.serviceAccountTokenInSecrets": True},
            [
                "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no "
                "tokenRequests are specified"
            ],
        ),
        (
            "CSIDriver",
            {"spec.tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}, {"audience": "b", "expirationSeconds": (1 << 32) + 1}]},
            [
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
                'spec.tokenRequests[1].audience: Duplicate value: "a"',
                "spec.tokenRequests[2].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ],
        ),
        (
            "CSINode",
            {"spec.drivers": [{"name": "a.example", "nodeID": "n"}, {"name": "a.example", "nodeID": "x" * 257, "allocatable": {"count": -1}}]},
            [
                f'spec.drivers[1].nodeID: Invalid value: "{"x" * 257}": must be 256 characters or less',
                "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                'spec.drivers[1].name: Duplicate value: "a.example"',
            ],
        ),
        (
            "CSINode",
            {"spec.drivers": [{"topologyKeys": ["a", "a", "b c"]}]},
            [
                "spec.drivers[0].name: Required value",
                "spec.drivers[0].nodeID: Required value",
                'spec.drivers[0]: Duplicate value: "a"',
                f'spec.drivers[0]: Invalid value: "b c": {BAD_NAME}',
            ],
        ),
        (
            "CSIStorageCapacity",
            {"storageClassName": None, "capacity": "-1"},
            [f'storageClassName: Invalid value: "": {SUBDOMAIN}', 'capacity: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            "CSIStorageCapacity",
            {"nodeTopology": {"matchLabels": {"a": "b c"}}},
            ['nodeTopology.matchLabels: Invalid value: "b c": a valid label must be'],
        ),
        (
            "VolumeAttachment",
            {"spec": {}},
            [
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                f'spec.nodeName: Invalid value: "": {SUBDOMAIN}',
                "spec.attacher: Required value",
            ],
        ),
        (
            "VolumeAttachment",
            {"spec.source": {"persistentVolumeName": "v", "inlineVolumeSpec": INLINE}},
            ["spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"],
        ),
        (
            "VolumeAttachment",
            {"spec.source": {"persistentVolumeName": ""}},
            [
                "spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName",
                f'spec.source.persistentVolumeName: Invalid value: "": {SUBDOMAIN}',
            ],
        ),
        (
            "VolumeAttachment",
            {"spec.source": {"inlineVolumeSpec": {**INLINE, "capacity": {"storage": "1"}, "csi": None}}},
            [
                "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec: Required value: must specify a volume type",
            ],
        ),
        ("APIService", {"metadata.name": "v1.y"}, ['metadata.name: Invalid value: "v1.y": must be `spec.version+"."+spec.group`: "v1.x.example"']),
        (
            "APIService",
            {"metadata.name": "v2.", "spec.group": None, "spec.version": "v2"},
            ["spec.group: Required value: only v1 may have an empty group and it better be legacy kube"],
        ),
        (
            "APIService",
            {"spec.groupPriorityMinimum": None, "spec.versionPriority": 1001},
            [
                "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
                "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
            ],
        ),
        (
            "APIService",
            {"spec.caBundle": "YWJj", "spec.insecureSkipTLSVerify": True},
            [
                'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle',
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ],
        ),
        (
            "APIService",
            {"spec.service": {"port": 0}, "spec.caBundle": "YWJj", "spec.insecureSkipTLSVerify": True},
            [
                "spec.service.namespace: Required value",
                "spec.service.name: Required value",
                "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ],
        ),
    ],
)  # fmt: skip
def test_what_is_refused(kind: str, fields: Document, problems: list[str]) -> None:
    found = [str(error) for error in validate_create(_with(kind, fields), CONTEXT)]
    assert len(found) == len(problems), found
    assert all(text.startswith(problem) for text, problem in zip(found, problems, strict=True)), found


@pytest.mark.parametrize(
    ("kind", "fields", "problems"),
    [
        (
            "VolumeAttributesClass",
            {"driverName": "b.example", "parameters": {"a": "c"}},
            ["driverName: Forbidden: updates to driverName are forbidden.", "parameters: Forbidden: updates to parameters are forbidden."],
        ),
        (
            "CSIDriver",
            {"spec.attachRequired": False, "spec.volumeLifecycleModes": ["Ephemeral"]},
            [
                f"spec.attachedRequired: Invalid value: false: {IMMUTABLE}",
                f'spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: {IMMUTABLE}',
            ],
        ),
        ("CSIDriver", {"spec.podInfoOnMount": True}, []),
        (
            "CSINode",
            {"spec.drivers": [{"name": "a.example", "nodeID": "m"}]},
            [f'spec.drivers: Invalid value: {{"Name":"a.example","NodeID":"m","TopologyKeys":null,"Allocatable":null}}: {IMMUTABLE}'],
        ),
        ("CSINode", {"spec.drivers": [{"name": "b.example", "nodeID": "n"}]}, []),
        ("CSINode", {"spec.drivers": [{"name": "a.example", "nodeID": "n", "allocatable": {"count": 3}}]}, []),
        (
            "CSIStorageCapacity",
            {"storageClassName": "d", "nodeTopology": {"matchLabels": {"a": "b"}}},
            [
                f'nodeTopology: Invalid value: {{"matchLabels":{{"a":"b"}}}}: {IMMUTABLE}',
                f'storageClassName: Invalid value: "d": {IMMUTABLE}',
            ],
        ),
        ("CSIStorageCapacity", {"capacity": "1Gi"}, []),
        ("VolumeAttachment", {"spec.nodeName": "m"}, [f"spec: Invalid value: null: {IMMUTABLE}"]),
        ("APIService", {"spec.versionPriority": 2}, []),
    ],
)  # fmt: skip
def test_what_cannot_change(kind: str, fields: Document, problems: list[str]) -> None:
    assert [str(error) for error in validate_update(_with(kind, fields), _with(kind, {}), CONTEXT)] == problems


@pytest.mark.parametrize(
    ("kind", "fields", "problems"),
    [
        ("VolumeAttachment", {"status.attachError": {"message": "x" * 1024, "errorCode": 0}}, []),
        (
            "VolumeAttachment",
            {"status.attachError": {"message": "x" * 1025, "errorCode": -1}, "status.attachmentMetadata": {"k": "x" * 262144}},
            [
                "status.attachmentMetadata: Too long: may not be more than 262144 bytes",
                "status.attachError.message: Too long: may not be more than 1024 bytes",
                "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ],
        ),
        (
            "APIService",
            {"status.conditions": [{"type": "Available", "status": "Yes"}]},
            ['status.conditions[0].status: Unsupported value: "Yes": supported values: "True", "False", "Unknown"'],
        ),
    ],
)  # fmt: skip
def test_statuses(kind: str, fields: Document, problems: list[str]) -> None:
    assert [str(error) for error in validate_status_update(_with(kind, fields), _with(kind, {}), CONTEXT)] == problems


@pytest.mark.parametrize("kind", sorted(OBJECTS))
def test_what_an_earlier_version_took_may_stay(kind: str) -> None:
    spoiled = {
        "StorageClass": {},
        "VolumeAttributesClass": {"parameters": None},
        "CSIDriver": {"spec.fsGroupPolicy": "Foo"},
        "CSINode": {"spec.drivers": [{}]},
        "CSIStorageCapacity": {"storageClassName": "A B"},
        "VolumeAttachment": {"spec": {}},
        "APIService": {"spec.versionPriority": 0},
    }[kind]
    old = _with(kind, spoiled)
    assert validate_update({**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}, old, CONTEXT) == []
