"""No input makes decode, default, convert, drop or validate raise anything but the declared error."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api import core, resource
from dray.api.codec import decode, read_document, shape_document, to_object
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.manifests import read_manifests
from dray.api.prepare_for_write import (
    prepared_create,
    prepared_status_update,
    prepared_update,
)
from dray.api.schemas import TypeRef, schema_for, struct
from dray.api.strategies import Setting, strategy_for
from dray.api.versions import from_storage, to_storage
from dray.features import FeatureGates
from dray.validation import ValidationContext, validate_create, validate_status_update, validate_update

KINDS = [
    ("resource.k8s.io/v1", "ResourceSlice", resource.ResourceSlice),
    ("resource.k8s.io/v1", "ResourceClaim", resource.ResourceClaim),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", resource.ResourceClaimTemplate),
    ("resource.k8s.io/v1", "DeviceClass", resource.DeviceClass),
    ("resource.k8s.io/v1", "DeviceTaintRule", resource.DeviceTaintRule),
    ("resource.k8s.io/v1beta1", "ResourceSlice", resource.ResourceSlice),
    ("resource.k8s.io/v1beta1", "ResourceClaim", resource.ResourceClaim),
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", resource.ResourcePoolStatusRequest),
    ("v1", "Pod", core.Pod),
    ("v1", "Node", core.Node),
    ("apps/v1", "ReplicaSet", None),
    ("v1", "ResourceQuota", core.ResourceQuota),
    ("v1", "Event", core.Event),
    ("coordination.k8s.io/v1", "Lease", core.Lease),
]
GATES = [
    FeatureGates.default(),
    FeatureGates.for_release("1.34"),
    FeatureGates.default().without("DRAConsumableCapacity"),
]
NOW = "2026-01-01T00:00:00Z"

texts = st.sampled_from(
    [
        "a",
        "A_b",
        "gpu.example.com",
        "a/b",
        "a/b/c",
        "1",
        "-1",
        "1Gi",
        "1.5",
        "é",
        "All",
        "ExactCount",
        "NoExecute",
        "Equal",
        "true",
        "((",
        "FromClass",
        "10.0.0.1/24",
        "*",
        "In",
        "Exists",
        "cpu",
    ]
) | st.sampled_from(["", "x" * 70, "device.driver == 'a'", NOW])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def fitting(ref: TypeRef, depth: int = 0) -> st.SearchStrategy[object]:
    """Values of the right type, so that the rules behind decoding are reached."""
    if ref.shape == "scalar":
        return {
            "bool": st.booleans(),
            "int32": st.integers(-2, 40),
            "int64": st.integers(-2, 300),
            "quantity": st.sampled_from(["0", "1", "-1", "1500m", "2Gi", "100u", "20E"]),
            "time": st.just(NOW),
            "microTime": st.just(NOW),
            "any": anything,
        }.get(ref.name, texts)
    if depth > 6:
        return st.none()
    if ref.shape == "struct":
        return documents(ref.name, depth)
    assert ref.item is not None
    if ref.shape == "list":
        return st.lists(fitting(ref.item, depth + 1), max_size=2)
    return st.dictionaries(texts, fitting(ref.item, depth + 1), max_size=2)


def documents(name: str, depth: int = 0) -> st.SearchStrategy[dict[str, object]]:
    fields = struct(name).fields
    return st.deferred(
        lambda: st.fixed_dictionaries({}, optional={f.name: fitting(f.type, depth + 1) for f in fields.values()})
    )


def objects(api_version: str, kind: str) -> st.SearchStrategy[dict[str, object]]:
    schema = schema_for(api_version, kind)
    assert schema is not None
    return documents(schema.name).map(lambda body: {**body, "apiVersion": api_version, "kind": kind})


def stored(document: dict) -> dict | None:
    """As the server keeps it; None if it refuses to read it."""
    try:
        return to_storage(apply_defaults(shape_document(document).document, NOW))
    except DecodeError:
        return None


@pytest.mark.parametrize(("api_version", "kind", "struct_type"), KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_object_is_judged(api_version, kind, struct_type, data):
    new = data.draw(objects(api_version, kind))
    gates = data.draw(st.sampled_from(GATES))
    kept = stored(new)
    if kept is None:
        return
    context = ValidationContext(gates, data.draw(st.sampled_from([None, {}])), api_version)
    setting = Setting(gates, NOW)
    for error in validate_create(prepared_create(kept, setting), context):
        assert str(error)
    old = stored(data.draw(objects(api_version, kind))) or kept
    validate_update(prepared_update(kept, old, setting), old, context)
    if strategy_for(api_version, kind).update_status:
        validate_status_update(prepared_status_update(kept, old, setting), old, context)
    assert json.loads(json.dumps(from_storage(kept, api_version)))
    if struct_type is not None:
        to_object(kept, struct_type)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | anything.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_are_read_or_refused(data):
    for read in (read_document, lambda d: list(read_manifests(d)), lambda d: decode(resource.ResourceSlice, d)):
        with contextlib.suppress(DecodeError):
            read(data)


@settings(max_examples=250, deadline=None)
@given(anything, st.sampled_from(KINDS))
def test_any_value_as_a_document(value, kind):
    api_version, name, _ = kind
    for document in (
        value,
        {"apiVersion": api_version, "kind": name, "metadata": value, "spec": value, "status": value},
    ):
        with contextlib.suppress(DecodeError):
            shape_document(document)
