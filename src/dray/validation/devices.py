"""One device of a ResourceSlice.

`only_declarative` asks for the generated rules alone: they still look into the devices of a slice that has too many, while
the handwritten ones stop at the number.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api import names
from dray.api.names import byte_length
from dray.api.semver import is_semver
from dray.validation.capacity_policy import check_capacity
from dray.validation.equality import same
from dray.validation.errors import Document, Errors
from dray.validation.formats import check_enum, check_label, check_qualified, check_unique, key_path
from dray.validation.node_allocatable import check_node_allocatable
from dray.validation.node_selector import check_node_selector

MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_ATTRIBUTE_TEXT = 64
MAX_TAINTS = 16
MAX_CONSUMPTIONS = 2
MAX_COUNTERS = 32
MAX_GROUPS = 2
MAX_BINDING_CONDITIONS = 4

SCALARS = ("int", "bool", "string", "version")
LISTS = ("ints", "bools", "strings", "versions")
_KINDS = SCALARS + LISTS
_LIST_KINDS = frozenset(LISTS)
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")

_ONE_OF = ", ".join(f"`{kind}`" for kind in _KINDS)


def check_device(
    device: Document,
    old: Document | None,
    path: str,
    errors: Errors,
    *,
    per_device_nodes: bool,
    fractional: bool,
    driver: str,
    only_declarative: bool,
    unchanged: bool = False,
) -> None:
    """`old` is the device of the same name before an update; `unchanged`: all devices of the slice are as before.

    Handwritten rules look at what changed in a device, generated ones at the list of devices as a whole.
    """
    generated_old = old if unchanged else None
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if not only_declarative:
        check_label(device.get("name") or "", f"{path}.name", errors)
        _check_totals(attributes, capacity, path, errors)
    _check_attributes(attributes, f"{path}.attributes", errors, only_declarative)
    if not only_declarative and (old is None or not same(capacity, old.get("capacity") or {})):
        shared = device.get("allowMultipleAllocations") is True
        check_capacity(capacity, f"{path}.capacity", errors, shared=shared, fractional=fractional)
    if device.get("taints") and (old is None or not same(device["taints"], old.get("taints") or [])):
        _check_taints(device["taints"], f"{path}.taints", errors, only_declarative)
    if device.get("consumesCounters"):
        _check_consumptions(
            device["consumesCounters"], generated_old, f"{path}.consumesCounters", errors, only_declarative
        )
    if not only_declarative:
        _check_node_selection(device, path, errors, per_device_nodes)
    _check_binding(device, path, errors, only_declarative)
    check_node_allocatable(device, generated_old, path, errors, driver=driver, only_declarative=only_declarative)


def has_list_attribute(device: Document) -> bool:
    return not all(_LIST_KINDS.isdisjoint(value) for value in (device.get("attributes") or {}).values())


def _check_totals(attributes: Document, capacity: Document, path: str, errors: Errors) -> None:
    total = len(attributes) + len(capacity)
    if total > MAX_ATTRIBUTES_AND_CAPACITIES:
        errors.invalid(path, total, "the total number of attributes and capacities must not exceed 32")
    values = 0
    for value in attributes.values():
        values += 1 if _LIST_KINDS.isdisjoint(value) else sum(len(value[kind]) for kind in LISTS if kind in value)
    if values > MAX_ATTRIBUTE_VALUES:
        errors.invalid(path, values, "the total number of attribute values must not exceed 48")


# --- attributes ------------------------------------------------------------------------------------------------------


def _check_attributes(attributes: Document, path: str, errors: Errors, only_declarative: bool) -> None:
    for key, value in attributes.items():
        if not only_declarative:
            check_qualified(key, path, errors)
        # The common case, one short scalar, is decided without building paths.
        if len(value) == 1 and not only_declarative:
            ((kind, said),) = value.items()
            if kind in ("int", "bool") or (kind == "string" and len(said) <= MAX_ATTRIBUTE_TEXT and said.isascii()):
                continue
        # Handwritten rules shorten a long key in the path, generated ones do not.
        _check_attribute(value, key_path(path, key), f"{path}[{key}]", errors, only_declarative)


def _check_attribute(value: Document, path: str, full_path: str, errors: Errors, only_declarative: bool) -> None:
    present = [kind for kind in _KINDS if kind in value]
    # An empty list is there for the handwritten rule and absent for the generated one.
    filled = [kind for kind in present if kind in SCALARS or value[kind]]
    if not only_declarative:
        _check_attribute_texts(value, path, errors)
    if len(filled) != 1:
        _report_union(filled, full_path, errors, declarative=True)
    if len(present) != 1 and not only_declarative and (len(filled) == 1 or path != full_path):
        _report_union(present, path, errors, declarative=False)


def _report_union(said: list[str], path: str, errors: Errors, *, declarative: bool) -> None:
    if not said:
        errors.invalid(path, "", f"must specify one of: {_ONE_OF}", declarative=declarative)
    else:
        listed = ", ".join(said)
        errors.invalid(path, f"{{{listed}}}", f"must specify exactly one of: {_ONE_OF}", declarative=declarative)


def _check_attribute_texts(value: Document, path: str, errors: Errors) -> None:
    if (text := value.get("string")) is not None:
        _check_text(text, f"{path}.string", errors)
    if (text := value.get("version")) is not None:
        _check_version(text, f"{path}.version", errors)
    for kind in LISTS:
        if kind in value and not value[kind]:
            errors.invalid(f"{path}.{kind}", value[kind], "must not be empty if specified")
    for i, text in enumerate(value.get("strings") or ()):
        _check_text(text, f"{path}.strings[{i}]", errors)
    for i, text in enumerate(value.get("versions") or ()):
        _check_version(text, f"{path}.versions[{i}]", errors)


def _check_text(text: str, path: str, errors: Errors) -> None:
    if byte_length(text) > MAX_ATTRIBUTE_TEXT:
        errors.too_long(path, MAX_ATTRIBUTE_TEXT)


def _check_version(text: str, path: str, errors: Errors) -> None:
    if not is_semver(text):
        errors.invalid(path, text, names.SEMVER_RULE)
    if byte_length(text) > MAX_ATTRIBUTE_TEXT:
        errors.too_long(path, MAX_ATTRIBUTE_TEXT)


# --- taints ----------------------------------------------------------------------------------------------------------


def _check_taints(taints: list[Document], path: str, errors: Errors, only_declarative: bool) -> None:
    too_many = len(taints) > MAX_TAINTS
    if too_many and not only_declarative:
        errors.too_many(path, len(taints), MAX_TAINTS)
    for i, taint in enumerate(taints):
        if not too_many and not only_declarative:
            check_taint_names(taint, f"{path}[{i}]", errors)
        check_enum(taint.get("effect") or "", TAINT_EFFECTS, f"{path}[{i}].effect", errors, required=True)


def check_taint_names(taint: Document, path: str, errors: Errors) -> None:
    key, value = taint.get("key") or "", taint.get("value") or ""
    errors.each_invalid(f"{path}.key", key, names.qualified_name_problems(key))
    errors.each_invalid(f"{path}.value", value, names.label_value_problems(value))


# --- counters --------------------------------------------------------------------------------------------------------


def _check_consumptions(
    consumptions: list[Document], old: Document | None, path: str, errors: Errors, only_declarative: bool
) -> None:
    if len(consumptions) > MAX_CONSUMPTIONS:
        errors.too_many(path, len(consumptions), MAX_CONSUMPTIONS, declarative=True)
        return
    check_unique(consumptions, lambda c: c.get("counterSet") or "", path, errors, declarative=True)
    before = {c.get("counterSet"): c for c in (old or {}).get("consumesCounters") or []}
    for i, consumption in enumerate(consumptions):
        here = f"{path}[{i}]"
        name = consumption.get("counterSet") or ""
        if not name:
            errors.required(f"{here}.counterSet", declarative=True)
        else:
            check_label(name, f"{here}.counterSet", errors, declarative=True)
        check_counters(consumption.get("counters") or {}, f"{here}.counters", errors, only_declarative)
        old_groups = (before.get(consumption.get("counterSet")) or {}).get("compatibilityGroups") or []
        _check_groups(consumption.get("compatibilityGroups") or [], old_groups, f"{here}.compatibilityGroups", errors)


def check_counters(counters: Document, path: str, errors: Errors, only_declarative: bool = False) -> None:
    """Bad keys are named even when there are too many counters."""
    if not counters:
        errors.required(path, declarative=True)
    if len(counters) > MAX_COUNTERS and not only_declarative:
        errors.too_many(path, len(counters), MAX_COUNTERS)
    for key in counters:
        errors.each_invalid(path, key, names.label_problems(key), declarative=True)


def _check_groups(groups: list[str], old: list[str], path: str, errors: Errors) -> None:
    if groups == old:
        return
    if len(groups) > MAX_GROUPS:
        errors.too_many(path, len(groups), MAX_GROUPS, declarative=True)
        return
    for i, group in enumerate(groups):
        check_label(group, f"{path}[{i}]", errors, declarative=True)
    check_unique(groups, lambda name: name, path, errors, declarative=True)


# --- where the device is ---------------------------------------------------------------------------------------------


def _check_node_selection(device: Document, path: str, errors: Errors, per_device_nodes: bool) -> None:
    said = [name for name in ("nodeName", "nodeSelector", "allNodes") if device.get(name) is not None]
    if not per_device_nodes:
        if said:
            detail = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
                "in the ResourceSlice spec"
            )
            errors.invalid(path, None, detail)
        return
    _check_chosen_nodes(device, path, errors)
    chosen = [name for name in said if device[name] is not False and device[name] != ""]
    rule = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )
    if not chosen:
        errors.required(path, rule)
    elif len(chosen) > 1:
        listed = ", ".join(f"`{name}`" for name in chosen)
        errors.invalid(path, f"{{{listed}}}", rule)


def _check_chosen_nodes(device: Document, path: str, errors: Errors) -> None:
    if (name := device.get("nodeName")) is not None:
        if name == "":
            errors.invalid(f"{path}.nodeName", name, "must not be empty")
        else:
            errors.each_invalid(f"{path}.nodeName", name, names.subdomain_problems(name))
    if (selector := device.get("nodeSelector")) is not None:
        check_node_selector(selector, f"{path}.nodeSelector", errors)
    if device.get("allNodes") is False:
        errors.invalid(f"{path}.allNodes", False, "must be either unset or set to true")


# --- binding conditions ----------------------------------------------------------------------------------------------


def _check_binding(holder: Document, path: str, errors: Errors, only_declarative: bool) -> None:
    conditions, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    if conditions or failures:
        check_binding_conditions(conditions, failures, path, errors, only_declarative=only_declarative)


def check_binding_conditions(
    conditions: list[str], failures: list[str], path: str, errors: Errors, *, only_declarative: bool = False
) -> None:
    """Both lists or none; also for allocation results, which carry copies."""
    _check_condition_list(conditions, (), f"{path}.bindingConditions", errors, only_declarative)
    _check_condition_list(failures, conditions, f"{path}.bindingFailureConditions", errors, only_declarative)
    if only_declarative:
        return
    if not conditions and failures:
        detail = "bindingConditions are required to use bindingFailureConditions"
        errors.invalid(f"{path}.bindingConditions", conditions, detail)
    if conditions and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        errors.invalid(f"{path}.bindingFailureConditions", failures, detail)


def _check_condition_list(
    items: list[str], others: Sequence[str], path: str, errors: Errors, only_declarative: bool
) -> None:
    """`others`: conditions that may not be in this list as well."""
    too_many = len(items) > MAX_BINDING_CONDITIONS
    if too_many:
        errors.too_many(path, len(items), MAX_BINDING_CONDITIONS, declarative=True)
    if only_declarative:
        return
    seen: set[str] = set()
    for i, item in enumerate(items):
        if item in seen:
            errors.duplicate(f"{path}[{i}]", item)
        seen.add(item)
        if not too_many:
            errors.each_invalid(f"{path}[{i}]", item, names.qualified_name_problems(item))
        if item in others:
            errors.invalid(f"{path}[{i}]", item, "bindingFailureConditions must not overlap with bindingConditions")
