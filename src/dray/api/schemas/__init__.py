"""The shape of every kind we know: field names, types, list types and merge keys, and nothing else.

`schemas.json` is the table, written by `scripts/generate_schemas.py`:

- `kinds` maps `apiVersion/Kind` (`v1/Pod`, `resource.k8s.io/v1beta1/ResourceSlice`) to the name of its type.
- `types` maps a type's name (`core.v1.PodSpec`) to `fields`, a map from wire name to type text, and, where there is
  something to say: `required` (names), `lists` (`set`, `atomic`, or `map:` and the keys; a list without an entry is atomic),
  `merge` (the strategic merge key, "" for a list of scalars; `+retainKeys` where the strategy has it), `atomic` (true
  where apply and strategic merge replace the whole object).
- A type text is a scalar (`string`, `bool`, `int32`, `int64`, `float`, `quantity`, `time`, `microTime`, `intOrString`,
  `bytes`, `any`), the name of a type, or one of these behind `[]` (a list) or `{}` (a map with string keys).

`schema_for` and `struct` read it. Rules about values live in `dray.validation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

SCALARS = frozenset(
    ("string", "bool", "int32", "int64", "float", "quantity", "time", "microTime", "intOrString", "bytes", "any")
)

ListType = Literal["atomic", "set", "map"]


@dataclass(frozen=True, slots=True)
class TypeRef:
    """One type text, taken apart."""

    shape: Literal["scalar", "struct", "list", "map"]
    name: str  # of the scalar or the struct; of the innermost one for lists and maps
    item: TypeRef | None = None  # what a list or map holds


@dataclass(frozen=True, slots=True)
class FieldSchema:
    name: str
    type: TypeRef
    required: bool
    list_type: ListType
    list_keys: tuple[str, ...]
    merge_key: str | None  # None: strategic merge replaces the value; "": merges a list of scalars
    retain_keys: bool


@dataclass(frozen=True, slots=True)
class StructSchema:
    name: str
    fields: dict[str, FieldSchema]
    atomic: bool

    @property
    def openapi_name(self) -> str:
        """`core.v1.Pod` as it is called in Kubernetes' OpenAPI documents."""
        if self.name.startswith("meta."):
            return f"io.k8s.apimachinery.pkg.apis.{self.name}"
        return f"io.k8s.api.{self.name}"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = msgspec.json.decode(resources.files(__package__).joinpath("schemas.json").read_bytes())
    return table


def known_kinds() -> tuple[tuple[str, str], ...]:
    """Every (apiVersion, kind) in the table."""
    return tuple((key.rpartition("/")[0], key.rpartition("/")[2]) for key in _table()["kinds"])


def struct_names() -> tuple[str, ...]:
    return tuple(_table()["types"])


_by_kind: dict[tuple[str, str], StructSchema] = {}


def schema_for(api_version: str, kind: str) -> StructSchema | None:
    found = _by_kind.get((api_version, kind))
    if found is None:
        name = _table()["kinds"].get(f"{api_version}/{kind}")
        if name is None:
            # Not remembered: what there is not may come from a stranger, of any length and any number.
            return None
        found = _by_kind[api_version, kind] = struct(name)
    return found


@cache
def struct(name: str) -> StructSchema:
    entry = _table()["types"][name]
    required = frozenset(entry.get("required", ()))
    lists, merge = entry.get("lists", {}), entry.get("merge", {})
    fields = {
        wire: _field(wire, text, wire in required, lists.get(wire, "atomic"), merge.get(wire))
        for wire, text in entry["fields"].items()
    }
    return StructSchema(name, fields, bool(entry.get("atomic")))


def _field(wire: str, text: str, required: bool, list_text: str, merge: str | None) -> FieldSchema:
    list_type, _, keys = list_text.partition(":")
    key, _, strategy = (merge or "").partition("+")
    return FieldSchema(
        name=wire,
        type=type_ref(text),
        required=required,
        list_type="map" if list_type == "map" else "set" if list_type == "set" else "atomic",
        list_keys=tuple(keys.split(",")) if keys else (),
        merge_key=key if merge is not None else None,
        retain_keys=strategy == "retainKeys",
    )


@cache
def type_ref(text: str) -> TypeRef:
    if text.startswith(("[]", "{}")):
        item = type_ref(text[2:])
        return TypeRef("list" if text[0] == "[" else "map", item.name, item)
    return TypeRef("scalar" if text in SCALARS else "struct", text)
