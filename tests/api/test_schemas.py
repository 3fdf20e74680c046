"""The table of field names against our own structs: where both know a type, they know the same fields."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dray.api import core, resource, schemas
from dray.api.schemas import known_kinds, resource_descriptions, schema_for, struct, struct_names
from dray.api.scheme import Version, served

WHOLE = [
    ("resource.k8s.io/v1", "ResourceSlice", resource.ResourceSlice),
    ("resource.k8s.io/v1", "ResourceClaim", resource.ResourceClaim),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", resource.ResourceClaimTemplate),
    ("resource.k8s.io/v1", "DeviceClass", resource.DeviceClass),
    ("resource.k8s.io/v1", "DeviceTaintRule", resource.DeviceTaintRule),
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", resource.ResourcePoolStatusRequest),
]
VIEWS = [("v1", "Pod", core.Pod), ("v1", "Node", core.Node), ("v1", "Event", core.Event)]


def fields_by_path(struct_type: type, path: str = "") -> dict[str, set[str]]:
    info = msgspec.inspect.type_info(struct_type)
    found: dict[str, set[str]] = {}

    def visit(node: object, path: str) -> None:
        if isinstance(node, msgspec.inspect.StructType):
            found[path] = {field.encode_name for field in node.fields} | ({node.tag_field} if node.tag_field else set())
            for field in node.fields:
                visit(field.type, f"{path}.{field.encode_name}")
        elif isinstance(node, msgspec.inspect.UnionType):
            for member in node.types:
                visit(member, path)
        elif isinstance(node, msgspec.inspect.VarTupleType):
            visit(node.item_type, path)
        elif isinstance(node, msgspec.inspect.DictType):
            visit(node.value_type, path)

    visit(info, path)
    return found


def table_fields_by_path(api_version: str, kind: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def visit(name: str, path: str) -> None:
        schema = struct(name)
        found[path] = set(schema.fields)
        for field in schema.fields.values():
            inner = field.type
            while inner.item is not None:
                inner = inner.item
            if inner.shape == "struct" and path.count(".") < 12:
                visit(inner.name, f"{path}.{field.name}")

    schema = schema_for(api_version, kind)
    assert schema is not None
    visit(schema.name, "")
    return found


@pytest.mark.parametrize(("api_version", "kind", "struct_type"), WHOLE)
def test_our_structs_are_complete(api_version, kind, struct_type):
    ours, table = fields_by_path(struct_type), table_fields_by_path(api_version, kind)
    assert ours == {path: names for path, names in table.items() if path in ours}


@pytest.mark.parametrize(("api_version", "kind", "struct_type"), VIEWS)
def test_our_views_name_real_fields(api_version, kind, struct_type):
    ours, table = fields_by_path(struct_type), table_fields_by_path(api_version, kind)
    # One struct stands for keys of ConfigMaps and Secrets and for whole ones, which have no key.
    whole = {path: {"key"} for path in ours if path.endswith(("envFrom.configMapRef", "envFrom.secretRef"))}
    strange = {path: names - table.get(path, set()) - whole.get(path, set()) for path, names in ours.items()}
    assert {path: names for path, names in strange.items() if names} == {}


def test_every_type_can_be_read():
    assert len(known_kinds()) > 50
    for name in struct_names():
        for field in struct(name).fields.values():
            inner = field.type
            while inner.item is not None:
                inner = inner.item
            assert inner.shape == "scalar" or struct(inner.name)


def test_every_field_of_kubernetes_has_a_protobuf_number():
    own = schemas._dray_types()
    for name in struct_names():
        fields = [field for field in struct(name).fields.values() if field.name not in ("apiVersion", "kind")]
        numbered = [field for field in fields if field.numbers]
        assert len({field.numbers for field in numbered}) == len(numbered), name
        bare = {field.name for field in fields if not field.numbers}
        assert bare <= own.get(name, {"fields": {}})["fields"].keys(), name


def test_the_description_reaches_the_newest_fields():
    assert struct("core.v1.NodeStatus").fields["declaredFeatures"].numbers == (14,)
    assert struct("core.v1.Volume").fields["hostPath"].numbers == (2, 1)
    assert struct("resource.v1.DeviceToleration").fields["operator"].default == "Equal"
    assert len(known_kinds()) > 90


def list_types(name, seen=()):
    """Every list below a type, with its list type."""
    for field in struct(name).fields.values():
        inner = field.type
        if inner.shape == "list":
            yield f"{name}.{field.name}", field.list_type
        while inner.item is not None:
            inner = inner.item
        if inner.name and inner.shape != "scalar" and inner.name not in (*seen, name):
            yield from list_types(inner.name, (*seen, name))


def test_lists_of_slices_are_atomic():
    found = dict(list_types("resource.v1.ResourceSliceSpec"))
    assert {"resource.v1.ResourceSliceSpec.devices", "resource.v1.Device.taints"} <= found.keys()
    # The KEP's lists are atomic; a later one, of names, is a set.
    assert {path for path, kind in found.items() if kind != "atomic"} == {
        "resource.v1.ResourceSliceSpec.skipNodeOperations"
    }


def test_lists_of_the_status_of_a_claim_have_keys():
    status = struct("resource.v1.ResourceClaimStatus").fields
    assert (status["reservedFor"].list_type, status["reservedFor"].list_keys) == ("map", ("uid",))
    assert status["devices"].list_type == "map"
    assert set(status["devices"].list_keys) == {"driver", "pool", "device", "shareID"}


def test_lists_know_their_keys():
    pod = struct("core.v1.PodSpec").fields
    assert pod["containers"].merge_key == "name"
    assert pod["containers"].list_keys == ("name",)
    assert pod["resourceClaims"].retain_keys
    claim = struct("resource.v1.ResourceClaimStatus").fields
    assert claim["devices"].list_type == "map"
    assert claim["devices"].merge_key is None
    assert struct("core.v1.Pod").openapi_name == "io.k8s.api.core.v1.Pod"


def test_kinds_that_are_not_there_are_not_remembered():
    before = len(schemas._by_kind)
    assert [schemas.schema_for("v1", f"NoSuchKind{number}") for number in range(100)] == [None] * 100
    assert schemas.schema_for("v1", "Pod") is schemas.schema_for("v1", "Pod")
    assert len(schemas._by_kind) <= before + 1


def test_the_generated_structs_are_current():
    script = Path(__file__).parent.parent.parent / "scripts" / "generate_api.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_every_resource_of_kubernetes_can_be_a_row_of_the_scheme():
    for key, described in resource_descriptions().items():
        row = served(key, tuple(Version(name) for name in described["versions"]))
        assert key == f"{row.group}/{row.plural}"
        assert row.path(version=row.versions[-1].name).endswith(f"/{row.versions[-1].name}/{row.plural}")
        for version in row.versions:
            schema = schema_for(row.api_version(version.name), row.kind)
            assert schema is not None
            assert schema_for(row.api_version(version.name), row.list_kind) is not None or not row.is_stored


def test_the_columns_of_kubectl_get_are_described():
    assert [column.name for column in served("apps/statefulsets").columns][:3] == ["Name", "Ready", "Age"]
    assert [column.name for column in served("rbac.authorization.k8s.io/roles").columns] == ["Name", "Created At"]
