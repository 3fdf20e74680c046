import contextlib
import json
import time

import msgspec
import pytest

from dray.api import core, resource
from dray.api.codec import decode, encode, read_document, shape_document, to_document, to_object
from dray.api.errors import DecodeError
from dray.api.quantity import Quantity

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default", "labels": {"a": "b"}},
    "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"mem": "1Gi"}}}}
            ],
            "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"mode": None, "list": [1, None]}}}],
        }
    },
}


def text(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


class TestObjects:
    def test_bytes_to_object_and_back(self):
        claim = decode(resource.ResourceClaim, text(CLAIM))
        assert claim.spec.devices.requests[0].exactly.capacity.requests == {"mem": Quantity.parse("1Gi")}
        assert msgspec.json.decode(encode(claim))["spec"] == CLAIM["spec"]
        assert to_object(to_document(claim), resource.ResourceClaim) == claim

    def test_null_is_as_if_absent(self):
        pod = decode(
            core.Pod,
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":null,"ownerReferences":null},"spec":null}',
        )
        assert pod.metadata.name == "p"
        assert pod.metadata.labels == {}
        assert pod.spec == core.PodSpec()

    def test_nulls_inside_driver_parameters_stay(self):
        claim = dict(CLAIM, metadata={"name": "c", "labels": None})
        raw = decode(resource.ResourceClaim, text(claim)).spec.devices.config[0].opaque.parameters
        assert msgspec.json.decode(raw) == {"mode": None, "list": [1, None]}

    def test_an_item_of_a_list_need_not_say_its_kind(self):
        assert decode(resource.ResourceClaim, b'{"metadata":{"name":"c"}}').metadata.name == "c"

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b'{"spec":{"devices":{"requests":{}}}}', r"of type \[\]v1.DeviceRequest"),
            (b'{"spec":{"devices":{"requests":[{"exactly":{"count":"x"}}]}}}', "int64"),
            (
                b'{"spec":{"devices":{"requests":[{"exactly":{"capacity":{"requests":{"m":"x"}}}}]}}}',
                "quantities must match",
            ),
            (b"[]", "expected an object"),
            (b"{", "truncated"),
        ],
    )
    def test_wrong_types_have_one_clear_error(self, data, message):
        with pytest.raises(DecodeError, match=message):
            decode(resource.ResourceClaim, data)

    def test_to_document_puts_in_what_is_always_on_the_wire(self):
        empty = to_document(resource.ResourceClaim(metadata=resource.ObjectMeta(name="c")))
        assert empty["kind"] == "ResourceClaim"
        assert empty["spec"] == {"devices": {"requests": None}}
        assert empty["status"] == {}
        status = resource.AllocatedDeviceStatus(driver="d", pool="p", device="x", data=msgspec.Raw(b'{"a":1}'))
        claim = to_document(resource.ResourceClaim(status=resource.ResourceClaimStatus(devices=(status,))))
        assert claim["status"]["devices"][0]["conditions"] is None
        assert to_object(claim, resource.ResourceClaim).status.devices == (status,)


