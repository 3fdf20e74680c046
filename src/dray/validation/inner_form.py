"""A claim spec in the form that Kubernetes keeps inside and prints in messages: every field, under its Go name."""

from __future__ import annotations

from typing import Any

from dray.validation.errors import Document

# Type to its fields in order: wire name and, behind a colon, the type of what is in it (`[]` for a list) or its zero.
_TYPES = {
    "ClaimSpec": "devices:DeviceClaim",
    "DeviceClaim": "requests:[]Request constraints:[]Constraint config:[]Config",
    "Request": "name:'' exactly:Exact firstAvailable:[]SubRequest",
    "Exact": "deviceClassName:'' selectors:[]Selector allocationMode:'' count:0 adminAccess tolerations:[]Toleration "
    "capacity:Capacity derivedAttributes",
    "SubRequest": "name:'' deviceClassName:'' selectors:[]Selector allocationMode:'' count:0 tolerations:[]Toleration "
    "capacity:Capacity derivedAttributes",
    "Selector": "cel:Cel",
    "Cel": "expression:''",
    "Toleration": "key:'' operator:'' value:'' effect:'' tolerationSeconds",
    "Capacity": "requests",
    "Constraint": "requests matchAttribute distinctAttribute",
    "Config": "requests opaque:Opaque",
    "Opaque": "driver:'' parameters",
}
_ZEROS: dict[str, Any] = {"''": "", "0": 0, "": None}
# Structs that are there even when nothing is in them.
_NEVER_NIL = frozenset({"DeviceClaim"})


def inner_template_spec(spec: Document) -> Document:
    """The metadata of a template stands beside its spec."""
    return {**(spec.get("metadata") or {}), "Spec": _struct(spec.get("spec") or {}, "ClaimSpec")}


def _struct(value: Document, type_name: str) -> Document:
    fields = (word.partition(":") for word in _TYPES[type_name].split())
    return {_go_name(name): _value(value.get(name), inner) for name, _, inner in fields}


def _value(value: Any, inner: str) -> Any:
    if inner in _ZEROS:
        return _ZEROS[inner] if value is None else value
    if inner.startswith("[]"):
        return [_struct(entry, inner[2:]) for entry in value] if value else None
    if value is None and inner not in _NEVER_NIL:
        return None
    return _struct(value or {}, inner)


def _go_name(name: str) -> str:
    return "CEL" if name == "cel" else name[:1].upper() + name[1:]
