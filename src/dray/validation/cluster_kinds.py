"""Rules for kinds of a stock cluster that Dray stores and does not act on: what a client must not leave out or change.

Autoscalers, ingresses, runtime classes and endpoint slices. Deeper rules of these kinds are left to the
components that use them.
"""

from __future__ import annotations

from dray.api import names
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE
from dray.validation.pod_fields import check_labels, check_tolerations
from dray.validation.pods import check_overhead

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


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
