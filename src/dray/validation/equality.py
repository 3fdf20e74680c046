"""Compares parts of objects as Kubernetes does: quantities by amount, and an absent list or map equals an empty one."""

from __future__ import annotations

from typing import Any

from dray.api.quantity import Quantity, QuantityError

# Fields that hold quantities: as their value, or as the values of a map.
_QUANTITIES = frozenset(
    [
        "value",
        "default",
        "min",
        "max",
        "step",
        "capacityMultiplier",
        "deviceMultiplier",
        "allocationMultiplier",
        "perPod",
        "perContainer",
        "quantity",
        "total",
        "consumed",
        "available",
    ]
)
_QUANTITY_MAPS = frozenset(("consumedCapacity", "requests", "limits", "resources", "overhead", "hard", "used"))
# Fields whose absence differs from an empty or zero value.
_POINTERS = frozenset(
    [
        "exactly",
        "cel",
        "opaque",
        "nodeSelector",
        "allocation",
        "networkData",
        "requestPolicy",
        "validRange",
        "mapping",
        "overhead",
        "deviceSelector",
        "shareableSummary",
        "adminAccess",
        "int",
        "bool",
        "string",
        "version",
        "allNodes",
        "nodeName",
        "tolerationSeconds",
        "shareID",
        "matchAttribute",
        "distinctAttribute",
        "partitionTypeAttribute",
        "extendedResourceName",
        "bindsToNode",
        "allowMultipleAllocations",
        "perDeviceNodeSelection",
        "capacityKey",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "accountingPolicy",
        "poolName",
        "limit",
        "poolCount",
    ]
)
_RAW = frozenset(("parameters", "data"))


def same(a: Any, b: Any) -> bool:
    """Semantic equality of two parts of a document."""
    if a == b:
        return type(a) is type(b) or not (isinstance(a, bool) or isinstance(b, bool))
    if isinstance(a, dict) or isinstance(b, dict):
        return _same_maps(a, b)
    if isinstance(a, list) or isinstance(b, list):
        return _same_lists(a, b)
    return False


def _same_maps(a: Any, b: Any) -> bool:
    a, b = {} if a is None else a, {} if b is None else b
    if not isinstance(a, dict) or not isinstance(b, dict):
        return False
    return all(_same_fields(key, a.get(key), b.get(key)) for key in a.keys() | b.keys())


def _same_fields(key: str, a: Any, b: Any) -> bool:
    if a == b:
        return same(a, b)
    if key in _RAW or _is_behind_pointer(key, a, b):
        return False
    if isinstance(a, str) and isinstance(b, str):
        return key in _QUANTITIES and _same_amounts(a, b)
    if key in _QUANTITY_MAPS and isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) or _same_amounts(a[k], b[k]) for k in a)
    if key == "validValues" and isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same_amounts(x, y) for x, y in zip(a, b, strict=True))
    return _both_unsaid(key, a, b) or same(a, b)


def _is_behind_pointer(key: str, a: Any, b: Any) -> bool:
    """Whether only one of two objects is set; behind a pointer an empty object differs from none."""
    return key in _POINTERS and (a is None) != (b is None) and isinstance(b if a is None else a, dict)


def _both_unsaid(key: str, a: Any, b: Any) -> bool:
    """Whether both values are empty; behind a pointer, absent and empty differ."""
    if a is not None and b is not None:
        return False
    said = b if a is None else a
    if isinstance(said, list):
        return not said
    return key not in _POINTERS and said in ({}, "", 0, False)


def _same_lists(a: Any, b: Any) -> bool:
    a, b = [] if a is None else a, [] if b is None else b
    if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
        return False
    return all(same(x, y) for x, y in zip(a, b, strict=True))


def _same_amounts(a: Any, b: Any) -> bool:
    try:
        return bool(Quantity.parse(a) == Quantity.parse(b))
    except QuantityError:
        return False
