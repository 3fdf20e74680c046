"""Rules for Deployment, ReplicaSet, ReplicationController, DaemonSet and Job: the selector and the pod template."""

from __future__ import annotations

import re

import msgspec

from dray.api.matching import matches_labels
from dray.api.meta import LabelSelector
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE
from dray.validation.pods import RESTART_POLICIES, check_pod_spec

SELECTING = ("ReplicaSet", "DaemonSet", "Deployment", "StatefulSet")
MISMATCH = "`selector` does not match template `labels`"


def check_pod_maker(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    """A ReplicaSet, DaemonSet, Deployment, StatefulSet or Job."""
    kind, spec = new.get("kind", ""), new.get("spec") or {}
    template = spec.get("template") or {}
    if kind in SELECTING:
        _check_selector(kind, spec, template, errors)
    if kind == "Job":
        check_job_spec(spec, "spec", context, errors)
    else:
        pod = template.get("spec") or {}
        check_pod_spec(_with_claimed_volumes(spec, pod), "spec.template.spec", context, errors)
        _check_restart_policy(pod, errors)
        _check_not_negative(spec, "spec", ("replicas", "minReadySeconds", "revisionHistoryLimit"), errors)
    before = (old or {}).get("spec") or {}
    if kind == "Deployment" and (old is None or spec.get("strategy") != before.get("strategy")):
        _check_strategy(spec.get("strategy") or {}, errors)
    if old is not None:
        _check_fixed(kind, spec, before, errors)


def check_replication_controller(
    new: Document, old: Document | None, context: ValidationContext, errors: Errors
) -> None:
    """Its selector is a plain map and may change. One that does not match the template would make pods without end."""
    spec = new.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        errors.required("spec.selector")
    _check_not_negative(spec, "spec", ("replicas", "minReadySeconds"), errors)
    if template is None:
        errors.required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and not selector.items() <= labels.items():
        errors.invalid("spec.template.metadata.labels", labels or None, MISMATCH)
    pod = template.get("spec") or {}
    check_pod_spec(pod, "spec.template.spec", context, errors)
    _check_restart_policy(pod, errors)


def check_job_spec(spec: Document, path: str, context: ValidationContext, errors: Errors) -> None:
    """The spec of a Job, or of the jobs that a CronJob makes."""
    pod = (spec.get("template") or {}).get("spec") or {}
    check_pod_spec(pod, f"{path}.template.spec", context, errors)
    if (pod.get("restartPolicy") or "Always") == "Always":
        errors.required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    _check_not_negative(spec, path, ("parallelism", "completions", "backoffLimit"), errors)


def _check_not_negative(spec: Document, path: str, fields: tuple[str, ...], errors: Errors) -> None:
    for name in fields:
        if (spec.get(name) or 0) < 0:
            errors.invalid(f"{path}.{name}", spec[name], "must be greater than or equal to 0")


def _with_claimed_volumes(spec: Document, pod: Document) -> Document:
    """A StatefulSet gives its pods volumes that the template may mount without naming them."""
    claimed = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    known = {volume.get("name") for volume in pod.get("volumes") or ()}
    added = [{"name": name, "persistentVolumeClaim": {}} for name in claimed if name and name not in known]
    return {**pod, "volumes": [*(pod.get("volumes") or ()), *added]} if added else pod


def _check_selector(kind: str, spec: Document, template: Document, errors: Errors) -> None:
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        if kind != "DaemonSet":
            errors.required("spec.selector")
        errors.invalid("spec.template.metadata.labels", labels or None, MISMATCH)
        return
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.invalid("spec.selector", selector, f"empty selector is invalid for {kind.lower()}")
        return
    if not matches_labels(msgspec.convert(selector, LabelSelector), labels):
        errors.invalid("spec.template.metadata.labels", labels, MISMATCH)


def _check_restart_policy(pod: Document, errors: Errors) -> None:
    policy = pod.get("restartPolicy") or "Always"
    if policy in RESTART_POLICIES and policy != "Always":
        errors.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))


def _check_fixed(kind: str, spec: Document, before: Document, errors: Errors) -> None:
    """A selector never changes, and a job that is not suspended keeps its pod template."""
    if spec.get("selector") != before.get("selector"):
        errors.invalid("spec.selector", spec.get("selector"), IMMUTABLE)
    if kind == "Job" and spec.get("completions") != before.get("completions") and not _is_elastic(spec):
        errors.invalid("spec.completions", spec.get("completions"), IMMUTABLE)
    if kind == "Job" and not before.get("suspend") and spec.get("template") != before.get("template"):
        errors.invalid("spec.template", spec.get("template"), IMMUTABLE)


STRATEGIES = ("Recreate", "RollingUpdate")
PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)
_is_percent = re.compile("[0-9]+%").fullmatch


def _check_strategy(strategy: Document, errors: Errors) -> None:
    kind, rolling = strategy.get("type") or "RollingUpdate", strategy.get("rollingUpdate")
    if kind not in STRATEGIES:
        errors.not_supported("spec.strategy.type", kind, STRATEGIES)
    elif kind == "Recreate" and rolling is not None:
        errors.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif rolling is not None:
        path = "spec.strategy.rollingUpdate"
        unavailable, surge = (rolling.get(name) or 0 for name in ("maxUnavailable", "maxSurge"))
        _check_part(unavailable, f"{path}.maxUnavailable", errors)
        _check_part(surge, f"{path}.maxSurge", errors)
        if _is_none(unavailable) and _is_none(surge):
            errors.invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        elif _is_more_than_all(unavailable):
            errors.invalid(f"{path}.maxUnavailable", unavailable, "must not be greater than 100%")


def _check_part(value: int | str, path: str, errors: Errors) -> None:
    """A number of pods, or so many of a hundred."""
    if isinstance(value, str):
        if not _is_percent(value):
            errors.invalid(path, value, PERCENT_RULE)
    elif value < 0:
        errors.invalid(path, value, "must be greater than or equal to 0")


def _is_none(value: int | str) -> bool:
    return value == 0 if isinstance(value, int) else not value.strip("0%")


def _is_more_than_all(value: int | str) -> bool:
    if isinstance(value, int) or not _is_percent(value):
        return False
    digits = value[:-1].lstrip("0")
    return len(digits) > 3 or int(digits or "0") > 100


def _is_elastic(spec: Document) -> bool:
    """An indexed job may grow and shrink as long as it runs all of its pods at once."""
    return spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
