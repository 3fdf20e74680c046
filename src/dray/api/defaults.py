"""The values that the server fills in when it reads an object, for the resource.k8s.io kinds and the small core ones.

Pods and what holds pod templates have theirs in `pod_defaults`, networks, volumes and the cluster's own settings in
`cluster_defaults`. Documents come in shaped, in the version of the request,
and are never changed in place. The time comes in as text, already cut to seconds.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from dray.api import pod_defaults
from dray.api.cluster_defaults import CLUSTER_DEFAULTS
from dray.api.slice_text import QuietLists

Document = dict[str, Any]

_SINGLY: Document = {"single": {}}


def apply_defaults(document: Document, now: str, *, has_stored_spec: bool = False) -> Document:
    """`document` with its defaults filled in; the same object where there was nothing to fill in.

    A spec that is the stored one has its defaults.
    """
    apply = (_BEYOND_STORED_SPEC if has_stored_spec else _DEFAULTS).get(str(document.get("kind")))
    return apply(document, now) if apply else document


def refresh_taint_time(new: Document, old: Document, now: str) -> Document:
    """Sets the time of a rule to now if its effect changed and its time did not."""
    taint, before = _inner(new, "spec", "taint"), _inner(old, "spec", "taint")
    if not taint or taint.get("effect") == before.get("effect") or taint.get("timeAdded") != before.get("timeAdded"):
        return new
    return _put(new, ("spec", "taint"), {**taint, "timeAdded": now})


def _inner(document: Document, *path: str) -> Document:
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _put(document: Document, path: tuple[str, ...], value: Any) -> Document:
    """A copy of `document` with one value replaced; everything off the path is shared."""
    key, *rest = path
    inner = value if not rest else _put(document.get(key) or {}, tuple(rest), value)
    return {**document, key: inner}


def _each(items: list[Any], change: Callable[[Document], Document]) -> list[Any]:
    made = [change(item) for item in items]
    return items if all(new is old for new, old in zip(made, items, strict=True)) else made


def _replace(document: Document, key: str, made: Any) -> Document:
    return document if made is document.get(key) else {**document, key: made}


# --- resource.k8s.io -------------------------------------------------------------------------------------------------


_LISTS_WITH_TIMES = QuietLists()


def _slice(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")

    def with_times(device: Document) -> Document:
        if device.get("basic"):
            return _replace(device, "basic", with_times(device["basic"]))
        if not device.get("taints"):
            return device
        return _replace(device, "taints", _each(device["taints"], lambda taint: _with_time(taint, now)))

    devices = spec.get("devices")
    if not devices or devices in _LISTS_WITH_TIMES:
        return document
    timed = _each(devices, with_times)
    if timed is devices:
        _LISTS_WITH_TIMES.add(devices)
        return document
    return _replace(document, "spec", _replace(spec, "devices", timed))


def _with_time(taint: Document, now: str) -> Document:
    return taint if taint.get("timeAdded") else {**taint, "timeAdded": now}


def _rule(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")
    taint = _inner(spec, "taint")
    made = _with_time(taint, now)
    return document if made is taint else _put(document, ("spec", "taint"), made)


def _claim(document: Document, now: str) -> Document:
    is_flat = str(document.get("apiVersion")).endswith("/v1beta1")
    return _claim_status(_replace(document, "spec", _claim_spec(document.get("spec"), is_flat)), now)


def _claim_status(document: Document, now: str) -> Document:
    results = _inner(document, "status", "allocation", "devices").get("results")
    if not results:
        return document
    tolerant = _each(results, _with_operators)
    return document if tolerant is results else _put(document, ("status", "allocation", "devices", "results"), tolerant)


def _template(document: Document, now: str) -> Document:
    is_flat = str(document.get("apiVersion")).endswith("/v1beta1")
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    return _replace(document, "spec", _replace(spec, "spec", _claim_spec(spec.get("spec"), is_flat)))


def _claim_spec(spec: Any, is_flat: bool) -> Any:
    devices = _inner({"spec": spec}, "spec", "devices")
    if not devices.get("requests"):
        return spec
    request_defaults = _flat_request if is_flat else _request
    return _replace(spec, "devices", _replace(devices, "requests", _each(devices["requests"], request_defaults)))


def _request(request: Document) -> Document:
    made = request
    if isinstance(request.get("exactly"), dict):
        made = _replace(made, "exactly", _counted(request["exactly"]))
    return _with_alternatives(made)


def _flat_request(request: Document) -> Document:
    """v1beta1 fills in only what names a class: without one the request is a list of alternatives."""
    return _with_alternatives(_counted(request) if request.get("deviceClassName") else _with_operators(request))


def _with_alternatives(request: Document) -> Document:
    if not request.get("firstAvailable"):
        return request
    return _replace(request, "firstAvailable", _each(request["firstAvailable"], _counted))


def _counted(request: Document) -> Document:
    made = request
    if not made.get("allocationMode"):
        made = {**made, "allocationMode": "ExactCount"}
    if made["allocationMode"] == "ExactCount" and not made.get("count"):
        made = {**made, "count": 1}
    return _with_operators(made)


def _with_operators(holder: Document) -> Document:
    if not holder.get("tolerations"):
        return holder
    return _replace(
        holder,
        "tolerations",
        _each(holder["tolerations"], lambda t: t if t.get("operator") else {**t, "operator": "Equal"}),
    )


def _pool_status_request(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")
    return document if spec.get("limit") is not None else _put(document, ("spec", "limit"), 100)


# --- core and its neighbours -----------------------------------------------------------------------------------------


def _namespace(document: Document, now: str) -> Document:
    return with_own_label(document)


def with_own_label(document: Document) -> Document:
    """Labels a namespace with its name. This runs after name generation."""
    metadata = _inner(document, "metadata")
    name = metadata.get("name")
    if not name or (metadata.get("labels") or {}).get("kubernetes.io/metadata.name") == name:
        return document
    return _put(
        document, ("metadata", "labels"), {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
    )


def _node(document: Document, now: str) -> Document:
    status = _inner(document, "status")
    if status.get("allocatable") is not None or not status.get("capacity"):
        return document
    return _put(document, ("status", "allocatable"), status["capacity"])


def _secret(document: Document, now: str) -> Document:
    """Moves `stringData`, which is for writing only, into `data`."""
    made = document if document.get("type") else {**document, "type": "Opaque"}
    texts = made.get("stringData")
    if texts is None:
        return made
    data = {**(made.get("data") or {}), **{key: _base64(text) for key, text in texts.items()}}
    rest = {key: value for key, value in made.items() if key != "stringData"}
    return {**rest, "data": data} if data else rest


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


_AFFINITY_S = 10800
SERVICES_ON_NODES = ("LoadBalancer", "NodePort")


def _service(document: Document, now: str) -> Document:
    """Defaults of a service. Its cluster IP comes from admission."""
    spec = _inner(document, "spec")

    def with_target(port: Document) -> Document:
        return {"protocol": "TCP", "targetPort": port.get("port"), **{k: v for k, v in port.items() if v}}

    made = {"type": "ClusterIP", "sessionAffinity": "None", **spec}
    if made["type"] != "ExternalName":
        made = {"internalTrafficPolicy": "Cluster", **made}
    if made.get("ports"):
        made["ports"] = _each(made["ports"], with_target)
    if made["sessionAffinity"] == "ClientIP":
        client = (made.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        made["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_S, **client}}
    elif made["sessionAffinity"] == "None":
        made.pop("sessionAffinityConfig", None)
    if made["type"] == "LoadBalancer" and made.get("allocateLoadBalancerNodePorts") is None:
        made["allocateLoadBalancerNodePorts"] = True
    if is_reached_from_outside(made) and not made.get("externalTrafficPolicy"):
        made["externalTrafficPolicy"] = "Cluster"
    return {**document, "spec": made}


def is_reached_from_outside(service_spec: Document) -> bool:
    kind = service_spec.get("type") or "ClusterIP"
    return kind in SERVICES_ON_NODES or (kind == "ClusterIP" and bool(service_spec.get("externalIPs")))


def needs_health_check(service_spec: Document) -> bool:
    """Whether balancers ask each node if it has pods of the Service."""
    return service_spec.get("type") == "LoadBalancer" and service_spec.get("externalTrafficPolicy") == "Local"


def _priority_class(document: Document, now: str) -> Document:
    return document if document.get("preemptionPolicy") else {**document, "preemptionPolicy": "PreemptLowerPriority"}


_RBAC = "rbac.authorization.k8s.io"


def _role_binding(document: Document, now: str) -> Document:
    def with_group(subject: Document) -> Document:
        if subject.get("apiGroup") or subject.get("kind") not in ("User", "Group"):
            return subject
        return {**subject, "apiGroup": _RBAC}

    made = document
    if document.get("subjects"):
        made = _replace(made, "subjects", _each(document["subjects"], with_group))
    role = _inner(document, "roleRef")
    return made if role.get("apiGroup") else {**made, "roleRef": {**role, "apiGroup": _RBAC}}


def _admission_policy(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")
    made = spec if spec.get("failurePolicy") else {**spec, "failurePolicy": "Fail"}
    made = _replace(made, "matchConstraints", _match_resources(made.get("matchConstraints")))
    return document if made is spec else {**document, "spec": made}


def _admission_binding(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")
    made = _replace(spec, "matchResources", _match_resources(spec.get("matchResources")))
    return document if made is spec else {**document, "spec": made}


def _match_resources(match: Any) -> Any:
    if not isinstance(match, dict):
        return match
    defaults = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    made = {**{key: value for key, value in defaults.items() if match.get(key) is None}, **match}
    for key in ("resourceRules", "excludeResourceRules"):
        if made.get(key):
            made[key] = _each(made[key], lambda rule: rule if rule.get("scope") else {**rule, "scope": "*"})
    return match if made == match else made


def _pod_group(document: Document, now: str) -> Document:
    spec = _inner(document, "spec")
    return document if spec.get("disruptionMode") is not None else _put(document, ("spec", "disruptionMode"), _SINGLY)


def _with_template(document: Document, now: str) -> Document:
    return pod_defaults.controller(document)


def _without_time(fill: Callable[[Document], Document]) -> Callable[[Document, str], Document]:
    return lambda document, now: fill(document)


_DEFAULTS: dict[str, Callable[[Document, str], Document]] = {
    "ResourceSlice": _slice,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "DeviceTaintRule": _rule,
    "ResourcePoolStatusRequest": _pool_status_request,
    "Namespace": _namespace,
    "Node": _node,
    "Secret": _secret,
    "Service": _service,
    "PriorityClass": _priority_class,
    "PodGroup": _pod_group,
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
    "ValidatingAdmissionPolicy": _admission_policy,
    "ValidatingAdmissionPolicyBinding": _admission_binding,
    "Pod": lambda document, now: pod_defaults.pod(document),
    **dict.fromkeys(
        ("ReplicaSet", "DaemonSet", "Deployment", "StatefulSet", "Job", "ReplicationController"), _with_template
    ),
    "CronJob": lambda document, now: pod_defaults.cron_job(document),
    "PodTemplate": lambda document, now: pod_defaults.pod_template(document),
    "MutatingAdmissionPolicy": _admission_policy,
    "MutatingAdmissionPolicyBinding": _admission_binding,
    **{kind: _without_time(fill) for kind, fill in CLUSTER_DEFAULTS.items()},
}
# Of the kinds that a pod's way changes most often: what a write that leaves the spec alone may still lack.
_BEYOND_STORED_SPEC = {kind: fill for kind, fill in _DEFAULTS.items() if kind != "Pod"} | {
    "ResourceClaim": _claim_status
}
