"""Rules about `metadata`, the same for every kind."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from dray.api import names
from dray.api.names import byte_length
from dray.api.times import parse_time
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE

MAX_ANNOTATIONS = 256 * 1024
MAX_GENERATED_PREFIX = 58
_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
_ONLY_BY_DELETION = "field is immutable; may only be changed via deletion"

# Kinds whose names follow another rule than a subdomain.
_LABEL_NAMED = frozenset(("Namespace", "StatefulSet", "Service"))
# Kinds whose updates are judged by all rules for new objects, the one for names included.
_NAMES_CHECKED_ON_UPDATE = frozenset(("Pod", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"))
# Kinds whose generateName nobody checks.
_UNCHECKED_PREFIX = frozenset(("DeviceClass",))


def check_metadata(document: Document, path: str, errors: Errors, *, namespaced: bool) -> None:
    """Metadata of a new object."""
    meta = document.get("metadata") or {}
    kind = document.get("kind", "")
    problems = name_rule(kind)
    if (prefix := meta.get("generateName")) and kind not in _UNCHECKED_PREFIX:
        errors.each_invalid(f"{path}.generateName", prefix, problems(_without_trailing_dash(prefix)))
    name = meta.get("name") or ""
    if not name and not prefix:
        errors.required(f"{path}.name", "name or generateName is required")
    else:
        # The server generates a name from the prefix and checks that name.
        generated = f"{(prefix or '')[:MAX_GENERATED_PREFIX]}xxxxx"
        errors.each_invalid(f"{path}.name", name or generated, problems(name or generated))
    if namespaced:
        _check_namespace(meta.get("namespace") or "", f"{path}.namespace", errors)
    elif meta.get("namespace"):
        errors.forbidden(f"{path}.namespace", "not allowed on this type")
    if (meta.get("generation") or 0) < 0:
        errors.invalid(f"{path}.generation", meta["generation"], "must be greater than or equal to 0")
    _check_common(meta, {}, path, errors)


def name_rule(kind: str) -> names.Problems:
    """The rule for the names of objects of a kind."""
    if kind in _LABEL_NAMED:
        return names.label_problems
    if kind == "IPAddress":
        return address_problems
    if kind == "ClusterTrustBundle":
        return trust_bundle_name_problems
    return path_segment_problems if kind in _PATH_NAMED else names.subdomain_problems


_PATH_NAMED = frozenset(
    (
        "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
        "PodDisruptionBudget", "CertificateSigningRequest", "APIService",
    )
)  # fmt: skip


def address_problems(name: str) -> tuple[str, ...]:
    """An IPAddress is named like the address, in its shortest form."""
    try:
        return () if str(ip_address(name)) == name else ("must be a valid canonical IP address",)
    except ValueError:
        return ("must be a valid IP address",)


def trust_bundle_name_problems(name: str) -> tuple[str, ...]:
    """The name of a signer may come first, with colons for its slashes."""
    return names.subdomain_problems(name.rpartition(":")[2])


def path_segment_problems(name: str) -> tuple[str, ...]:
    """RBAC names may be anything that fits into a URL."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{mark}'" for mark in ("/", "%") if mark in name)


def _without_trailing_dash(prefix: str) -> str:
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _check_namespace(namespace: str, path: str, errors: Errors) -> None:
    if not namespace:
        errors.required(path)
    else:
        errors.each_invalid(path, namespace, names.label_problems(namespace))


def check_labels(labels: Document, path: str, errors: Errors) -> None:
    for key, value in labels.items():
        errors.each_invalid(path, key, names.qualified_name_problems(key))
        errors.each_invalid(path, value, names.label_value_problems(value))


