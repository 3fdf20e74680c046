"""Rules for Deployment, ReplicaSet, ReplicationController, DaemonSet and StatefulSet."""

from __future__ import annotations

from dray.validation.errors import Document, Errors, FieldError, ValidationContext
from dray.validation.formats import IMMUTABLE, check_label, check_not_negative
from dray.validation.pod_templates import (
    MISMATCH,
    check_matches,
    check_runs_forever,
    check_template,
    is_empty,
    is_valid_selector,
)
from dray.validation.shares import check_at_most_all, check_share, is_none
from dray.validation.volumes import check_claim_spec

STRATEGIES = ("Recreate", "RollingUpdate")


# --- Deployment and ReplicaSet ---------------------------------------------------------------------------------------


def check_deployment(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    check_not_negative(spec, "spec", ("replicas",), errors)
    _check_replicated(spec, context, errors)
    if old is None or spec.get("strategy") != before.get("strategy"):
        _check_strategy(spec.get("strategy") or {}, errors)
    check_not_negative(spec, "spec", ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), errors)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    _check_kept(spec, old, ("selector",), errors)


def check_replica_set(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    check_not_negative(spec, "spec", ("replicas", "minReadySeconds"), errors)
    _check_replicated(spec, context, errors)
    _check_kept(spec, old, ("selector",), errors)


def _check_replicated(spec: Document, context: ValidationContext, errors: Errors) -> None:
    """Selector and template of a Deployment or a ReplicaSet, with the same words for both."""
    selector, template = spec.get("selector"), spec.get("template") or {}
    if selector is None:
        errors.required("spec.selector")
    is_valid = is_valid_selector(selector, "spec.selector", errors)
    if is_empty(selector):
        errors.invalid("spec.selector", selector, "empty selector is invalid for deployment")
    if not is_valid:
        errors.invalid("spec.selector", selector, "invalid label selector")
        return
    check_matches(selector, template, "spec.template", errors)
    check_template(template, "spec.template", context, errors)
    check_runs_forever(template.get("spec") or {}, "ReplicaSet", errors)


def _check_strategy(strategy: Document, errors: Errors) -> None:
    kind, rolling = strategy.get("type") or "RollingUpdate", strategy.get("rollingUpdate")
    if kind not in STRATEGIES:
        errors.not_supported("spec.strategy", _as_printed(strategy), STRATEGIES)
    elif kind == "Recreate" and rolling is not None:
        errors.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif rolling is not None:
        path = "spec.strategy.rollingUpdate"
        unavailable, surge = (rolling.get(name) or 0 for name in ("maxUnavailable", "maxSurge"))
        check_share(unavailable, f"{path}.maxUnavailable", errors)
        check_share(surge, f"{path}.maxSurge", errors)
        if is_none(unavailable) and is_none(surge):
            errors.invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        check_at_most_all(unavailable, f"{path}.maxUnavailable", errors)


def _as_printed(strategy: Document) -> Document:
    """A strategy as Go prints it."""
    rolling = strategy.get("rollingUpdate")
    shown = rolling and {f"{name[0].upper()}{name[1:]}": value for name, value in rolling.items()}
    return {"Type": strategy.get("type") or "", "RollingUpdate": shown}


# --- ReplicationController -------------------------------------------------------------------------------------------


def check_replication_controller(
    new: Document, old: Document | None, context: ValidationContext, errors: Errors
) -> None:
    """Its selector is a plain map and may change. One that does not match the template would make pods without end."""
    spec = new.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        errors.required("spec.selector")
    check_not_negative(spec, "spec", ("replicas", "minReadySeconds"), errors)
    if template is None:
        errors.required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and not selector.items() <= labels.items():
        errors.invalid("spec.template.metadata.labels", labels or None, MISMATCH)
    check_template(template, "spec.template", context, errors)
    check_runs_forever(template.get("spec") or {}, "ReplicationController", errors)


# --- DaemonSet -------------------------------------------------------------------------------------------------------


def check_daemon_set(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    selector, template = spec.get("selector"), spec.get("template") or {}
    _check_kept(spec, old, ("selector",), errors)
    if is_valid_selector(selector, "spec.selector", errors):
        check_matches(selector, template, "spec.template", errors)
    if is_empty(selector):
        errors.invalid("spec.selector", selector, "empty selector is invalid for daemonset")
    check_template(template, "spec.template", context, errors)
    check_runs_forever(template.get("spec") or {}, "DaemonSet", errors)
    check_not_negative(spec, "spec", ("minReadySeconds",), errors)
    _check_daemon_strategy(spec.get("updateStrategy") or {}, errors)
    check_not_negative(spec, "spec", ("revisionHistoryLimit",), errors)


def _check_daemon_strategy(strategy: Document, errors: Errors) -> None:
    kind, rolling = strategy.get("type") or "RollingUpdate", strategy.get("rollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        errors.not_supported("spec.updateStrategy", _as_printed(strategy), ("RollingUpdate", "OnDelete"))
    if kind != "RollingUpdate" or rolling is None:
        return
    shares = {name: rolling.get(name) or 0 for name in ("maxUnavailable", "maxSurge")}
    path = "spec.updateStrategy.rollingUpdate"
    for check in (check_share, check_at_most_all):
        for name, value in shares.items():
            check(value, f"{path}.{name}", errors)
    missing = [name for name, value in shares.items() if is_none(value)]
    if not missing:
        errors.invalid(f"{path}.maxSurge", shares["maxSurge"], "may not be set when maxUnavailable is non-zero")
    if len(missing) == 2:
        errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


# --- StatefulSet -----------------------------------------------------------------------------------------------------

MANAGEMENT_POLICIES = ("OrderedReady", "Parallel")
RETENTION_POLICIES = ("Retain", "Delete")
_FIXED = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")


def check_stateful_set(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    policy = spec.get("podManagementPolicy") or "OrderedReady"
    if policy not in MANAGEMENT_POLICIES:
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    _check_stateful_strategy(spec.get("updateStrategy") or {}, errors)
    for name, retention in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        if retention and retention not in RETENTION_POLICIES:
            errors.not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", retention, RETENTION_POLICIES)
    # What cannot change any more need not be right any more: an earlier version may have taken it.
    for i, claim in enumerate(spec.get("volumeClaimTemplates") or () if old is None else ()):
        check_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{i}].spec", errors)
    check_not_negative(spec, "spec", ("replicas", "minReadySeconds"), errors)
    check_not_negative(spec.get("ordinals") or {}, "spec.ordinals", ("start",), errors)
    if (service := spec.get("serviceName")) and old is None:
        check_label(service, "spec.serviceName", errors)
    _check_stateful_pods(spec, (old or {}).get("spec"), context, errors)
    _check_kept(spec, old, _FIXED, errors)


def _check_stateful_strategy(strategy: Document, errors: Errors) -> None:
    kind, rolling = strategy.get("type") or "RollingUpdate", strategy.get("rollingUpdate")
    path = "spec.updateStrategy.rollingUpdate"
    if kind not in ("RollingUpdate", "OnDelete"):
        errors.invalid("spec.updateStrategy", _as_printed(strategy), "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None and kind == "OnDelete":
        shown = {"Partition": rolling.get("partition") or 0, "MaxUnavailable": rolling.get("maxUnavailable")}
        errors.invalid(path, shown, "only allowed for updateStrategy 'RollingUpdate'")
    elif rolling is not None:
        check_not_negative(rolling, path, ("partition",), errors)
        if (unavailable := rolling.get("maxUnavailable")) is not None:
            check_share(unavailable, f"{path}.maxUnavailable", errors)
            if is_none(unavailable):
                errors.invalid(f"{path}.maxUnavailable", unavailable, "cannot be 0")
            check_at_most_all(unavailable, f"{path}.maxUnavailable", errors)


def _check_stateful_pods(spec: Document, before: Document | None, context: ValidationContext, errors: Errors) -> None:
    selector, template = spec.get("selector"), spec.get("template") or {}
    if selector is None:
        errors.required("spec.selector")
    is_valid = is_valid_selector(selector, "spec.selector", errors)
    if is_empty(selector):
        errors.invalid("spec.selector", selector, "empty selector is invalid for statefulset")
    if is_valid:
        check_matches(selector, template, "spec.template", errors)
        found = _template_errors(spec, context)
        # A set with a template that an earlier version took can still be scaled, and lose its finalizers.
        if found and (before is None or not _template_errors(before, context)):
            errors.found += found
    else:
        errors.invalid("spec.selector", selector, "")
    check_runs_forever(template.get("spec") or {}, "StatefulSet", errors)


def _template_errors(spec: Document, context: ValidationContext) -> list[FieldError]:
    template, found = spec.get("template") or {}, Errors()
    pod = with_claimed_volumes(spec, template.get("spec") or {})
    check_template({**template, "spec": pod}, "spec.template", context, found)
    return found.found


def with_claimed_volumes(spec: Document, pod: Document) -> Document:
    """A StatefulSet gives its pods volumes that the template may mount without naming them."""
    claimed = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    known = {volume.get("name") for volume in pod.get("volumes") or ()}
    added = [{"name": name, "persistentVolumeClaim": {}} for name in claimed if name and name not in known]
    return {**pod, "volumes": [*(pod.get("volumes") or ()), *added]} if added else pod


def _check_kept(spec: Document, old: Document | None, fields: tuple[str, ...], errors: Errors) -> None:
    if old is None:
        return
    before = old.get("spec") or {}
    for name in fields:
        if (spec.get(name) or None) != (before.get(name) or None):
            errors.invalid(f"spec.{name}", spec.get(name), IMMUTABLE)
