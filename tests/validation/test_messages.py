"""The words of errors: users know them from Kubernetes and search for them."""

import pytest
from tests.builders.manifests import a_claim, a_pod, a_request, a_slice

from dray.api.codec import shape_document
from dray.api.defaults import apply_defaults
from dray.api.prepare_for_write import prepared_create
from dray.api.strategies import Setting
from dray.api.versions import to_storage
from dray.features import FeatureGates
from dray.validation import FieldError, ValidationContext, invalid_message, validate_create, validate_update

V1 = "resource.k8s.io/v1"


def claim_with(request: dict | None = None, **devices: object) -> dict:
    document = a_claim("c", request or a_request("gpu"))
    document["spec"]["devices"] |= devices
    return document


def slice_with(*devices: dict, **spec: object) -> dict:
    return _changed(a_slice("s", *devices, node="n"), spec)


def slice_with_policy(policy: dict, **device: object) -> dict:
    capacity = {"m": {"value": "8", "requestPolicy": policy}}
    return slice_with({"name": "d", "allowMultipleAllocations": True, "capacity": capacity} | device)


CAPACITIES = {f"c{n}": {"value": "1"} for n in range(13)}
ELEVEN = {
    "m": {"value": "80", "requestPolicy": {"default": "1", "validValues": [str(n) for n in range(1, 12)]}},
}
POLICY_NEEDS_SHARING = "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"


POLICY_NEEDS_DEFAULT = (
    "spec.devices[0].capacity[m].requestPolicy.default: Required value: required when validValues is defined"
)
RANGE_NEEDS_DEFAULT = POLICY_NEEDS_DEFAULT.replace("validValues", "validRange")


def _changed(document: dict, spec: dict) -> dict:
    document["spec"] |= spec
    return document


def said(document: dict, gates: FeatureGates | None = None) -> list[str]:
    gates = gates or FeatureGates.default()
    stored = to_storage(apply_defaults(shape_document(document).strict(), "2026-01-01T00:00:00Z"))
    context = ValidationContext(gates, {}, document["apiVersion"])
    return [
        str(error)
        for error in validate_create(prepared_create(stored, Setting(gates, "2026-01-01T00:00:00Z")), context)
    ]


