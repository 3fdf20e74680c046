"""Rules for PersistentVolumeClaim and StorageClass. The drivers of volumes check the rest."""

from __future__ import annotations

from collections.abc import Sequence

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.equality import same
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE
from dray.validation.label_selectors import check_label_selector

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
RECLAIM_POLICIES = ("Delete", "Retain")
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")


def check_volume_claim(new: Document, old: Document | None, errors: Errors) -> None:
    check_claim_spec(new.get("spec") or {}, "spec", errors)
    if old is not None:
        _check_claim_kept(new, old, errors)


def check_claim_spec(spec: Document, path: str, errors: Errors) -> None:
    """Also for the claims that a StatefulSet makes."""
    _check_modes(spec.get("accessModes") or (), f"{path}.accessModes", errors)
    if (selector := spec.get("selector")) is not None:
        check_label_selector(selector, f"{path}.selector", errors)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        errors.required(f"{path}.resources[storage]")
    elif Quantity.parse(storage).nanos <= 0:
        errors.invalid(f"{path}.resources[storage]", storage, "must be greater than zero")
    for field in ("storageClassName", "volumeAttributesClassName"):
        if name := spec.get(field):
            errors.each_invalid(f"{path}.{field}", name, names.subdomain_problems(name))
    if (mode := spec.get("volumeMode")) and mode not in VOLUME_MODES:
        errors.not_supported(f"{path}.volumeMode", mode, VOLUME_MODES)


def _check_modes(modes: Sequence[str], path: str, errors: Errors) -> None:
    if not modes:
        errors.required(path, "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            errors.not_supported(path, mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes")


_CLAIM_RULE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _check_claim_kept(new: Document, old: Document, errors: Errors) -> None:
    """A bound claim may grow. One that is not bound yet may still get its volume and its class."""
    spec, before, status = new.get("spec") or {}, old.get("spec") or {}, old.get("status") or {}
    free = set() if before.get("volumeName") else {"volumeName"}
    if before.get("storageClassName") is None:
        # An empty name is a choice, too: no class.
        free.add("storageClassName")
    is_bound = status.get("phase") == "Bound"
    if is_bound:
        free.add("volumeAttributesClassName")
    kept, kept_before = (_fixed_parts(each, free, any_size=is_bound) for each in (spec, before))
    if not same(kept, kept_before):
        changed = sorted(
            name for name in kept.keys() | kept_before.keys() if not same(kept.get(name), kept_before.get(name))
        )
        errors.forbidden("spec", f"{_CLAIM_RULE}; changed: {', '.join(changed)}")
    size, capacity = _size(spec), Quantity.parse((status.get("capacity") or {}).get("storage") or "0")
    if size < _size(before) and size <= capacity:
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if spec.get("volumeMode") != before.get("volumeMode"):
        errors.invalid("volumeMode", spec.get("volumeMode"), IMMUTABLE)


def _fixed_parts(spec: Document, free: set[str], *, any_size: bool) -> Document:
    made = {key: value for key, value in spec.items() if key not in free}
    if any_size:
        resources = made.get("resources") or {}
        requests = {name: amount for name, amount in (resources.get("requests") or {}).items() if name != "storage"}
        made["resources"] = {**resources, "requests": requests}
    return made


def _size(spec: Document) -> Quantity:
    return Quantity.parse(((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0")


def check_storage_class(new: Document, old: Document | None, errors: Errors) -> None:
    provisioner = new.get("provisioner") or ""
    if not provisioner:
        errors.required("provisioner", declarative=True)
    else:
        errors.each_invalid("provisioner", provisioner.lower(), names.qualified_name_problems(provisioner.lower()))
    if "" in (new.get("parameters") or {}):
        errors.invalid("parameters", "", "field can not be empty.")
    for i, topology in enumerate(new.get("allowedTopologies") or ()):
        _check_topology(topology, f"allowedTopologies[{i}]", errors)
    for field, known in (("reclaimPolicy", RECLAIM_POLICIES), ("volumeBindingMode", BINDING_MODES)):
        if (value := new.get(field)) and value not in known:
            errors.not_supported(field, value, known)
    for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        if old is not None and (new.get(field) or None) != (old.get(field) or None):
            errors.invalid(field, None, IMMUTABLE)


def _check_topology(topology: Document, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, requirement in enumerate(topology.get("matchLabelExpressions") or ()):
        here, key = f"{path}.matchLabelExpressions[{i}]", requirement.get("key") or ""
        if not requirement.get("values"):
            errors.required(f"{here}.values")
        errors.each_invalid(f"{here}.key", key, names.qualified_name_problems(key))
        if key in seen:
            errors.duplicate(f"{here}.key", key)
        seen.add(key)