def check_annotations(annotations: Document, path: str, errors: Errors) -> None:
    for key in annotations:
        errors.each_invalid(path, key, names.qualified_name_problems(key.lower()))
    size = sum(byte_length(key) + byte_length(value) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        errors.too_long(path, MAX_ANNOTATIONS)


def _check_owners(owners: Any, path: str, errors: Errors) -> None:
    controllers = [i for i, owner in enumerate(owners) if owner.get("controller")]
    for i, owner in enumerate(owners):
        _check_owner(owner, f"{path}[{i}]", errors)
    if len(controllers) > 1:
        first, second = (f"{owners[i].get('kind', '')}/{owners[i].get('name', '')}" for i in controllers[:2])
        detail = (
            f'Only one reference can have Controller set to true. Found "true" in references for {first} and {second}'
        )
        errors.invalid(path, owners, detail)


def _check_owner(owner: Document, path: str, errors: Errors) -> None:
    version = owner.get("apiVersion") or ""
    if not version:
        errors.required(f"{path}.apiVersion", "must not be empty")
    elif version.count("/") > 1:
        errors.invalid(f"{path}.apiVersion", version, "must be <group>/<version> or <version>")
    for field in ("kind", "name", "uid"):
        if not owner.get(field):
            errors.required(f"{path}.{field}", "must not be empty")
    if version == "v1" and owner.get("kind") == "Event":
        errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _check_managed_fields(entries: Any, path: str, errors: Errors) -> None:
    for i, entry in enumerate(entries):
        here = f"{path}[{i}]"
        if entry.get("operation") not in ("Apply", "Update"):
            errors.invalid(f"{here}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
        if (entry.get("fieldsType") or "FieldsV1") != "FieldsV1":
            errors.invalid(f"{here}.fieldsType", entry["fieldsType"], "must be `FieldsV1`")
        _check_manager(entry.get("manager") or "", f"{here}.manager", errors)
        if byte_length(entry.get("subresource") or "") > 256:
            errors.too_long(f"{here}.subresource", 256)


def _check_manager(manager: str, path: str, errors: Errors) -> None:
    if byte_length(manager) > 128:
        errors.too_long(path, 128)
    if not manager.isprintable():
        errors.invalid(path, manager, "should only contain printable characters")


def _check_finalizers(finalizers: Any, path: str, errors: Errors) -> None:
    _check_finalizer_syntax(finalizers, path, errors)
    _check_finalizer_names(finalizers, path, errors)


def _check_finalizer_syntax(finalizers: Any, path: str, errors: Errors) -> None:
    for finalizer in finalizers:
        errors.each_invalid(path, finalizer, names.qualified_name_problems(finalizer))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        errors.invalid(path, finalizers, "finalizers orphan and foregroundDeletion cannot be both set")


def _check_finalizer_names(finalizers: Any, path: str, errors: Errors) -> None:
    for i, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errors.invalid(f"{path}[{i}]", finalizer, detail)


_COMMON = (
    ("labels", check_labels),
    ("annotations", check_annotations),
    ("ownerReferences", _check_owners),
    ("managedFields", _check_managed_fields),
    ("finalizers", _check_finalizers),
)


def _check_common(meta: Document, before: Document, path: str, errors: Errors) -> None:
    """What holds on create and on update alike; what is equal in `before` was checked before."""
    for name, check in _COMMON:
        value = meta.get(name)
        if value and value != before.get(name):
            check(value, f"{path}.{name}", errors)


# --- update ----------------------------------------------------------------------------------------------------------


def check_metadata_update(
    new: Document,
    old: Document,
    path: str,
    errors: Errors,
    *,
    needs_resource_version: bool = False,
    only_status: bool = False,
    trusts_stored: bool = False,
) -> None:
    """Metadata of a changed object. What the client left out was taken over from the old object before.

    With `trusts_stored` only what differs from the old object is checked.
    """
    meta, before = new.get("metadata") or {}, old.get("metadata") or {}
    trusted = before if trusts_stored else {}
    if meta.get("resourceVersion") and {**meta, "managedFields": None} == {**trusted, "managedFields": None}:
        _check_common(meta, trusted, path, errors)
        return
    _check_stored_name(new.get("kind", ""), meta.get("name") or "", f"{path}.name", errors, only_status)
    grace = meta.get("deletionGracePeriodSeconds")
    if grace is not None and grace != before.get("deletionGracePeriodSeconds"):
        errors.invalid(f"{path}.deletionGracePeriodSeconds", grace, _ONLY_BY_DELETION)
    if (when := meta.get("deletionTimestamp")) and not _same_time(when, before.get("deletionTimestamp")):
        errors.invalid(f"{path}.deletionTimestamp", when, _ONLY_BY_DELETION)
    if before.get("deletionTimestamp"):
        _check_no_new_finalizers(meta, before, f"{path}.finalizers", errors)
    if needs_resource_version and not meta.get("resourceVersion"):
        errors.invalid(f"{path}.resourceVersion", "", "must be specified for an update")
    if (meta.get("generation") or 0) < (before.get("generation") or 0):
        errors.invalid(f"{path}.generation", meta.get("generation") or 0, "must not be decremented")
    for field in ("name", "namespace", "uid"):
        if (meta.get(field) or "") != (before.get(field) or ""):
            errors.invalid(f"{path}.{field}", meta.get(field) or "", IMMUTABLE)
    if before.get("creationTimestamp") and not _same_time(meta.get("creationTimestamp"), before["creationTimestamp"]):
        errors.invalid(f"{path}.creationTimestamp", meta.get("creationTimestamp"), IMMUTABLE)
    _check_common(meta, trusted, path, errors)


def _check_stored_name(kind: str, name: str, path: str, errors: Errors, only_status: bool) -> None:
    """Checks a stored name again: all kinds refuse what no URL can hold, some kinds check all rules."""
    errors.each_invalid(path, name, path_segment_problems(name))
    if kind in _NAMES_CHECKED_ON_UPDATE and not only_status:
        errors.each_invalid(path, name, names.subdomain_problems(name))


def _check_no_new_finalizers(meta: Document, before: Document, path: str, errors: Errors) -> None:
    known = set(before.get("finalizers") or ())
    added = [name for name in meta.get("finalizers") or () if name not in known]
    if added:
        listed = ", ".join(f'"{name}"' for name in sorted(added))
        errors.forbidden(
            path,
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )


def _same_time(a: Any, b: Any) -> bool:
    if a == b:
        return True
    try:
        return bool(parse_time(a) == parse_time(b))
    except (TypeError, ValueError):
        return False
