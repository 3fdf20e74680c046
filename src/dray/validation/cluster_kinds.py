"""Rules for kinds of a stock cluster that Dray stores and does not act on: what a client must not leave out or change.

Runtime classes, revisions of controllers, and APIServices. Deeper rules of these kinds are left to the
components that use them.
"""

from __future__ import annotations

from base64 import b64decode

from dray.api import names
from dray.api.jsontext import go_json
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE, check_not_negative
from dray.validation.metadata import path_segment_problems
from dray.validation.pod_fields import check_labels, check_tolerations
from dray.validation.pods import check_overhead


def check_runtime_class(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    handler = new.get("handler") or ""
    if not handler:
        errors.required("handler", declarative=True)
    else:
        errors.each_invalid("handler", handler, names.label_problems(handler), declarative=True)
    check_overhead((new.get("overhead") or {}).get("podFixed") or {}, "overhead", errors)
    _check_scheduling(new.get("scheduling") or {}, errors)
    if old is not None and handler != (old.get("handler") or ""):
        errors.invalid("handler", handler, IMMUTABLE, declarative=True)


def _check_scheduling(scheduling: Document, errors: Errors) -> None:
    check_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector", errors)
    tolerations = scheduling.get("tolerations") or []
    check_tolerations(tolerations, "scheduling.tolerations", errors)
    seen: set[tuple[str, ...]] = set()
    for i, toleration in enumerate(tolerations):
        key = tuple(toleration.get(field) or "" for field in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.duplicate(f"scheduling.tolerations[{i}]", toleration)
        seen.add(key)


def check_revision(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    """A ControllerRevision is a snapshot: it never changes."""
    check_not_negative(new, "", ("revision",), errors)
    data = new.get("data")
    if old is not None:
        if data != old.get("data"):
            errors.invalid("data", data, IMMUTABLE)
    elif data is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(data, dict):
        errors.required("data", "data must be a valid JSON object")


# --- APIService ------------------------------------------------------------------------------------------------------

_CONDITION_STATUSES = ("True", "False", "Unknown")


def check_api_service(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    if old is not None and spec == (old.get("spec") or {}):
        return
    _check_group_version(new, spec, errors)
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < (spec.get(field) or 0) <= limit:
            errors.invalid(f"spec.{field}", spec.get(field) or 0, f"must be positive and less than {limit}")
    service, bundle = spec.get("service"), spec.get("caBundle") or ""
    skips = bool(spec.get("insecureSkipTLSVerify"))
    if service is None:
        if bundle:
            size = f"{len(b64decode(bundle))} bytes"
            errors.invalid("spec.caBundle", size, "local APIServices may not have a caBundle")
        if skips:
            errors.invalid("spec.insecureSkipTLSVerify", skips, "local APIServices may not have insecureSkipTLSVerify")
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            errors.required(f"spec.service.{field}")
    port = service.get("port", 443)
    if not 0 < port < 1 << 16:
        errors.invalid("spec.service.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    if skips and bundle:
        errors.invalid("spec.insecureSkipTLSVerify", skips, "may not be true if caBundle is present")


def _check_group_version(new: Document, spec: Document, errors: Errors) -> None:
    group, version = spec.get("group") or "", spec.get("version") or ""
    name, required = (new.get("metadata") or {}).get("name") or "", f"{version}.{group}"
    if name and name != required and not path_segment_problems(name):
        errors.invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: {go_json(required)}')
    if not group and version != "v1":
        errors.required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        errors.each_invalid("spec.group", group, names.subdomain_problems(group))
    errors.each_invalid("spec.version", version, names.dns_1035_label_problems(version))


def check_api_service_status(new: Document, old: Document | None, errors: Errors) -> None:
    for i, condition in enumerate((new.get("status") or {}).get("conditions") or ()):
        if (status := condition.get("status") or "") not in _CONDITION_STATUSES:
            errors.not_supported(f"status.conditions[{i}].status", status, _CONDITION_STATUSES)