def exactly(**ask: object) -> dict:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu", **ask}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            claim_with({"name": "gpu", "exactly": {}}),
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
        ),
        (
            claim_with(exactly(count=-1)),
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (
            claim_with(exactly(allocationMode="Some")),
            'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": '
            'supported values: "All", "ExactCount"',
        ),
        (
            claim_with(exactly(adminAccess=True)),
            "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the "
            "`resource.kubernetes.io/admin-access: true` label on the containing namespace",
        ),
        (
            claim_with(exactly(selectors=[{"cel": {"expression": "true"}}] * 33)),
            "spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items",
        ),
        (
            claim_with(exactly(selectors=[{"cel": {"expression": "x" * 10241}}])),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        ),
        (
            claim_with(constraints=[{"requests": ["nope"], "matchAttribute": "a/b"}]),
            'spec.devices.constraints[0].requests[0]: Invalid value: "nope": must be the name of a request in the claim or '
            "the name of a request and a subrequest separated by '/'",
        ),
        (slice_with(driver=""), "spec.driver: Required value"),
        (
            slice_with(allNodes=True),
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, '
            "`perDeviceNodeSelection` is required, but multiple fields are set",
        ),
        (
            slice_with({"name": "d", "attributes": {"a": {}}}),
            'spec.devices[0].attributes[a]: Invalid value: "": must specify one of: `int`, `bool`, `string`, `version`, '
            "`ints`, `bools`, `strings`, `versions`",
        ),
        (slice_with({"name": "d"}, {"name": "d"}), 'spec.devices[1]: Duplicate value: "d"'),
        (
            slice_with({"name": "d", "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "x"}}}}),
            'spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityKey: Not found: "x"',
        ),
        (
            slice_with(
                {
                    "name": "d",
                    "capacity": {"x": {"value": "1"}},
                    "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "other.example.org/x"}},
                }
            ),
            'spec.devices[0].nodeAllocatableResourceMappings[cpu].capacityKey: Not found: "other.example.org/x"',
        ),
        (
            slice_with(
                {
                    "name": "d",
                    "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}},
                    "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
                }
            ),
            'spec.devices[0]: Invalid value: "{`nodeAllocatableResources`, `nodeAllocatableResourceMappings`}": '
            "nodeAllocatableResources and nodeAllocatableResourceMappings say the same thing: use one of them",
        ),
        (
            slice_with({"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"accountingPolicy": "Twice"}}}),
            'spec.devices[0].nodeAllocatableResourceMappings[cpu].accountingPolicy: Unsupported value: "Twice": '
            'supported values: "AddPerClaim", "AddPerReference", "ConsumeFrom", "Max"',
        ),
        (
            slice_with({"name": "d", "attributes": {f"a{n}": {"int": n} for n in range(20)}, "capacity": CAPACITIES}),
            "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        ),
        (
            slice_with_policy({"default": "1", "validValues": [str(n) for n in range(1, 12)]}, capacity=ELEVEN),
            "spec.devices[0].capacity[m].requestPolicy.validValues: Too many: 11: must have at most 10 items",
        ),
        (
            slice_with(
                {"name": "d", "nodeAllocatableResourceMappings": {"example.com/x": {"allocationMultiplier": "1"}}}
            ),
            'spec.devices[0].nodeAllocatableResourceMappings[example.com/x]: Invalid value: "example.com/x": '
            "must be a node allocatable resource name",
        ),
        (
            claim_with(constraints=[{"distinctAttribute": "interfaceName"}]),
            'spec.devices.constraints[0].distinctAttribute: Invalid value: "interfaceName": a fully qualified name must be a '
            "domain and a name separated by a slash",
        ),
        (
            a_pod("p", resourceClaims=[{"name": "c"}]),
            'spec.resourceClaims[0]: Invalid value: {"Name":"c","ResourceClaimName":null,"ResourceClaimTemplateName":null}: '
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ),
        (
            claim_with(exactly(capacity={"requests": {"m": "4"}, "limits": {"m": "2"}})),
            'spec.devices.requests[0].exactly.capacity.limits[m]: Invalid value: "2": '
            "must be greater than or equal to the request of 4",
        ),
        (
            claim_with(exactly(capacity={"limits": {"m": "-1"}})),
            'spec.devices.requests[0].exactly.capacity.limits[m]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            slice_with_policy({"strategy": "Sometimes"}),
            'spec.devices[0].capacity[m].requestPolicy.strategy: Unsupported value: "Sometimes": '
            'supported values: "AlwaysConsumed", "BlockOrShare", "ConsumedOrNever"',
        ),
        (
            slice_with_policy({"strategy": "BlockOrShare", "default": "1"}),
            "spec.devices[0].capacity[m].requestPolicy.default: Forbidden: may not be set with strategy BlockOrShare",
        ),
        (
            slice_with_policy({"strategy": "ConsumedOrNever", "validValues": ["1", "1"]}),
            'spec.devices[0].capacity[m].requestPolicy.validValues[1]: Duplicate value: "1"',
        ),
        (
            slice_with_policy({"zeroConsumption": True, "validValues": ["0"]}),
            "spec.devices[0].capacity[m].requestPolicy.validValues: Forbidden: may not be set with zeroConsumption",
        ),
        (slice_with_policy({"default": "1"}, allowMultipleAllocations=False), POLICY_NEEDS_SHARING),
        (slice_with_policy({"default": "1"}, allowMultipleAllocations=None), POLICY_NEEDS_SHARING),
        (
            slice_with_policy({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}),
            "spec.devices[0].capacity[m].requestPolicy: Forbidden: exactly one policy can be specified, "
            'cannot specify "validValues" and "validRange" at the same time',
        ),
    ],
)
def test_words(document, message):
    assert message in said(document)


def test_equal_amounts_in_valid_values_are_told_apart_by_their_spelling():
    def policy(*values: str) -> dict:
        entry = {"value": "8", "requestPolicy": {"default": values[0], "validValues": list(values)}}
        return slice_with({"name": "d", "allowMultipleAllocations": True, "capacity": {"m": entry}})

    assert said(policy("1", "1000m")) == []
    assert said(policy("1.0", "1", "2")) == []
    assert len(said(policy("1k", "1000"))) == 3, "a duplicate, and both above the capacity"
    whole = FeatureGates.default().without("DRAFractionalCapacityRange")
    assert said(policy("1", "1000m"), whole) == [
        'spec.devices[0].capacity[m].requestPolicy.validValues[1]: Duplicate value: "1000m"'
    ]


class TestDownwardAttributes:
    def pod(self, **source: object) -> dict:
        variable = {"name": "E", "valueFrom": source}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": [variable]}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
            },
        }

    REFERENCE = {"claimName": "gpu", "requestName": "r", "attribute": "resource.kubernetes.io/pciBusID"}
    PATH = "spec.containers[0].env[0].valueFrom"

    @pytest.mark.parametrize("attribute", ["resource.kubernetes.io/pciBusID", "model", "made.up.example.org/anything"])
    def test_a_reference_to_a_claim_of_the_pod(self, attribute):
        assert said(self.pod(resourceSliceAttributeRef=self.REFERENCE | {"attribute": attribute})) == []

    @pytest.mark.parametrize(
        ("change", "field", "text"),
        [
            ({"claimName": ""}, "claimName", "Required value"),
            ({"claimName": "Gpu"}, "claimName", 'Invalid value: "Gpu": a lowercase RFC 1123 label must consist of'),
            ({"claimName": "other"}, "claimName", 'Not found: "other"'),
            ({"requestName": ""}, "requestName", "Required value"),
            ({"requestName": "R"}, "requestName", 'Invalid value: "R": a lowercase RFC 1123 label must consist of'),
            ({"attribute": ""}, "attribute", "Required value"),
        ],
    )
    def test_wrong_references(self, change, field, text):
        found = said(self.pod(resourceSliceAttributeRef=self.REFERENCE | change))
        assert found[0].startswith(f"{self.PATH}.resourceSliceAttributeRef.{field}: {text}")

    def test_a_reference_is_never_optional(self):
        reading = shape_document(self.pod(resourceSliceAttributeRef=self.REFERENCE | {"optional": True}))
        assert reading.unknown_fields == (f"{self.PATH}.resourceSliceAttributeRef.optional",)

    def test_one_source_only(self):
        both = said(self.pod(resourceSliceAttributeRef=self.REFERENCE, fieldRef={"fieldPath": "metadata.name"}))
        assert both == [f'{self.PATH}: Invalid value: "": may not have more than one field specified at a time']

    def volume(self, **item):
        pod = self.pod(fieldRef={"fieldPath": "metadata.name"})
        items = [{"path": "x", **item}]
        pod["spec"]["volumes"] = [
            {"name": "a", "downwardAPI": {"items": items}},
            {"name": "b", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
        ]
        return pod

    def test_files_of_volumes(self):
        paths = ("spec.volumes[0].downwardAPI.items[0]", "spec.volumes[1].projected.sources[0].downwardAPI.items[0]")
        assert said(self.volume(resourceSliceAttributeRef=self.REFERENCE)) == []
        both = said(self.volume(resourceSliceAttributeRef=self.REFERENCE, fieldRef={"fieldPath": "metadata.name"}))
        text = 'Invalid value: "": may not have more than one field specified at a time'
        assert both == [f"{path}: {text}" for path in paths]
        wrong = said(self.volume(resourceSliceAttributeRef=self.REFERENCE | {"attribute": ""}))
        assert wrong == [f"{path}.resourceSliceAttributeRef.attribute: Required value" for path in paths]
        outside = said(self.volume(resourceSliceAttributeRef=self.REFERENCE, path="../x"))
        assert outside == [
            f"{path}.path: Invalid value: \"../x\": must be a relative path without '..'" for path in paths
        ]
        off = FeatureGates.default().without("DRADownwardDeviceAttributes")
        assert all(
            "DRADownwardDeviceAttributes" in text
            for text in said(self.volume(resourceSliceAttributeRef=self.REFERENCE), off)
        )

    @pytest.mark.parametrize(
        "gates",
        [FeatureGates.default().without("DRADownwardDeviceAttributes"), FeatureGates.for_release("1.34")],
        ids=["off", "release-without-it"],
    )
    def test_without_its_gate(self, gates):
        (message,) = said(self.pod(resourceSliceAttributeRef=self.REFERENCE), gates)
        assert "DRADownwardDeviceAttributes" in message


@pytest.mark.parametrize(
    "document",
    [
        claim_with(exactly(capacity={"requests": {"m": "4"}, "limits": {"m": "4", "n": "1"}})),
        slice_with_policy({"zeroConsumption": True}),
        slice_with_policy({"strategy": "AlwaysConsumed", "default": "1"}),
        slice_with_policy({"strategy": "BlockOrShare", "validRange": {"min": "1", "step": "2"}}),
        slice_with_policy({"strategy": "ConsumedOrNever", "validValues": ["1", "2"]}),
    ],
)
def test_strategies_and_limits_of_capacities(document):
    assert said(document) == []
    gates = FeatureGates.for_release("1.37")
    assert said(document, gates) in ([], [POLICY_NEEDS_DEFAULT], [RANGE_NEEDS_DEFAULT]), "unknown to Kubernetes"


def test_immutable_spec():
    old = shape_document(claim_with()).document
    new = shape_document(claim_with(exactly(count=2))).document
    (error,) = validate_update(new, old, ValidationContext())
    assert str(error) == "spec: Invalid value: null: field is immutable"


@pytest.mark.parametrize("field", ["driver", "nodeName", "pool.name"])
def test_a_slice_stays_with_its_driver_pool_and_node(field):
    old = shape_document(slice_with("d0")).document
    head, _, name = field.rpartition(".")
    new = shape_document(slice_with("d0")).document
    (new["spec"][head] if head else new["spec"])[name] = "other"
    (error,) = validate_update(new, old, ValidationContext())
    assert str(error) == f'spec.{field}: Invalid value: "other": field is immutable'


@pytest.mark.parametrize("generation", [0, 1, 9])
def test_the_generation_of_a_pool_may_go_up_and_down(generation):
    old, new = (shape_document(slice_with("d0")).document for _ in range(2))
    old["spec"]["pool"]["generation"] = 5
    new["spec"]["pool"]["generation"] = generation
    assert validate_update(new, old, ValidationContext()) == []


def test_without_shares_a_constraint_needs_match_attribute():
    """The server has dropped `distinctAttribute`."""
    off = FeatureGates.default().without("DRAConsumableCapacity")
    apart = claim_with(constraints=[{"distinctAttribute": "a.example.com/b"}])
    assert said(apart) == []
    assert said(apart, off) == ["spec.devices.constraints[0].matchAttribute: Required value"]


def test_config_maps_and_secrets_have_a_size_and_may_be_fixed():
    def a_map(kind="ConfigMap", **fields):
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "m", "namespace": "default"}, **fields}

    def changed(new, old):
        return [str(error) for error in validate_update(new, old, ValidationContext())]

    assert said(a_map(data={"a": "x" * (1 << 20)})) == []
    assert said(a_map(data={"a": "x" * ((1 << 20) + 1)})) == ["[]: Too long: may not be more than 1048576 bytes"]
    big = said(a_map("Secret", data={"a": "AAAA" * 400_000}))
    assert big == ["data: Too long: may not be more than 1048576 bytes"]
    (key,) = said(a_map(data={"a b": "x"}))
    assert key.startswith('data[a b]: Invalid value: "a b": a valid config key must consist of')
    fixed = a_map(immutable=True, data={"a": "b"})
    rule = "Forbidden: field is immutable when `immutable` is set"
    assert changed(fixed, fixed) == []
    assert changed({**fixed, "data": {}}, fixed) == [f"data: {rule}"]
    assert changed({**fixed, "immutable": False}, fixed) == [f"immutable: {rule}"]
    assert changed(a_map("Secret", type="b"), a_map("Secret", type="a")) == [
        'type: Invalid value: "b": field is immutable'
    ]


def test_the_message_of_the_answer():
    errors = [
        FieldError("FieldValueRequired", "a"),
        FieldError("FieldValueRequired", "a"),
        FieldError("FieldValueInvalid", "b", {"x": [1]}, "why"),
    ]
    assert invalid_message("ResourceClaim", "resource.k8s.io", "c", errors[:2]) == (
        'ResourceClaim.resource.k8s.io "c" is invalid: a: Required value'
    )
    assert invalid_message("Pod", "", "p", errors) == (
        'Pod "p" is invalid: [a: Required value, b: Invalid value: {"x":[1]}: why]'
    )


def test_a_template_that_changed_is_shown_in_the_form_that_kubernetes_keeps():
    def a_template(request: str) -> dict:
        requests = [{"name": request, "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "namespace": "default", "resourceVersion": "1", "uid": "u"},
            "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": requests}}},
        }

    (error,) = validate_update(a_template("new"), a_template("old"), ValidationContext())
    assert str(error) == (
        'spec: Invalid value: {"labels":{"a":"b"},"Spec":{"Devices":{"Requests":[{"Name":"new","Exactly":{'
        '"DeviceClassName":"c","Selectors":null,"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,'
        '"Tolerations":null,"Capacity":null,"DerivedAttributes":null},"FirstAvailable":null}],"Constraints":null,'
        '"Config":null}}}: field is immutable'
    )
