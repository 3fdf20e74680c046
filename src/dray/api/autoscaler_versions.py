"""HorizontalPodAutoscalers in autoscaling/v1 and v2.

v1 has a CPU target in percent and keeps everything else of v2 in annotations, as JSON in v1's own shapes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.cluster_defaults import CPU_TARGET, cpu_metric

Document = dict[str, Any]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS, BEHAVIOR = f"{_PREFIX}metrics", f"{_PREFIX}behavior"
CONDITIONS, CURRENT_METRICS = f"{_PREFIX}conditions", f"{_PREFIX}current-metrics"
_ANNOTATIONS = (METRICS, BEHAVIOR, CONDITIONS, CURRENT_METRICS)


def to_v1(document: Document) -> Document:
    spec, status = dict(document.get("spec") or {}), dict(document.get("status") or {})
    kept: dict[str, Any] = {}
    metrics = spec.pop("metrics", None) or []
    cpu = next((metric for metric in metrics if _cpu_percent(metric, "target") is not None), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu_percent(cpu, "target")
    kept[METRICS] = [_v1_metric(metric, "target") for metric in metrics if metric is not cpu]
    kept[BEHAVIOR] = spec.pop("behavior", None)
    current = status.pop("currentMetrics", None) or []
    cpu = next((metric for metric in current if _cpu_percent(metric, "current") is not None), None)
    if cpu is not None:
        status["currentCPUUtilizationPercentage"] = _cpu_percent(cpu, "current")
    kept[CURRENT_METRICS] = [_v1_metric(metric, "current") for metric in current]
    kept[CONDITIONS] = status.pop("conditions", None)
    status.setdefault("currentReplicas", 0)
    notes = {key: msgspec.json.encode(value).decode() for key, value in kept.items() if value}
    made = {**document, "apiVersion": "autoscaling/v1", "metadata": _annotated(document["metadata"], notes)}
    return {**made, "spec": spec, "status": status}


def to_v2(document: Document) -> Document:
    notes = (document.get("metadata") or {}).get("annotations") or {}
    spec, status = dict(document.get("spec") or {}), dict(document.get("status") or {})
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    metrics = [_v2_metric(metric, "target") for metric in _noted(notes, METRICS)]
    if percent is not None:
        metrics.insert(0, cpu_metric(percent))
    spec["metrics"] = metrics or [cpu_metric(CPU_TARGET)]
    behavior = _noted(notes, BEHAVIOR)
    if behavior:
        spec["behavior"] = behavior
    current = status.pop("currentCPUUtilizationPercentage", None)
    status["currentMetrics"] = [_v2_metric(metric, "current") for metric in _noted(notes, CURRENT_METRICS)] or None
    if current is not None and not status["currentMetrics"]:
        status["currentMetrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}}}
        ]
    conditions = _noted(notes, CONDITIONS)
    if conditions:
        status["conditions"] = conditions
    made = {**document, "apiVersion": "autoscaling/v2", "metadata": _annotated(document["metadata"], {})}
    return {**made, "spec": spec, "status": status}


def _annotated(metadata: Document, notes: dict[str, str]) -> Document:
    """`metadata` with these notes, and with no older ones."""
    rest = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in _ANNOTATIONS}
    made = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**made, "annotations": {**rest, **notes}} if rest or notes else made


def _noted(notes: dict[str, str], key: str) -> Any:
    """What an annotation says; one that is not JSON of the right shape says nothing."""
    try:
        found = msgspec.json.decode(notes.get(key) or "null")
    except msgspec.DecodeError:
        return []
    wanted = dict if key == BEHAVIOR else list
    if not isinstance(found, wanted) or not (key == BEHAVIOR or all(isinstance(item, dict) for item in found)):
        return []
    return found


def _cpu_percent(metric: Document, side: str) -> Any:
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    return (resource.get(side) or {}).get("averageUtilization")


# --- one metric: v2 nests what v1 writes with prefixed names -----------------------------------------------------------

# The field that holds each type of metric.
_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _v1_names(kind: str, side: str) -> dict[str, str]:
    """v2's names inside of `target` or `current`, and what v1 calls them beside it."""
    if kind == "Object":
        return {"value": f"{side}Value", "averageValue": "averageValue"}
    return {
        "value": f"{side}Value",
        "averageValue": f"{side}AverageValue",
        "averageUtilization": f"{side}AverageUtilization",
    }


def _v1_metric(metric: Document, side: str) -> Document:
    kind = metric.get("type", "")
    key = _SOURCES.get(kind, "")
    source = dict(metric.get(key) or {})
    values = source.pop(side, None) or {}
    named = source.pop("metric", None) or {}
    made = {name: values[own] for own, name in _v1_names(kind, side).items() if values.get(own) is not None}
    if named:
        made["metricName"] = named.get("name", "")
        if named.get("selector"):
            made["metricSelector" if kind == "External" else "selector"] = named["selector"]
    if "describedObject" in source:
        made["target"] = source.pop("describedObject")
        made.setdefault(f"{side}Value", "0")
    return {"type": kind, key: {**source, **made}} if key else {"type": kind}


def _v2_metric(metric: Document, side: str) -> Document:
    kind = metric.get("type", "")
    key = _SOURCES.get(kind, "")
    source = dict(metric.get(key) or {})
    values = {own: source.pop(name) for own, name in _v1_names(kind, side).items() if source.get(name) is not None}
    if kind == "Object" and "averageValue" in values:
        values.pop("value", None)
    made: Document = {}
    if "metricName" in source:
        made["metric"] = {"name": source.pop("metricName")}
        selector = source.pop("metricSelector" if kind == "External" else "selector", None)
        if selector:
            made["metric"]["selector"] = selector
    if kind == "Object":
        made["describedObject"] = source.pop("target", None) or {}
    if side == "target":
        values = {"type": _target_type(values), **values}
    return {"type": kind, key: {**source, **made, side: values}} if key else {"type": kind}


def _target_type(values: Document) -> str:
    if "averageUtilization" in values:
        return "Utilization"
    return "AverageValue" if "averageValue" in values else "Value"
