"""The same object in each version of resource.k8s.io: v1beta2, v1beta1 and v1alpha3 to v1 and back, without loss.

v1beta2 and v1alpha3 have v1's shape. v1beta1 keeps a device's fields under `basic`, a request's fields beside its name
instead of under `exactly`, and a slice's `nodeName` and `allNodes` as plain values whose zero means unset.
Documents come in shaped (`dray.api.codec.shape_document`) and are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]

GROUP = "resource.k8s.io"

# Kinds that are not stored as v1.
STORED_VERSIONS = {"ResourcePoolStatusRequest": "v1alpha3"}
SERVED_VERSIONS: dict[str, tuple[str, ...]] = {
    "ResourceSlice": ("v1", "v1beta2", "v1beta1"),
    "ResourceClaim": ("v1", "v1beta2", "v1beta1"),
    "ResourceClaimTemplate": ("v1", "v1beta2", "v1beta1"),
    "DeviceClass": ("v1", "v1beta2", "v1beta1"),
    "DeviceTaintRule": ("v1", "v1beta2", "v1alpha3"),
    "ResourcePoolStatusRequest": ("v1alpha3",),
}

_EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)


def storage_version(document: Document) -> str:
    """The apiVersion in which we keep and validate an object."""
    if not str(document.get("apiVersion", "")).startswith(GROUP + "/"):
        return str(document.get("apiVersion", ""))
    return f"{GROUP}/{STORED_VERSIONS.get(document.get('kind', ''), 'v1')}"


def to_storage(document: Document) -> Document:
    """`document` in the version we keep; itself if it already is."""
    wanted = storage_version(document)
    if document.get("apiVersion") == wanted:
        return document
    read = _READ_V1BETA1.get(document["kind"]) if document["apiVersion"].endswith("/v1beta1") else None
    made = read(document) if read else document
    return {**made, "apiVersion": wanted}


def from_storage(document: Document, api_version: str) -> Document:
    """A stored document as a client of `api_version` sees it."""
    if document.get("apiVersion") == api_version:
        return document
    write = _WRITE_V1BETA1.get(document["kind"]) if api_version == f"{GROUP}/v1beta1" else None
    made = write(document) if write else document
    return {**made, "apiVersion": api_version}


# --- ResourceSlice ---------------------------------------------------------------------------------------------------


def _read_slice(document: Document) -> Document:
    if not isinstance(document.get("spec"), dict):
        return document
    spec = {key: value for key, value in document["spec"].items() if key not in ("nodeName", "allNodes") or value}
    if "devices" in spec:
        spec["devices"] = [_read_device(device) for device in spec["devices"]]
    return {**document, "spec": spec}


def _read_device(device: Document) -> Document:
    return {**{key: value for key, value in device.items() if key != "basic"}, **(device.get("basic") or {})}


def _write_slice(document: Document) -> Document:
    if not isinstance(document.get("spec"), dict):
        return document
    spec = {key: value for key, value in document["spec"].items() if key not in ("nodeName", "allNodes") or value}
    if "devices" in spec:
        spec["devices"] = [_write_device(device) for device in spec["devices"] or ()]
    return {**document, "spec": spec}


def _write_device(device: Document) -> Document:
    return {
        **{key: value for key, value in device.items() if key == "name"},
        "basic": {key: value for key, value in device.items() if key != "name"},
    }


# --- ResourceClaim, ResourceClaimTemplate ----------------------------------------------------------------------------


def _read_request(request: Document) -> Document:
    exact = {key: request[key] for key in _EXACT_FIELDS if key in request and _is_set(key, request[key])}
    rest = {key: value for key, value in request.items() if key not in _EXACT_FIELDS}
    return {**rest, "exactly": exact} if exact else rest


def _is_set(field: str, value: Any) -> bool:
    """Keeps an explicit empty list, or false behind a pointer; an empty name or a zero count counts as absent."""
    return bool(value) if field in ("deviceClassName", "allocationMode", "count") else value is not None


def _write_request(request: Document) -> Document:
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {**rest, "deviceClassName": "", **(request.get("exactly") or {})}


def _with_requests(claim_spec: Any, convert: Callable[[Document], Document]) -> Any:
    devices = claim_spec.get("devices") if isinstance(claim_spec, dict) else None
    if not isinstance(devices, dict) or not devices.get("requests"):
        return claim_spec
    return {**claim_spec, "devices": {**devices, "requests": [convert(request) for request in devices["requests"]]}}


def _claim(convert: Callable[[Document], Document]) -> Callable[[Document], Document]:
    def converted(document: Document) -> Document:
        if "spec" not in document:
            return document
        return {**document, "spec": _with_requests(document["spec"], convert)}

    return converted


def _template(convert: Callable[[Document], Document]) -> Callable[[Document], Document]:
    def converted(document: Document) -> Document:
        spec = document.get("spec")
        if not isinstance(spec, dict) or "spec" not in spec:
            return document
        return {**document, "spec": {**spec, "spec": _with_requests(spec["spec"], convert)}}

    return converted


_READ_V1BETA1: dict[str, Callable[[Document], Document]] = {
    "ResourceSlice": _read_slice,
    "ResourceClaim": _claim(_read_request),
    "ResourceClaimTemplate": _template(_read_request),
}
_WRITE_V1BETA1: dict[str, Callable[[Document], Document]] = {
    "ResourceSlice": _write_slice,
    "ResourceClaim": _claim(_write_request),
    "ResourceClaimTemplate": _template(_write_request),
}
