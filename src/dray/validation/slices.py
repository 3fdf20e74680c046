"""Rules for the spec of a ResourceSlice. Rules for single devices are in `devices`."""

from __future__ import annotations

from dray.api import names
from dray.api.caching import LruSet
from dray.api.slice_text import device_trees
from dray.validation.devices import check_counters, check_device, has_list_attribute
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import (
    IMMUTABLE,
    check_driver,
    check_full_name,
    check_label,
    check_pool,
    check_unique,
    is_full_name,
)
from dray.validation.node_selector import check_node_selector

MAX_DEVICES = 128
# A device with taints, counters or list attributes is larger, so fewer of them fit into an object.
MAX_LARGE_DEVICES = 64
MAX_COUNTER_SETS = 8

NODE_SELECTION = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
NODE_OPERATIONS = ("*", "NodePrepareResources", "NodeUnprepareResources")
# New lists of devices without a fault: nodes of one kind publish the same devices again and again.
_FAULTLESS = LruSet(4096)
_FAULTLESS_COUNTERS = LruSet(4096)
_WORTH_REMEMBERING = 8
ONLY_TRUE = "must be either unset or set to true"


def check_slice(document: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = document.get("spec") or {}
    before = (old.get("spec") or {}) if old is not None else None
    check_driver(spec.get("driver") or "", "spec.driver", errors)
    _check_pool(spec.get("pool") or {}, errors)
    _check_node_selection(spec, before, errors)
    if "sharedCounters" in spec and "devices" in spec:
        errors.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    _check_devices(spec, before, errors, context)
    _check_shared_counters(spec.get("sharedCounters") or [], errors)
    _check_partition_type(spec, before, context, errors)
    check_skipped_operations(
        spec.get("skipNodeOperations") or [],
        (before or {}).get("skipNodeOperations") or [],
        "spec.skipNodeOperations",
        errors,
    )
    if before is not None:
        _check_immutable(spec, before, errors)


def _check_pool(pool: Document, errors: Errors) -> None:
    check_pool(pool.get("name") or "", "spec.pool.name", errors)
    if (pool.get("resourceSliceCount") or 0) <= 0:
        errors.invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, "must be greater than zero")
    if (pool.get("generation") or 0) < 0:
        errors.invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")


def _check_immutable(spec: Document, before: Document, errors: Errors) -> None:
    if (spec.get("driver") or "") != (before.get("driver") or ""):
        errors.invalid("spec.driver", spec.get("driver") or "", IMMUTABLE)
    name, old_name = (holder.get("name") or "" for holder in (spec.get("pool") or {}, before.get("pool") or {}))
    if name != old_name:
        errors.invalid("spec.pool.name", name, IMMUTABLE)
    if spec.get("nodeName") != before.get("nodeName"):
        errors.invalid("spec.nodeName", spec.get("nodeName"), IMMUTABLE)


def _check_node_selection(spec: Document, before: Document | None, errors: Errors) -> None:
    said = [name for name in NODE_SELECTION if _is_chosen(spec.get(name))]
    if (name := spec.get("nodeName")) is not None:
        if name == "":
            errors.invalid("spec.nodeName", name, "must be either unset or set to a non-empty string")
        else:
            errors.each_invalid("spec.nodeName", name, names.subdomain_problems(name))
    if (selector := spec.get("nodeSelector")) is not None:
        check_node_selector(selector, "spec.nodeSelector", errors)
        if len(selector.get("nodeSelectorTerms") or []) != 1:
            detail = "must have exactly one node selector term"
            errors.invalid("spec.nodeSelector.nodeSelectorTerms", selector.get("nodeSelectorTerms"), detail)
    for flag in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(flag) is False:
            errors.invalid(f"spec.{flag}", False, ONLY_TRUE)
    rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not said:
        errors.required("spec", rule)
    elif len(said) > 1:
        listed = ", ".join(f"`{name}`" for name in said)
        errors.invalid("spec", f"{{{listed}}}", f"{rule}, but multiple fields are set")


def _is_chosen(value: object) -> bool:
    """Whether the field selects nodes. A false flag or an empty node name does not; it is reported elsewhere."""
    return value is not None and value is not False and value != ""


