"""Renames the oldest field names of KEP-5517, `native…`, to the current ones, `nodeAllocatable…`.

What is wrong in an old field stays where it is under its old name, so that the reader sees it as an unknown field or
a wrong type at the place where it was written.
"""

from __future__ import annotations

from typing import Any

from dray.api.errors import DecodeError
from dray.api.slice_text import QuietLists

Document = dict[str, Any]

# Device fields with the same meaning; a device may use one of them.
DEVICE_SPELLINGS = ("nativeResourceMappings", "nodeAllocatableResourceMappings", "nodeAllocatableResources")

OLD_NAMES = {
    "nativeResourceMappings": "nodeAllocatableResourceMappings",
    "quantityFrom.perInstanceQuantity": "allocationMultiplier",
    "quantityFrom.capacity": "capacityKey",
    "managesNativeResources": "managesNodeAllocatableResources",
    "nativeResourceAccountingPolicies": "nodeAllocatableResourceAccountingPolicies",
    "nativeResourceClaimStatus": "nodeAllocatableResourceClaimStatuses",
}

_CANONICAL_LISTS = QuietLists()


def canonical_spelling(document: Document) -> Document:
    """`document` itself where it uses no old name, otherwise a copy in canonical spelling."""
    translate = _TRANSLATIONS.get(document.get("kind")) if isinstance(document.get("kind"), str) else None
    return translate(document) if translate else document


def uses_old_spelling(document: Document) -> bool:
    return canonical_spelling(document) is not document


def _slice(document: Document) -> Document:
    spec = document.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(devices, list) or devices in _CANONICAL_LISTS:
        return document
    translated = [_device(device, f"spec.devices[{i}]") for i, device in enumerate(devices)]
    if all(new is old for new, old in zip(translated, devices, strict=True)):
        _CANONICAL_LISTS.add(devices)
        return document
    return {**document, "spec": {**spec, "devices": translated}}


def _device(device: Any, path: str) -> Any:
    """Also looks into `basic`, where v1beta1 keeps a device's fields."""
    if not isinstance(device, dict):
        return device
    if isinstance(device.get("basic"), dict):
        basic = _device(device["basic"], f"{path}.basic")
        return device if basic is device["basic"] else {**device, "basic": basic}
    mappings = device.get("nativeResourceMappings")
    if not isinstance(mappings, dict):
        return _with_canonical_mappings(device, path)
    if other := [name for name in DEVICE_SPELLINGS[1:] if device.get(name)]:
        raise DecodeError(f"nativeResourceMappings and {other[0]} say the same thing: use one of them", path=path)
    renamed = _mappings(mappings, f"{path}.nativeResourceMappings")
    return _renamed(device, "nativeResourceMappings", "nodeAllocatableResourceMappings", renamed)


def _with_canonical_mappings(device: Document, path: str) -> Document:
    """Also accepts the newer field name with the older contents, as in one of the KEP's own examples."""
    mappings = device.get("nodeAllocatableResourceMappings")
    if not isinstance(mappings, dict) or not any(
        isinstance(m, dict) and "quantityFrom" in m for m in mappings.values()
    ):
        return device
    renamed = _mappings(mappings, f"{path}.nodeAllocatableResourceMappings")
    return {**device, "nodeAllocatableResourceMappings": renamed}


def _mappings(mappings: Document, path: str) -> Document:
    return {name: _mapping(mapping, f"{path}[{name}]") for name, mapping in mappings.items()}


def _mapping(mapping: Any, path: str) -> Any:
    """`quantityFrom: {capacity: K}` to `capacityKey: K`; an amount per instance is the multiplier of a device."""
    source = mapping.get("quantityFrom") if isinstance(mapping, dict) else None
    if not isinstance(source, dict) or not source.keys() <= {"perInstanceQuantity", "capacity"}:
        return mapping
    if sum(value is not None for value in source.values()) != 1:
        problem = "exactly one of perInstanceQuantity and capacity is required"
        raise DecodeError(problem, path=f"{path}.quantityFrom")
    made = {key: value for key, value in mapping.items() if key != "quantityFrom"}
    if source.get("capacity") is not None:
        made["capacityKey"] = source["capacity"]
    if source.get("perInstanceQuantity") is not None:
        made["allocationMultiplier"] = source["perInstanceQuantity"]
    return made


def _class(document: Document) -> Document:
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    made = spec
    for old in ("managesNativeResources", "nativeResourceAccountingPolicies"):
        if old in made:
            _refuse_both(made, old, OLD_NAMES[old], "spec")
            made = _renamed(made, old, OLD_NAMES[old], made[old])
    return document if made is spec else {**document, "spec": made}


def _pod(document: Document) -> Document:
    status = document.get("status")
    old, new = "nativeResourceClaimStatus", "nodeAllocatableResourceClaimStatuses"
    if not isinstance(status, dict) or not isinstance(status.get(old), list):
        return document
    _refuse_both(status, old, new, "status")
    return {**document, "status": _renamed(status, old, new, [_claim_status(entry) for entry in status[old]])}


def _claim_status(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    made = dict(entry)
    reference = made.pop("claimInfo", None)
    if isinstance(reference, dict):
        made["resourceClaimName"] = reference.get("name", "")
    resources = made.get("resources")
    if isinstance(resources, list) and all(isinstance(r, dict) and "resourceName" in r for r in resources):
        made["resources"] = {str(r["resourceName"]): r.get("quantity") for r in resources}
        if any("accountingPolicy" in r for r in resources):
            made["accounting"] = [
                {
                    "name": r["resourceName"],
                    "quantity": r.get("quantity"),
                    "accountingPolicy": r.get("accountingPolicy", "AddPerClaim"),
                }
                for r in resources
            ]
    return made


def _renamed(holder: Document, old: str, new: str, value: Any) -> Document:
    return {new if key == old else key: value if key == old else inner for key, inner in holder.items()}


def _refuse_both(holder: Document, old: str, new: str, path: str) -> None:
    if holder.get(new):
        raise DecodeError(f"{old} and {new} say the same thing: use one of them", path=path)


_TRANSLATIONS: dict[Any, Any] = {"ResourceSlice": _slice, "DeviceClass": _class, "Pod": _pod}