class TestDocuments:
    def test_unknown_fields_are_named_with_their_path_and_dropped(self):
        sent = {
            **CLAIM,
            "metadata": {"name": "c", "nickname": "x"},
            "spec": {"devices": {"requests": [{"name": "a", "exactly": {"colour": "red"}}]}},
            "extra": 1,
        }
        reading = read_document(text(sent))
        assert reading.unknown_fields == ("metadata.nickname", "spec.devices.requests[0].exactly.colour", "extra")
        assert "extra" not in reading.document
        with pytest.raises(DecodeError) as refused:
            reading.strict()
        assert str(refused.value) == (
            'strict decoding error: unknown field "metadata.nickname", '
            'unknown field "spec.devices.requests[0].exactly.colour", unknown field "extra"'
        )

    def test_a_pod_keeps_what_we_do_not_know(self):
        reading = read_document(b'{"apiVersion":"v1","kind":"Pod","spec":{"futureField":{"a":[1]},"containers":[]}}')
        assert reading.document["spec"]["futureField"] == {"a": [1]}
        assert reading.unknown_fields == ("spec.futureField",)

    def test_duplicate_fields_are_named(self):
        data = (
            b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"a","name" : "b"},'
            b'"spec":{"devices":{"requests":[{"name":"x","name":"y"}]}}}'
        )
        reading = read_document(data)
        assert reading.duplicate_fields == ("metadata.name", "spec.devices.requests[0].name")
        assert reading.document["metadata"]["name"] == "b"

    def test_quotes_in_strings_are_no_duplicates(self):
        data = b'{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"\\"x\\": \\"y\\":","b":"\\u0022:"}}'
        assert read_document(data).duplicate_fields == ()

    @pytest.mark.parametrize("escaped", ["\\u0022:", "\\u003a", "\\u003A", "\\\\u003a", "\\\\"])
    def test_escapes_in_strings_hide_no_duplicates(self, escaped):
        start = b'{"apiVersion":"v1","kind":"ConfigMap","data":{"b":"'
        reading = read_document(start + escaped.encode() + b'", "a":"1","a":"2"}}')
        assert reading.duplicate_fields == ("data.a",)

    def test_quantities_and_times_take_their_normal_form(self):
        sent = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
            "spec": {"devices": [{"name": "d", "capacity": {"a": {"value": 1000}, "b": {"value": "1.50"}, "c": {}}}]},
        }
        document = read_document(text(sent)).document
        assert document["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
        values = {key: entry["value"] for key, entry in document["spec"]["devices"][0]["capacity"].items()}
        assert values == {"a": "1k", "b": "1500m", "c": "0"}

    def test_case_matters(self):
        assert read_document(b'{"apiVersion":"v1","kind":"Pod","metadata":{"Name":"x"}}').unknown_fields == (
            "metadata.Name",
        )

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ({"kind": "Pod"}, "missing"),
            ({"apiVersion": "v1"}, "missing"),
            ({"apiVersion": "v1", "kind": "Nope"}, 'no kind "Nope"'),
            ({"apiVersion": 1, "kind": "Pod"}, "apiVersion must be a string"),
            ([], "expected an object"),
            ({"apiVersion": "v1", "kind": "Pod", "spec": []}, "array"),
            ({"apiVersion": "v1", "kind": "Pod", "spec": {"hostNetwork": "yes"}}, "spec.hostNetwork"),
            ({"apiVersion": "v1", "kind": "Pod", "spec": {"priority": 2**31}}, "spec.priority"),
            ({"apiVersion": "v1", "kind": "Pod", "spec": {"priority": 1.0}}, "spec.priority"),
            ({"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "yesterday"}}, "creationTimestamp"),
            ({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}, "metadata.labels.a"),
            ({"apiVersion": "v1", "kind": "Secret", "data": {"a": "!"}}, "base64"),
        ],
    )
    def test_what_cannot_be_read(self, document, message):
        with pytest.raises(DecodeError) as refused:
            shape_document(document)
        assert message in str(refused.value)


class TestHostileInput:
    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b"[" * 1_000_000, id="deep-lists"),
            pytest.param(b'{"a":' * 1_000_000, id="deep-objects"),
            pytest.param(b"\xff\xfe", id="not-utf8"),
            pytest.param(b'{"a":"\xff"}', id="not-utf8-in-string"),
            pytest.param(b'{"a":"\\ud800"}', id="lone-surrogate"),
            pytest.param(b'{"a":NaN}', id="nan"),
            pytest.param(b'{"a":1e999}', id="huge-float"),
            pytest.param(b'{"a":' + b"9" * 100_000 + b"}", id="huge-integer"),
            pytest.param(b"", id="nothing"),
            pytest.param(b'{"a":1}{', id="trailing"),
        ],
    )
    def test_is_refused_with_one_error_in_bounded_time(self, data):
        started = time.perf_counter()
        with pytest.raises(DecodeError):
            read_document(data)
        with contextlib.suppress(DecodeError):  # the fast way passes over fields it does not know
            decode(resource.ResourceClaim, data)
        assert time.perf_counter() - started < 20

    def test_ten_megabytes_in_a_string_are_just_a_string(self):
        document = {**CLAIM, "metadata": {"name": "x" * 10_000_000}}
        assert len(read_document(text(document)).document["metadata"]["name"]) == 10_000_000

    def test_positions_point_at_the_mistake(self):
        with pytest.raises(DecodeError) as refused:
            read_document(b'{\n  "a": 1,\n  "b": oops\n}')
        assert (refused.value.line, refused.value.column) == (3, 8)

    def test_a_size_limit_holds(self):
        with pytest.raises(DecodeError, match="the limit is 10"):
            read_document(b'{"a": "0123456789"}', max_bytes=10)


def test_schemas_of_custom_resources_keep_their_form():
    """`items` and `additionalProperties` hold a schema, a list of schemas or a boolean, without a type around it."""
    schema = {
        "type": "object",
        "properties": {
            "one": {"type": "array", "items": {"type": "object", "maximum": 3}},
            "many": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "open": {"type": "object", "additionalProperties": True},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    names = {"plural": "ks", "kind": "K"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "a.b", "scope": "Namespaced", "names": names, "versions": versions}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ks.a.b"}}
    shaped = shape_document({**crd, "spec": spec})
    assert shaped.document["spec"] == spec
    assert shaped.unknown == ()
