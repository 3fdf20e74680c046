"""Rules for HorizontalPodAutoscaler."""

from __future__ import annotations

from dray.api import names
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.metadata import path_segment_problems

# Each source of metrics, in the order in which they are looked at: its type and its field.
SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
TARGETS = ("Utilization", "Value", "AverageValue")
SELECT_POLICIES = ("Disabled", "Max", "Min")
SCALING_POLICIES = ("Percent", "Pods")
LONGEST_WINDOW_S = 3600
LONGEST_PERIOD_S = 1800


def check_autoscaler(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    _check_bounds(spec, errors)
    _check_reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", errors)
    _check_version(spec, old, errors)
    for i, metric in enumerate(spec.get("metrics") or ()):
        _check_metric(metric, f"spec.metrics[{i}]", errors)
    if spec.get("minReplicas") == 0 and not any(
        metric.get("type") in ("Object", "External") for metric in spec.get("metrics") or ()
    ):
        # Pods that are not there say nothing about their load.
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.forbidden("spec.metrics", detail)
    behavior = spec.get("behavior") or {}
    for direction in ("scaleUp", "scaleDown"):
        if (rules := behavior.get(direction)) is not None:
            _check_rules(rules, f"spec.behavior.{direction}", errors)


def _check_bounds(spec: Document, errors: Errors) -> None:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 0:
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 0", declarative=True)
    if least is not None and most < least:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    if most == 0:
        errors.required("spec.maxReplicas", declarative=True)
    elif most < 0:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1", declarative=True)


def _check_reference(reference: Document, path: str, errors: Errors) -> None:
    for field in ("kind", "name"):
        if value := reference.get(field):
            errors.each_invalid(f"{path}.{field}", value, path_segment_problems(value))
        else:
            errors.required(f"{path}.{field}")


def _check_version(spec: Document, old: Document | None, errors: Errors) -> None:
    target = spec.get("scaleTargetRef") or {}
    before = ((old or {}).get("spec") or {}).get("scaleTargetRef") or {}
    is_kept = old is not None and all(before.get(field) == target.get(field) for field in ("kind", "apiVersion"))
    # Only one kind of the core group can be scaled.
    if "/" not in (target.get("apiVersion") or "") and target.get("kind") != "ReplicationController" and not is_kept:
        errors.invalid(
            "spec.scaleTargetRef.apiVersion", target.get("apiVersion") or "", "apiVersion must specify API group"
        )


# --- metrics ---------------------------------------------------------------------------------------------------------


def _check_metric(metric: Document, path: str, errors: Errors) -> None:
    kind = metric.get("type") or ""
    given = [field for field in SOURCES.values() if metric.get(field) is not None]
    if not kind:
        errors.required(f"{path}.type", "must specify a metric source type")
    if kind not in SOURCES:
        errors.not_supported(f"{path}.type", kind, sorted(SOURCES))
    if given:
        _check_source(given[0], metric[given[0]], f"{path}.{given[0]}", errors)
    expected = SOURCES.get(kind, "")
    if expected and expected not in given:
        errors.required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(given) != 1:
        for field in given:
            if field != expected:
                errors.forbidden(f"{path}.{field}", "must populate the given metric source only")


def _check_source(field: str, source: Document, path: str, errors: Errors) -> None:
    target = source.get("target") or {}
    if field == "object":
        _check_reference(source.get("describedObject") or {}, f"{path}.describedObject", errors)
    if field in ("resource", "containerResource"):
        if not source.get("name"):
            errors.required(f"{path}.name", "must specify a resource name")
    else:
        _check_metric_name(source.get("metric") or {}, f"{path}.metric", errors)
    if field == "containerResource":
        if container := source.get("container"):
            errors.each_invalid(f"{path}.container", container, names.label_problems(container))
        else:
            errors.required(f"{path}.container", "must specify a container")
    _check_target(target, f"{path}.target", errors)
    _check_amounts(field, target, f"{path}.target", errors)


def _check_metric_name(metric: Document, path: str, errors: Errors) -> None:
    if name := metric.get("name"):
        errors.each_invalid(f"{path}.name", name, path_segment_problems(name))
    else:
        errors.required(f"{path}.name", "must specify a metric name")


def _check_target(target: Document, path: str, errors: Errors) -> None:
    kind = target.get("type") or ""
    if not kind:
        errors.required(f"{path}.type", "must specify a metric target type")
    if kind not in TARGETS:
        errors.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for field in ("value", "averageValue"):
        amount = target.get(field)
        if amount is not None and Quantity.parse(amount).nanos <= 0:
            errors.invalid(f"{path}.{field}", amount, "must be positive")
    percent = target.get("averageUtilization")
    if percent is not None and percent < 1:
        errors.invalid(f"{path}.averageUtilization", percent, "must be greater than 0")


def _check_amounts(field: str, target: Document, path: str, errors: Errors) -> None:
    """Which amounts a target of this source needs, and which exclude each other."""
    value, average, percent = (target.get(name) for name in ("value", "averageValue", "averageUtilization"))
    if field in ("resource", "containerResource"):
        if percent is None and average is None:
            detail = "must set either a target raw value or a target utilization"
            errors.required(f"{path}.averageUtilization", detail)
        if percent is not None and average is not None:
            detail = "may not set both a target raw value and a target utilization"
            errors.forbidden(f"{path}.averageValue", detail)
    elif field == "pods":
        if average is None:
            errors.required(f"{path}.averageValue", "must specify a positive target averageValue")
    elif value is None and average is None:
        other = "averageValue" if field == "object" else "for metric or a per-pod target"
        detail = f"must set either a target value {'or ' if field == 'object' else ''}{other}"
        errors.required(f"{path}.averageValue", detail)
    elif field == "external" and value is not None and average is not None:
        errors.forbidden(f"{path}.value", "may not set both a target value for metric and a per-pod target")


# --- behavior --------------------------------------------------------------------------------------------------------


def _check_rules(rules: Document, path: str, errors: Errors) -> None:
    window, select = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        errors.invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > LONGEST_WINDOW_S:
        detail = f"must be less than or equal to {LONGEST_WINDOW_S}"
        errors.invalid(f"{path}.stabilizationWindowSeconds", window, detail)
    if select is not None and select not in SELECT_POLICIES:
        errors.not_supported(f"{path}.selectPolicy", select, SELECT_POLICIES)
    if not rules.get("policies"):
        errors.required(f"{path}.policies", "must specify at least one Policy")
    for i, policy in enumerate(rules.get("policies") or ()):
        _check_policy(policy, f"{path}.policies[{i}]", errors)
    tolerance = rules.get("tolerance")
    if tolerance is not None and Quantity.parse(tolerance).nanos < 0:
        errors.invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0")


def _check_policy(policy: Document, path: str, errors: Errors) -> None:
    kind = policy.get("type") or ""
    if kind not in SCALING_POLICIES:
        errors.not_supported(f"{path}.type", kind, SCALING_POLICIES)
    for field in ("value", "periodSeconds"):
        if (policy.get(field) or 0) <= 0:
            errors.invalid(f"{path}.{field}", policy.get(field) or 0, "must be greater than zero")
    if (period := policy.get("periodSeconds") or 0) > LONGEST_PERIOD_S:
        errors.invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {LONGEST_PERIOD_S}")
