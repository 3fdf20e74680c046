"""The shape of every kind that Kubernetes serves: the one description from which the rest is derived.

`kubernetes/GROUP.VERSION.json` describes the types of one version of a group, and `kubernetes/resources.json` the resources.
`scripts/describe_kubernetes.py` writes both from Kubernetes' source. `dray.json` adds the fields that only Dray has.

A type has `fields`, a map from JSON name to one line of words, and `atomic` where server-side apply replaces the whole
object. The words of a field are, in this order:

- its protobuf number; `2.1` where the field belongs to an embedded struct with number 2; `-` where it has none
- its type: a scalar (`string`, `bool`, `int32`, `int64`, `float`, `quantity`, `time`, `microTime`, `intOrString`, `bytes`,
  `any`), the name of a type, or one of these behind `[]` (a list) or `{}` (a map with string keys)
- `pointer`, `omitempty`, `omitzero`: how Kubernetes declares the field, which decides how an empty value is written
- `required` where a client must send the field
- `list=set` or `list=map:KEYS` where a list is not atomic; `atomic` where a map is
- `merge=KEY` where strategic merge merges the list, with no KEY for a list of scalars; `retainKeys` where it has that strategy
- `default=JSON` where Kubernetes declares the value that the server fills in; other defaults are code (`dray.api.defaults`)

A package is read when one of its types is first needed. Rules about values live in `dray.validation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from typing import Any, Literal

import msgspec

SCALARS = frozenset(
    ("string", "bool", "int32", "int64", "float", "quantity", "time", "microTime", "intOrString", "bytes", "any")
)
# Scalars that Go declares as structs, which `omitempty` does not leave out.
_GO_STRUCTS = frozenset(("quantity", "time", "microTime", "intOrString", "any"))

# Types of CustomResourceDefinitions that hold a schema or something else; JSON shows what they hold, without the type around it.
SCHEMA_PROPS = "apiextensions.v1.JSONSchemaProps"
SCHEMA_OR_OTHER = {
    f"{SCHEMA_PROPS}OrArray": "jSONSchemas",
    f"{SCHEMA_PROPS}OrBool": "allows",
    f"{SCHEMA_PROPS}OrStringArray": "property",
}

ListType = Literal["atomic", "set", "map"]
# The value that the server writes for a field that is not set.
Absent = Literal["null", "zero", "empty object"]


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A parsed type text."""

    shape: Literal["scalar", "struct", "list", "map"]
    name: str  # of the scalar or the struct; of the innermost one for lists and maps
    item: TypeRef | None = None  # what a list or map holds


@dataclass(frozen=True, slots=True)
class FieldSchema:
    name: str
    type: TypeRef
    required: bool
    is_pointer: bool  # whether absent and zero differ
    list_type: ListType
    list_keys: tuple[str, ...]
    atomic: bool  # whether server-side apply replaces a map as a whole
    merge_key: str | None  # None: strategic merge replaces the value; "": merges a list of scalars
    retain_keys: bool
    numbers: tuple[int, ...]  # in protobuf: the numbers of the embedded structs around the field, then its own
    written_when_absent: Absent | None  # None: the field is left out
    drops_empty: bool  # whether false, 0, "", [] and {} are left out
    default: Any  # the declared default; None if there is none


@dataclass(frozen=True, slots=True)
class StructSchema:
    name: str
    fields: dict[str, FieldSchema]
    atomic: bool

    @property
    def openapi_name(self) -> str:
        """`core.v1.Pod` as it is called in Kubernetes' OpenAPI documents."""
        return _OPENAPI_PACKAGES.get(self.name.partition(".")[0], "io.k8s.api.") + self.name


_OPENAPI_PACKAGES = {
    "meta": "io.k8s.apimachinery.pkg.apis.",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.",
    "apiregistration": "io.k8s.kube-aggregator.pkg.apis.",
}
# Groups whose package is not called like the first word of the group.
_PACKAGES = {"": "core", "internal.apiserver.k8s.io": "apiserverinternal"}
# Packages without resources of their own.
_SHARED_PACKAGES = ("meta.v1", "admission.v1")


# --- reading the description -----------------------------------------------------------------------------------------


def _text(name: str) -> bytes:
    text = get_data(__package__, name)
    assert text is not None
    return text


@cache
def resource_descriptions() -> dict[str, dict[str, Any]]:
    """Every resource of a Kubernetes control plane, by `GROUP/PLURAL`."""
    described: dict[str, dict[str, Any]] = msgspec.json.decode(_text("kubernetes/resources.json"))
    return described


@cache
def _dray_types() -> dict[str, dict[str, Any]]:
    added: dict[str, dict[str, Any]] = msgspec.json.decode(_text("dray.json"))
    return added


@cache
def _kubernetes_types(package: str) -> dict[str, msgspec.Raw]:
    """Texts by short name: most types of a package are never asked for."""
    return msgspec.json.decode(_text(f"kubernetes/{package}.json"), type=dict[str, msgspec.Raw])


def _short_names(package: str) -> Iterator[str]:
    known = _kubernetes_types(package)
    yield from known
    for name in _dray_types():
        owner, _, short = name.rpartition(".")
        if owner == package and short not in known:
            yield short


