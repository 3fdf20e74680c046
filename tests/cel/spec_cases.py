"""The CEL project's conformance cases: reading them, and which of them cannot apply here."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from dray.cel.environment import BASE_LIBRARIES, Environment
from dray.cel.library import extensions
from dray.cel.library.lists import includes_library
from dray.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
)
from dray.cel.values import Duration, Timestamp, TypeValue, UInt, equal, from_key, to_key, type_name

Case = dict[str, Any]
DATA = Path(__file__).parent / "data" / "cel_spec.ndjson"

# Why a case is left out; the first rule that fits counts. Everything else must pass.
_FILES = {
    "enums": "protobuf enums",
    "proto2": "protobuf messages",
    "proto2_ext": "protobuf messages",
    "proto3": "protobuf messages",
    "wrappers": "protobuf wrapper messages",
    "block_ext": "cel.block, which only optimizers write",
    "unknowns": "partial evaluation",
}
_MESSAGES = re.compile(
    r"TestAllTypes|GlobalEnum|google\.protobuf\.(?!Timestamp\b|Duration\b)|cel\.expr|proto\.|Nested|protobuf\.\w+\s*\{"
)


# Cases in which Kubernetes' answer is another than the CEL project's. (file, name) to what Kubernetes does.
KUBERNETES_DIFFERS = {
    ("fields", "map_value_repeat_key"): "repeated keys in a map literal are allowed",
    ("fields", "map_value_repeat_key_heterogeneous"): "repeated keys in a map literal are allowed",
    ("fields", "map_key_float"): "doubles may be map keys",
    ("network_ext", "ipv4_equals_ipv6"): "ip() refuses IPv4-mapped addresses",
    ("network_ext", "ipv4_not_equals_ipv6"): "ip() refuses IPv4-mapped addresses",
    ("optionals", "map_null_entry_no_such_key"): "a selection on a scalar inside an optional chain is none",
    ("optionals", "map_present_key_invalid_field"): "a selection on a scalar inside an optional chain is none",
    ("string_ext", "indexof_out_of_range"): "indexOf beyond the end is no error",
    ("string_ext", "lastindexof_out_of_range"): "lastIndexOf beyond the end is no error",
    ("string_ext", "default precision for fixed-point clause with int"): "%f takes doubles only",
    ("string_ext", "default precision for fixed-point clause with uint"): "%f takes doubles only",
    ("string_ext", "default precision for scientific notation with int"): "%e takes doubles only",
    ("string_ext", "default precision for scientific notation with uint"): "%e takes doubles only",
    ("string_ext", "scientific notation formatting clause"): "%e writes a power of ten",
    ("string_ext", "scientific notation formatting clause in a string variable"): "%e writes a power of ten",
    ("string_ext", "default precision for scientific notation"): "%e writes a power of ten",
    ("string_ext", "dyntype support for scientific notation"): "%e writes a power of ten",
    ("string_ext", "list support for string"): "%s quotes what is inside lists and maps",
    ("string_ext", "map support for string"): "%s quotes what is inside lists and maps",
    ("string_ext", "map support (all key types)"): "%s quotes what is inside lists and maps",
    ("string_ext", "positive infinity support for scientific notation"): "infinity is written as ∞",
    ("string_ext", "negative infinity support for scientific notation"): "infinity is written as ∞",
    ("string_ext", "positive infinity support for fixed-point"): "infinity is written as ∞",
    ("string_ext", "negative infinity support for fixed-point"): "infinity is written as ∞",
    ("string_ext", "NaN support for decimal"): "%d takes integers only",
    ("string_ext", "positive infinity support for decimal"): "%d takes integers only",
    ("string_ext", "negative infinity support for decimal"): "%d takes integers only",
    ("string_ext", "dyntype NaN/infinity support"): "%s quotes what is inside lists and maps",
    ("string_ext", "dyntype support for lists"): "%s quotes what is inside lists and maps",
    ("string_ext", "dyntype support for maps"): "%s quotes what is inside lists and maps",
}


def cases() -> list[Case]:
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


def left_out(case: Case) -> str | None:
    if case["file"] in _FILES:
        return _FILES[case["file"]]
    if _MESSAGES.search(case["expr"]) or None in case.get("bindings", {}).values():
        return "protobuf messages"
    if (case["file"], case["name"]) in KUBERNETES_DIFFERS:
        return "Kubernetes answers otherwise"
    if "container" in case:
        return "names resolved in a container, which Kubernetes does not set"
    if None in case.get("types", {}).values():
        return "declares a message or function type"
    if "value" in case and case["value"] is None:
        return "its result is a protobuf message"
    if case.get("disable_macros"):
        return "macros switched off"
    return None


_TYPES = {str(t): t for t in (ANY, BOOL, BYTES, DOUBLE, DURATION, DYN, INT, NULL, STRING, TIMESTAMP, TYPE, UINT)}


def type_of_text(text: str) -> Type:
    if text in _TYPES:
        return _TYPES[text]
    name, _, inner = text.removesuffix(")").partition("(")
    if name == "map":
        key, _, value = inner.partition(", ")
        return map_of(type_of_text(key), type_of_text(value))
    made = {"list": list_of, "optional_type": optional_of}[name]
    return made(type_of_text(inner))


def environment_of(case: Case) -> Environment:
    """Standard CEL: mixed literals and quoted fields are allowed, and what has no declared type is dynamic."""
    variables = {name: type_of_text(t) for name, t in case.get("types", {}).items()}
    for name in case.get("bindings", {}):
        variables.setdefault(name, DYN)
    libraries = (*BASE_LIBRARIES, includes_library, extensions.library)
    return Environment(variables, libraries=libraries, mixed_literals=True, quoted_fields=True)


def python_value(tagged: dict[str, Any]) -> Any:
    ((kind, held),) = tagged.items()
    if kind == "int":
        return int(held, 0)
    if kind == "uint":
        return UInt(int(held, 0))
    if kind == "double":
        return float(held.replace("infinity", "inf"))
    if kind == "bytes":
        return bytes.fromhex(held)
    if kind == "null":
        return None
    if kind == "list":
        return [python_value(item) for item in held]
    if kind == "map":
        return {to_key(python_value(k)): python_value(v) for k, v in held}
    if kind == "type":
        return TypeValue(held)
    if kind == "duration":
        return Duration(int(held))
    if kind == "timestamp":
        return Timestamp(int(held))
    return held


def alike(given: Any, wanted: Any) -> bool:
    """Equal and of the same type; NaN is NaN."""
    if type(wanted) is float and math.isnan(wanted):
        return type(given) is float and math.isnan(given)
    if isinstance(wanted, list):
        return isinstance(given, (list, tuple)) and len(given) == len(wanted) and all(map(alike, given, wanted))
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and len(given) == len(wanted)
            and all(
                any(
                    type_name(from_key(k)) == type_name(from_key(g)) and equal(k, g) and alike(given[g], v)
                    for g in given
                )
                for k, v in wanted.items()
            )
        )
    if type_name(given) == "optional_type":
        return False
    return type_name(given) == type_name(wanted) and equal(given, wanted)
