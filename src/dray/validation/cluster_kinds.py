"""Rules for kinds of a stock cluster that Dray stores and does not act on: what a client must not leave out or change.

Volumes, autoscalers, ingresses, runtime classes, endpoint slices and cron jobs. Deeper rules of these kinds are left to the
components that use them.
"""

from __future__ import annotations

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE
from dray.validation.pod_fields import check_labels, check_tolerations
from dray.validation.pods import check_overhead
from dray.validation.workloads import check_job_spec

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")


def check_volume_claim(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    if old is not None:
        return
    spec = new.get("spec") or {}
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            errors.not_supported("spec.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        errors.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")
    path = "spec.resources[storage]"
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        errors.required(path)
    elif Quantity.parse(storage).nanos <= 0:
        errors.invalid(path, storage, "must be greater than zero")


def check_storage_class(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    provisioner = new.get("provisioner") or ""
    if not provisioner:
        errors.required("provisioner", declarative=True)
    else:
        errors.each_invalid("provisioner", provisioner.lower(), names.qualified_name_problems(provisioner.lower()))


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


def check_endpoint_slice(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    kind = new.get("addressType") or ""
    if not kind:
        errors.required("addressType", declarative=True)
    elif kind not in ADDRESS_TYPES:
        errors.not_supported("addressType", kind, ADDRESS_TYPES, declarative=True)
    if old is not None and kind != (old.get("addressType") or ""):
        errors.invalid("addressType", kind, IMMUTABLE, declarative=True)


def check_ingress(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        errors.invalid("spec", None, "either `defaultBackend` or `rules` must be specified")


def check_autoscaler(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1", declarative=True)
    if least is not None and most < least:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    if most == 0:
        errors.required("spec.maxReplicas", declarative=True)
    elif most < 0:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1", declarative=True)
    target = spec.get("scaleTargetRef") or {}
    for field in ("kind", "name"):
        if not target.get(field):
            errors.required(f"spec.scaleTargetRef.{field}")
    before = ((old or {}).get("spec") or {}).get("scaleTargetRef") or {}
    is_kept = old is not None and all(before.get(field) == target.get(field) for field in ("kind", "apiVersion"))
    # Only one kind of the core group can be scaled.
    if "/" not in (target.get("apiVersion") or "") and target.get("kind") != "ReplicationController" and not is_kept:
        errors.invalid(
            "spec.scaleTargetRef.apiVersion", target.get("apiVersion") or "", "apiVersion must specify API group"
        )


def check_cron_job(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    if not spec.get("schedule"):
        errors.required("spec.schedule", declarative=True)
    policy = spec.get("concurrencyPolicy") or ""
    if policy and policy not in CONCURRENCY_POLICIES:
        errors.not_supported("spec.concurrencyPolicy", policy, CONCURRENCY_POLICIES)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    check_job_spec(job, "spec.jobTemplate.spec", context, errors)
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if (spec.get(field) or 0) < 0:
            errors.invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0")
