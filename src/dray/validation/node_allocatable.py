"""Rules for what a device takes from its node: Kubernetes 1.37's `nodeAllocatableResources` and the KEP's own field."""

from __future__ import annotations

from dray.api.dra.consumption import plain_name
from dray.api.names import is_node_allocatable
from dray.validation.errors import Document, Errors
from dray.validation.formats import check_quantity_sign

POLICIES = ("AddPerClaim", "AddPerReference", "ConsumeFrom", "Max")
_NOT_ALLOCATABLE = "must be a node allocatable resource name"
_UNION = ("capacityKey", "deviceMultiplier")


def check_node_allocatable(
    device: Document, old: Document | None, path: str, errors: Errors, *, driver: str, only_declarative: bool
) -> None:
    resources, mappings = device.get("nodeAllocatableResources"), device.get("nodeAllocatableResourceMappings")
    if resources:
        here = f"{path}.nodeAllocatableResources"
        before = (old or {}).get("nodeAllocatableResources") or {}
        for name, resource in resources.items():
            _check_mapping_union(resource, before.get(name), f"{here}[{name}].mapping", errors)
            if not only_declarative:
                _check_resource(name, resource, device, f"{here}[{name}]", errors)
    if mappings and not only_declarative:
        if resources:
            detail = "nodeAllocatableResources and nodeAllocatableResourceMappings say the same thing: use one of them"
            errors.invalid(path, "{`nodeAllocatableResources`, `nodeAllocatableResourceMappings`}", detail)
        _check_mappings(mappings, device, driver, f"{path}.nodeAllocatableResourceMappings", errors)


def _check_mapping_union(resource: Document, before: Document | None, path: str, errors: Errors) -> None:
    mapping = resource.get("mapping")
    if mapping is None:
        return
    said = [name for name in _UNION if mapping.get(name) is not None]
    old_mapping = (before or {}).get("mapping")
    if old_mapping is not None and said == [name for name in _UNION if old_mapping.get(name) is not None]:
        return
    if not said:
        errors.invalid(path, "", "must specify one of: `capacityKey`, `deviceMultiplier`", declarative=True)
    elif len(said) > 1:
        detail = "must specify exactly one of: `capacityKey`, `deviceMultiplier`"
        errors.invalid(path, f"{{{', '.join(said)}}}", detail, declarative=True)


def _check_resource(name: str, resource: Document, device: Document, path: str, errors: Errors) -> None:
    if not is_node_allocatable(name):
        errors.invalid(path, name, _NOT_ALLOCATABLE)
    mapping, overhead = resource.get("mapping"), resource.get("overhead")
    if mapping is None and overhead is None:
        errors.required(path, "at least one of mapping or overhead must be set")
    if mapping is not None:
        _check_mapping(mapping, device, f"{path}.mapping", errors)
    if overhead is not None:
        _check_overhead(overhead, f"{path}.overhead", errors)


def _check_mapping(mapping: Document, device: Document, path: str, errors: Errors) -> None:
    key, multiplier = mapping.get("capacityKey"), mapping.get("capacityMultiplier")
    if key is not None:
        _check_capacity_key(key, device, f"{path}.capacityKey", errors)
        if multiplier is None:
            errors.required(f"{path}.capacityMultiplier", "capacityMultiplier is required when capacityKey is set")
        else:
            check_quantity_sign(multiplier, f"{path}.capacityMultiplier", errors, positive=True)
    elif multiplier is not None:
        errors.required(f"{path}.capacityKey", "capacityKey is required when capacityMultiplier is set")
    if mapping.get("deviceMultiplier") is not None:
        check_quantity_sign(mapping["deviceMultiplier"], f"{path}.deviceMultiplier", errors, positive=True)


def _check_capacity_key(key: str, device: Document, path: str, errors: Errors) -> None:
    if key == "":
        errors.invalid(path, key, "capacityKey must not be an empty string")
    elif key not in (device.get("capacity") or {}):
        errors.not_found(path, key)


def _check_overhead(overhead: Document, path: str, errors: Errors) -> None:
    amounts = [name for name in ("perPod", "perContainer") if overhead.get(name) is not None]
    if not amounts:
        errors.invalid(path, "", "at least one of perPod or perContainer must be set")
    for name in amounts:
        check_quantity_sign(overhead[name], f"{path}.{name}", errors, positive=False)


def _check_mappings(mappings: Document, device: Document, driver: str, path: str, errors: Errors) -> None:
    """The KEP's field: a key into the device's capacity, or an amount per device; the multiplier defaults to 1."""
    for name, mapping in mappings.items():
        here = f"{path}[{name}]"
        if not is_node_allocatable(name):
            errors.invalid(here, name, _NOT_ALLOCATABLE)
        if (key := mapping.get("capacityKey")) is not None:
            _check_mapping_key(key, device, driver, f"{here}.capacityKey", errors)
        if (multiplier := mapping.get("allocationMultiplier")) is not None:
            check_quantity_sign(multiplier, f"{here}.allocationMultiplier", errors, positive=True)
        check_policy(mapping.get("accountingPolicy"), f"{here}.accountingPolicy", errors)


def _check_mapping_key(key: str, device: Document, driver: str, path: str, errors: Errors) -> None:
    """Unlike Kubernetes' own field this one finds `x` under `<driver>/x` as well, and the other way round."""
    known = {plain_name(name, driver) for name in device.get("capacity") or {}}
    if key == "":
        errors.invalid(path, key, "capacityKey must not be an empty string")
    elif plain_name(key, driver) not in known:
        errors.not_found(path, key)


def check_policy(policy: str | None, path: str, errors: Errors) -> None:
    if policy is not None and policy not in POLICIES:
        errors.not_supported(path, policy, POLICIES)
