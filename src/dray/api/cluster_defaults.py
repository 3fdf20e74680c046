"""Defaults of the kinds around pods: network, volumes, autoscaling, flow control, webhooks, limits.

Each function takes a shaped document and returns it, or a copy with what was missing. Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
Fill = Callable[[Document], Document]


def _filled(document: Document, defaults: Document) -> Document:
    """A copy with `defaults` where the document has nothing or null."""
    missing = {key: value for key, value in defaults.items() if document.get(key) is None}
    return {**document, **missing} if missing else document


def _inside(document: Document, key: str, change: Fill) -> Document:
    """Changes what `key` holds, if it holds an object."""
    inner = document.get(key)
    return {**document, key: change(inner)} if isinstance(inner, dict) else document


def _each(document: Document, key: str, change: Fill) -> Document:
    """Changes every object of the list that `key` holds."""
    items = document.get(key)
    return {**document, key: [change(item) for item in items]} if items else document


def _with_protocol(port: Document) -> Document:
    return port if port.get("protocol") else {**port, "protocol": "TCP"}


# --- network ---------------------------------------------------------------------------------------------------------


def _endpoints(document: Document) -> Document:
    return _each(document, "subsets", lambda subset: _each(subset, "ports", _with_protocol))


def _endpoint_slice(document: Document) -> Document:
    return _each(document, "ports", lambda port: _filled(port, {"name": "", "protocol": "TCP"}))


def _ingress_class(document: Document) -> Document:
    return _inside(
        document, "spec", lambda spec: _inside(spec, "parameters", lambda found: _filled(found, {"scope": "Cluster"}))
    )


def _network_policy(document: Document) -> Document:
    return _inside(document, "spec", _network_policy_spec)


def _network_policy_spec(spec: Document) -> Document:
    made = spec
    for direction in ("ingress", "egress"):
        made = _each(made, direction, lambda rule: _each(rule, "ports", _with_protocol))
    if made.get("policyTypes"):
        return made
    return {**made, "policyTypes": ["Ingress", "Egress"] if made.get("egress") else ["Ingress"]}


# --- volumes ---------------------------------------------------------------------------------------------------------


def _volume(document: Document) -> Document:
    made = _inside(
        document,
        "spec",
        lambda spec: _filled(spec, {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}),
    )
    return _pending(made)


def volume_claim(document: Document) -> Document:
    return _pending(_inside(document, "spec", lambda spec: _filled(spec, {"volumeMode": "Filesystem"})))


def _pending(document: Document) -> Document:
    status = document.get("status") or {}
    return document if status.get("phase") else {**document, "status": {**status, "phase": "Pending"}}


def _storage_class(document: Document) -> Document:
    return _filled(document, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


_CSI_DRIVER: Document = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
    "preventPodSchedulingIfMissing": False,
}


def _csi_driver(document: Document) -> Document:
    def fill(spec: Document) -> Document:
        made = _filled(spec, _CSI_DRIVER)
        return made if made.get("volumeLifecycleModes") else {**made, "volumeLifecycleModes": ["Persistent"]}

    return _inside(document, "spec", fill)


# --- autoscaling -----------------------------------------------------------------------------------------------------

_PERIOD_S = 15
_SCALE_UP: Document = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S},
        {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S},
    ],
}
_SCALE_DOWN: Document = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}],
}
CPU_TARGET = 80


def cpu_metric(percent: int) -> Document:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    }


def _autoscaler(document: Document) -> Document:
    return _inside(document, "spec", _v1_autoscaler if _is_v1(document) else _v2_autoscaler)


def _is_v1(document: Document) -> bool:
    return document.get("apiVersion") == "autoscaling/v1"


def _v1_autoscaler(spec: Document) -> Document:
    return _filled(spec, {"minReplicas": 1})


def _v2_autoscaler(spec: Document) -> Document:
    made = _filled(spec, {"minReplicas": 1})
    if not made.get("metrics"):
        made = {**made, "metrics": [cpu_metric(CPU_TARGET)]}
    return _inside(made, "behavior", _scaling_rules)


def _scaling_rules(behavior: Document) -> Document:
    return {
        **behavior,
        "scaleUp": _filled(behavior.get("scaleUp") or {}, _SCALE_UP),
        "scaleDown": _filled(behavior.get("scaleDown") or {}, _SCALE_DOWN),
    }


# --- flow control ----------------------------------------------------------------------------------------------------


def _flow_schema(document: Document) -> Document:
    def fill(spec: Document) -> Document:
        return spec if spec.get("matchingPrecedence") else {**spec, "matchingPrecedence": 1000}

    return _inside(document, "spec", fill)


def _priority_level(document: Document) -> Document:
    def fill(spec: Document) -> Document:
        made = _inside(spec, "limited", _limited)
        return _inside(made, "exempt", lambda e: _filled(e, {"nominalConcurrencyShares": 0, "lendablePercent": 0}))

    return _inside(document, "spec", fill)


def _limited(limited: Document) -> Document:
    made = _filled(limited, {"nominalConcurrencyShares": 30, "lendablePercent": 0})
    return _inside(made, "limitResponse", lambda answer: _inside(answer, "queuing", _queuing))


def _queuing(queuing: Document) -> Document:
    defaults = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}
    return {**queuing, **{key: value for key, value in defaults.items() if not queuing.get(key)}}


# --- definitions of further kinds ------------------------------------------------------------------------------------


def _definition(document: Document) -> Document:
    return _inside(document, "spec", _definition_spec)


def _definition_spec(spec: Document) -> Document:
    made = _filled(spec, {"conversion": {"strategy": "None"}})
    made = _inside(made, "conversion", _conversion)
    return _inside(made, "names", _definition_names)


def _definition_names(names: Document) -> Document:
    kind = names.get("kind") or ""
    empty = {
        key: value for key, value in {"singular": kind.lower(), "listKind": f"{kind}List"}.items() if not names.get(key)
    }
    return {**names, **empty} if kind else names


def _conversion(conversion: Document) -> Document:
    port = {"port": 443}
    return _inside(
        conversion,
        "webhook",
        lambda hook: _inside(
            hook, "clientConfig", lambda config: _inside(config, "service", lambda to: _filled(to, port))
        ),
    )


def _api_service(document: Document) -> Document:
    return _inside(document, "spec", lambda spec: _inside(spec, "service", lambda to: _filled(to, {"port": 443})))


# --- webhooks --------------------------------------------------------------------------------------------------------

_WEBHOOK: Document = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}


def _webhooks(extra: Document) -> Fill:
    def fill(webhook: Document) -> Document:
        made = _each(_filled(webhook, {**_WEBHOOK, **extra}), "rules", lambda rule: _filled(rule, {"scope": "*"}))
        return _inside(
            made, "clientConfig", lambda config: _inside(config, "service", lambda s: _filled(s, {"port": 443}))
        )

    return lambda document: _each(document, "webhooks", fill)


# --- limits ----------------------------------------------------------------------------------------------------------


def _limit_range(document: Document) -> Document:
    return _inside(document, "spec", lambda spec: _each(spec, "limits", _container_limits))


def _container_limits(item: Document) -> Document:
    """A container's limit is by default the largest allowed, its request the limit or else the smallest allowed."""
    if item.get("type") != "Container":
        return item
    limit = {**(item.get("max") or {}), **(item.get("default") or {})}
    request = {**(item.get("min") or {}), **limit, **(item.get("defaultRequest") or {})}
    made = {**item}
    for key, value in (("default", limit), ("defaultRequest", request)):
        if value:
            made[key] = value
    return made


CLUSTER_DEFAULTS: dict[str, Fill] = {
    "Endpoints": _endpoints,
    "EndpointSlice": _endpoint_slice,
    "IngressClass": _ingress_class,
    "NetworkPolicy": _network_policy,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": volume_claim,
    "StorageClass": _storage_class,
    "CSIDriver": _csi_driver,
    "HorizontalPodAutoscaler": _autoscaler,
    "FlowSchema": _flow_schema,
    "PriorityLevelConfiguration": _priority_level,
    "CustomResourceDefinition": _definition,
    "APIService": _api_service,
    "MutatingWebhookConfiguration": _webhooks({"reinvocationPolicy": "Never"}),
    "ValidatingWebhookConfiguration": _webhooks({}),
    "LimitRange": _limit_range,
}