def _check_devices(spec: Document, before: Document | None, errors: Errors, context: ValidationContext) -> None:
    devices = spec.get("devices") or []
    per_device = bool(spec.get("perDeviceNodeSelection"))
    fractional = context.enabled("DRAFractionalCapacityRange")
    digest = None
    if before is None and len(devices) >= _WORTH_REMEMBERING:
        digest = device_trees.digest_of(devices)
    driver = spec.get("driver") or ""
    key = (digest, driver, per_device, fractional)
    if digest is not None and key in _FAULTLESS:
        return
    limit = MAX_LARGE_DEVICES if any(_is_large(device) for device in devices) else MAX_DEVICES
    too_many = len(devices) > limit
    if too_many:
        errors.too_many("spec.devices", len(devices), limit)
    seen: set[str] = set()
    old_devices = {d.get("name"): d for d in (before.get("devices") or [])} if before else {}
    found_before = len(errors)
    unchanged = before is not None and same(devices, before.get("devices") or [])
    for i, device in enumerate(devices):
        name = device.get("name") or ""
        if name in seen and not too_many:
            errors.duplicate(f"spec.devices[{i}]", name)
        seen.add(name)
        old_device = old_devices.get(device.get("name"))
        check_device(
            device, old_device, f"spec.devices[{i}]", errors,
            per_device_nodes=per_device, fractional=fractional, driver=driver, only_declarative=too_many, unchanged=unchanged,
        )  # fmt: skip
    if digest is not None and len(errors) == found_before and not too_many:
        _FAULTLESS.add(key)


def _is_large(device: Document) -> bool:
    return bool(device.get("taints") or device.get("consumesCounters")) or has_list_attribute(device)


def _check_shared_counters(sets: list[Document], errors: Errors) -> None:
    digest = device_trees.digest_of(sets) if len(sets) >= _WORTH_REMEMBERING else None
    if digest is not None and digest in _FAULTLESS_COUNTERS:
        return
    found_before = len(errors)
    _check_counter_sets(sets, errors)
    if digest is not None and len(errors) == found_before:
        _FAULTLESS_COUNTERS.add(digest)


def _check_counter_sets(sets: list[Document], errors: Errors) -> None:
    path = "spec.sharedCounters"
    if len(sets) > MAX_COUNTER_SETS:
        errors.too_many(path, len(sets), MAX_COUNTER_SETS, declarative=True)
        return
    check_unique(sets, lambda s: s.get("name") or "", path, errors, declarative=True)
    for i, counter_set in enumerate(sets):
        name = counter_set.get("name") or ""
        if not name:
            errors.required(f"{path}[{i}].name", declarative=True)
        else:
            check_label(name, f"{path}[{i}].name", errors, declarative=True)
        check_counters(counter_set.get("counters") or {}, f"{path}[{i}].counters", errors)


def _check_partition_type(spec: Document, before: Document | None, context: ValidationContext, errors: Errors) -> None:
    name = spec.get("partitionTypeAttribute")
    if name is None:
        return
    path = "spec.partitionTypeAttribute"
    if not context.enabled("DRAPartitionableDevicesType"):
        errors.forbidden(path, "feature gate DRAPartitionableDevicesType is disabled")
    if before is None or before.get("partitionTypeAttribute") != name:
        check_full_name(name, path, errors)
    consuming = [(i, d) for i, d in enumerate(spec.get("devices") or []) if d.get("consumesCounters")]
    if not consuming:
        errors.invalid(path, name, "may only be set on a slice which declares devices that consume counters")
    if "/" not in name or (name.count("/") == 1 and not is_full_name(name)):
        return
    domain, _, identifier = name.partition("/")
    for i, device in consuming:
        attributes = device.get("attributes") or {}
        value = attributes.get(name)
        if value is None and domain == spec.get("driver"):
            value = attributes.get(identifier)
        here = f"spec.devices[{i}].attributes[{name}]"
        if value is None:
            detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            errors.required(here, detail)
        elif value.get("string") is None:
            detail = "must be a string value because `partitionTypeAttribute` names this attribute"
            errors.invalid(here, value, detail)


def check_skipped_operations(operations: list[str], old: list[str], path: str, errors: Errors) -> None:
    """Checks which node operations are skipped; values that were stored before are not checked again."""
    if "NodePrepareResources" in operations and not {"NodeUnprepareResources", "*"} & set(operations):
        detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        errors.invalid(path, operations, detail)
    if same(operations, old):
        return
    for i, operation in enumerate(operations):
        if operation not in old and operation not in NODE_OPERATIONS:
            errors.not_supported(f"{path}[{i}]", operation, NODE_OPERATIONS, declarative=True)
    check_unique(operations, lambda name: name, path, errors, declarative=True)