def _type(package: str, short: str) -> dict[str, Any] | None:
    """One type of a package, with Dray's own fields among Kubernetes'."""
    text, extra = _kubernetes_types(package).get(short), _dray_types().get(f"{package}.{short}")
    known: dict[str, Any] | None = msgspec.json.decode(text) if text is not None else None
    if extra is None:
        return known
    known = known or {"fields": {}}
    return {**known, **extra, "fields": dict(sorted({**known["fields"], **extra["fields"]}.items()))}


@cache
def _package_names() -> dict[str, str]:
    """apiVersion to package: `resource.k8s.io/v1` to `resource.v1`."""
    found = {}
    for row in resource_descriptions().values():
        group = row["group"]
        prefix = _PACKAGES.get(group) or group.partition(".")[0]
        for version in row["versions"]:
            found[f"{group}/{version}" if group else version] = f"{prefix}.{version}"
    return found


# --- kinds and types -------------------------------------------------------------------------------------------------


@cache
def known_kinds() -> tuple[tuple[str, str], ...]:
    """Every (apiVersion, kind) that a control plane serves, those of subresources and the server's own included."""
    found: dict[tuple[str, str], None] = {}
    for row in resource_descriptions().values():
        group = row["group"]
        for version in row["versions"]:
            found[f"{group}/{version}" if group else version, row["kind"]] = None
        for subresource in row["subresources"].values():
            if "version" in subresource:
                found[f"{subresource['group']}/{subresource['version']}", subresource["kind"]] = None
    return (*found, ("v1", "DeleteOptions"), ("v1", "Status"))


def struct_names() -> Iterator[str]:
    for package in (*dict.fromkeys(_package_names().values()), *_SHARED_PACKAGES):
        yield from (f"{package}.{short}" for short in _short_names(package))


_by_kind: dict[tuple[str, str], StructSchema] = {}


def schema_for(api_version: str, kind: str) -> StructSchema | None:
    """The type of a kind, of its list and of the options and answers that travel by themselves."""
    found = _by_kind.get((api_version, kind))
    if found is None:
        name = _type_name(api_version, kind)
        if name is None:
            # Not remembered: a client may send any number of kinds that do not exist.
            return None
        found = _by_kind[api_version, kind] = struct(name)
    return found


def _type_name(api_version: str, kind: str) -> str | None:
    package = _package_names().get(api_version)
    candidates = ([package] if package else []) + (["meta.v1"] if api_version == "v1" else [])
    for candidate in candidates:
        found = _type(candidate, kind)
        if found is not None and "apiVersion" in found["fields"]:
            return f"{candidate}.{kind}"
    return None


@cache
def struct(name: str) -> StructSchema:
    package, _, short = name.rpartition(".")
    entry = _type(package, short)
    if entry is None:
        raise KeyError(name)
    fields = {wire: _field(wire, line) for wire, line in entry["fields"].items()}
    return StructSchema(name, fields, bool(entry.get("atomic")))


def _field(wire: str, line: str) -> FieldSchema:
    number, text, *words = line.split(" ")
    facts = dict(word.partition("=")[::2] for word in words)
    list_type, _, keys = facts.get("list", "atomic").partition(":")
    ref = type_ref(text)
    return FieldSchema(
        name=wire,
        type=ref,
        required="required" in facts,
        is_pointer="pointer" in facts,
        list_type="map" if list_type == "map" else "set" if list_type == "set" else "atomic",
        list_keys=tuple(keys.split(",")) if keys else (),
        atomic="atomic" in facts,
        merge_key=facts.get("merge"),
        retain_keys="retainKeys" in facts,
        numbers=() if number == "-" else tuple(int(part) for part in number.split(".")),
        written_when_absent=_written_when_absent(ref, facts),
        drops_empty=_drops_empty(ref, facts),
        default=msgspec.json.decode(facts["default"]) if "default" in facts else None,
    )


@cache
def type_ref(text: str) -> TypeRef:
    if text.startswith(("[]", "{}")):
        item = type_ref(text[2:])
        return TypeRef("list" if text[0] == "[" else "map", item.name, item)
    return TypeRef("scalar" if text in SCALARS else "struct", text)


# --- how an empty value is written -----------------------------------------------------------------------------------


def _written_when_absent(ref: TypeRef, facts: dict[str, str]) -> Absent | None:
    """Go leaves out what `omitempty` marks, but for structs; it writes a missing pointer, list or map as null."""
    is_go_struct = ref.shape == "struct" or (ref.shape == "scalar" and ref.name in _GO_STRUCTS)
    if "omitzero" in facts or ("omitempty" in facts and ("pointer" in facts or not is_go_struct)):
        return None
    if "pointer" in facts or ref.shape in ("list", "map") or ref.name in ("time", "microTime", "any", "bytes"):
        return "null"
    return "empty object" if ref.shape == "struct" else "zero"


def _drops_empty(ref: TypeRef, facts: dict[str, str]) -> bool:
    if "omitempty" not in facts or ref.shape == "struct":
        return False
    if ref.name in ("time", "microTime") and ref.shape == "scalar":
        return True
    is_go_struct = ref.shape == "scalar" and ref.name in _GO_STRUCTS
    return "pointer" not in facts and not is_go_struct
