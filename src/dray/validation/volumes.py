"""Rules for PersistentVolumeClaim, StorageClass and VolumeAttributesClass. The drivers of volumes check the rest."""

from __future__ import annotations

from collections.abc import Sequence

from dray.api import names
from dray.api.data_sources import with_both_sources
from dray.api.names import byte_length
from dray.api.quantity import Quantity
from dray.validation.equality import same
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE, check_unique
from dray.validation.label_selectors import check_label_selector

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
RECLAIM_POLICIES = ("Delete", "Retain")
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
MAX_PARAMETERS = 512
MAX_PARAMETERS_SIZE = 256 * 1024


def check_volume_claim(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    check_claim_spec(spec, "spec", errors)
    if old is None:
        _check_sources(spec, errors)
    else:
        _check_claim_kept(new, old, errors)


def _check_sources(spec: Document, errors: Errors) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        _check_source(source, "spec.dataSource", errors)
    if reference is None:
        return
    _check_source(reference, "spec.dataSourceRef", errors)
    namespace = reference.get("namespace") or ""
    if namespace:
        errors.each_invalid("spec.dataSourceRef.namespace", namespace, names.label_problems(namespace))
    if source is None:
        return
    # Kubernetes prints the path of the field as its value, which is empty.
    if namespace:
        errors.invalid("spec", {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name")):
        errors.invalid("spec", {}, "must match dataSourceRef")


def _check_source(source: Document, path: str, errors: Errors) -> None:
    kind, group = source.get("kind") or "", source.get("apiGroup") or ""
    for field in ("name", "kind"):
        if not source.get(field):
            errors.required(f"{path}.{field}")
    if group:
        errors.each_invalid(f"{path}.apiGroup", group, names.subdomain_problems(group))
    elif kind != "PersistentVolumeClaim":
        rule = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.invalid(path, kind, rule)


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
    spec, status = new.get("spec") or {}, old.get("status") or {}
    # An earlier version kept only the field that was sent.
    before = with_both_sources(old.get("spec") or {}, old.get("spec"))
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
    _check_provisioner(new, "provisioner", errors, declarative=True)
    _check_parameters(new.get("parameters") or {}, errors)
    _check_topologies(new.get("allowedTopologies") or (), errors)
    for field, known in (("reclaimPolicy", RECLAIM_POLICIES), ("volumeBindingMode", BINDING_MODES)):
        if (value := new.get(field)) and value not in known:
            errors.not_supported(field, value, known)
    for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        if old is not None and (new.get(field) or None) != (old.get(field) or None):
            errors.invalid(field, None, IMMUTABLE, declarative=True)


def check_attributes_class(new: Document, old: Document | None, errors: Errors) -> None:
    """What an earlier version took may stay."""
    fields = ("driverName", "parameters")
    changed = [field for field in fields if old is not None and (new.get(field) or None) != (old.get(field) or None)]
    if old is not None and not changed:
        return
    for field in changed:
        errors.forbidden(field, f"updates to {field} are forbidden.")
    _check_provisioner(new, "driverName", errors)
    parameters = new.get("parameters") or {}
    _check_parameters(parameters, errors)
    if not parameters:
        errors.required("parameters", "must contain at least one key/value pair")


def _check_provisioner(new: Document, field: str, errors: Errors, *, declarative: bool = False) -> None:
    name = (new.get(field) or "").lower()
    if not name:
        errors.required(field, declarative=declarative)
    else:
        errors.each_invalid(field, name, names.qualified_name_problems(name))


def _check_parameters(parameters: Document, errors: Errors) -> None:
    if len(parameters) > MAX_PARAMETERS:
        errors.too_long("parameters", MAX_PARAMETERS)
        return
    if "" in parameters:
        errors.invalid("parameters", "", "field can not be empty.")
    if sum(byte_length(key) + byte_length(value) for key, value in parameters.items()) > MAX_PARAMETERS_SIZE:
        errors.too_long("parameters", MAX_PARAMETERS_SIZE)


def _check_topologies(topologies: Sequence[Document], errors: Errors) -> None:
    # A term without requirements counts as said already.
    said: set[frozenset[tuple[str, frozenset[str]]]] = {frozenset()}
    for i, topology in enumerate(topologies):
        path = f"allowedTopologies[{i}].matchLabelExpressions"
        requirements = topology.get("matchLabelExpressions") or ()
        _check_requirements(requirements, path, errors)
        by_key = {each.get("key") or "": frozenset(each.get("values") or ()) for each in requirements}
        term = frozenset(by_key.items())
        if term in said:
            errors.duplicate(path, "")
        said.add(term)


def _check_requirements(requirements: Sequence[Document], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, requirement in enumerate(requirements):
        here, key, values = f"{path}[{i}]", requirement.get("key") or "", requirement.get("values") or ()
        if not values:
            errors.required(f"{here}.values")
        check_unique(values, lambda value: value, f"{here}.values", errors, declarative=False)
        errors.each_invalid(f"{here}.key", key, names.qualified_name_problems(key))
        if key in seen:
            errors.duplicate(f"{here}.key", key)
        seen.add(key)
