"""Tables as `kubectl get` prints them: column definitions, and one function per kind that makes the cells of a row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from dray.api.scheme import Resource
from dray.apiserver.read.cluster_cells import CLUSTER_CELLS
from dray.apiserver.read.workload_cells import WORKLOAD_CELLS, age, pod_cells

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]
Cells = Callable[[Document, datetime], list[Any]]

NONE, UNKNOWN = "<none>", "<unknown>"
ROLE_PREFIX = "node-role.kubernetes.io/"


def column_definitions(row: Resource, version: str) -> list[Document]:
    custom: CustomKind | None = row.custom
    return _column_definitions(row) if custom is None else custom.column_definitions(version)


@cache
def _column_definitions(row: Resource) -> list[Document]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": description(row, column.name),
            "priority": column.priority,
        }
        for column in row.columns
    ]


def row_cells(row: Resource, version: str, document: Document, now: datetime) -> list[Any]:
    custom: CustomKind | None = row.custom
    if custom is not None:
        return custom.cells(version, document, now)
    cells = CELLS.get(row.kind, _name_and_age)
    return cells(document, now)


def _name(document: Document) -> str:
    return str(document["metadata"].get("name", ""))


def _age(document: Document, now: datetime) -> str:
    return age(document["metadata"].get("creationTimestamp"), now)


def _section(document: Document, *names: str) -> Document:
    for name in names:
        document = document.get(name) or {}
    return document


def _name_and_age(document: Document, now: datetime) -> list[Any]:
    return [_name(document), _age(document, now)]


# --- resource.k8s.io -------------------------------------------------------------------------------------------------


def _claim(document: Document, now: datetime) -> list[Any]:
    return [_name(document), claim_state(document), _age(document, now)]


def claim_state(claim: Document) -> str:
    status, states = _section(claim, "status"), []
    deleting = bool(claim["metadata"].get("deletionTimestamp"))
    if deleting:
        states.append("deleted")
    if not status.get("allocation"):
        if not deleting:
            states.append("pending")
        return ",".join(states)
    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)


def _slice(document: Document, now: datetime) -> list[Any]:
    spec = _section(document, "spec")
    node = spec.get("nodeName") or ""
    return [_name(document), node, spec.get("driver", ""), _section(spec, "pool").get("name", ""), _age(document, now)]


def _taint_rule(document: Document, now: datetime) -> list[Any]:
    taint = _section(document, "spec", "taint")
    added = age(taint.get("timeAdded"), now)
    return [
        _name(document), taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""), added,
        _age(document, now),
    ]  # fmt: skip


def _pool_status(document: Document, now: datetime) -> list[Any]:
    status = _section(document, "status")
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    driver = _section(document, "spec").get("driver", "")
    failed = conditions.get("Failed", {}).get("status") == "True"
    complete = conditions.get("Complete", {}).get("status") == "True"
    if failed or not complete:
        state = "Failed" if failed else "Pending"
        return [_name(document), driver, "-", "-", "-", "-", "-", status.get("poolCount") or 0, state, NONE]
    pools = status.get("pools") or []
    sums = [
        str(sum(pool.get(name) or 0 for pool in pools))
        for name in ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
    ]
    errors = str(sum(1 for pool in pools if pool.get("validationError")))
    count = status.get("poolCount") or 0
    state = "Complete" if len(pools) >= count else f"Complete ({len(pools)}/{count} pools)"
    completed = age(conditions["Complete"].get("lastTransitionTime"), now)
    return [_name(document), driver, *sums, errors, count, state, completed]


# --- core ------------------------------------------------------------------------------------------------------------


def _node(document: Document, now: datetime) -> list[Any]:
    status, info = _section(document, "status"), _section(document, "status", "nodeInfo")
    addresses = status.get("addresses") or ()
    return [
        _name(document), _node_state(document), _node_roles(document), _age(document, now),
        info.get("kubeletVersion", ""), _address(addresses, "InternalIP"), _address(addresses, "ExternalIP"),
        info.get("osImage") or UNKNOWN, _kernel(info),
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]  # fmt: skip


def _kernel(info: Document) -> str:
    version, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return f"{version} ({architecture})" if architecture else version


def _node_state(node: Document) -> str:
    conditions = {entry.get("type"): entry.get("status") for entry in _section(node, "status").get("conditions") or ()}
    states = ["Unknown"]
    if "Ready" in conditions:
        states = ["Ready" if conditions["Ready"] == "True" else "NotReady"]
    if _section(node, "spec").get("unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _node_roles(node: Document) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(ROLE_PREFIX) and len(key) > len(ROLE_PREFIX):
            roles.add(key.removeprefix(ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def _address(addresses: Any, kind: str) -> str:
    return next((str(entry.get("address")) for entry in addresses if entry.get("type") == kind), NONE)


def _namespace(document: Document, now: datetime) -> list[Any]:
    return [_name(document), _section(document, "status").get("phase", ""), _age(document, now)]


def _lease(document: Document, now: datetime) -> list[Any]:
    return [_name(document), _section(document, "spec").get("holderIdentity") or "", _age(document, now)]


def _quota(document: Document, now: datetime) -> list[Any]:
    status = _section(document, "status")
    hard, used = status.get("hard") or {}, status.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        text = f"{name}: {used.get(name, '0')}/{hard[name]}"
        (limits if name.startswith("limits") else requests).append(text)
    return [_name(document), ", ".join(requests), ", ".join(limits), _age(document, now)]


def _event(document: Document, now: datetime) -> list[Any]:
    involved, source, series = (_section(document, name) for name in ("involvedObject", "source", "series"))
    first = document.get("firstTimestamp") or document.get("eventTime")
    last = series.get("lastObservedTime") or document.get("lastTimestamp") or first
    target = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}" if involved.get("name") else ""
    component = source.get("component") or document.get("reportingComponent") or ""
    host = source.get("host") or document.get("reportingInstance") or ""
    count = series.get("count") or document.get("count") or 1
    return [
        age(last, now), document.get("type", ""), document.get("reason", ""), target or str(involved.get("kind", "")).lower(),
        involved.get("fieldPath", ""), f"{component}, {host}" if component and host else component,
        str(document.get("message", "")).strip(), age(first, now), int(count), _name(document),
    ]  # fmt: skip


def _config_map(document: Document, now: datetime) -> list[Any]:
    size = len(document.get("data") or {}) + len(document.get("binaryData") or {})
    return [_name(document), size, _age(document, now)]


def _secret(document: Document, now: datetime) -> list[Any]:
    return [_name(document), document.get("type", ""), len(document.get("data") or {}), _age(document, now)]


# --- others ----------------------------------------------------------------------------------------------------------


def _priority_class(document: Document, now: datetime) -> list[Any]:
    return [
        _name(document), document.get("value", 0), bool(document.get("globalDefault")), _age(document, now),
        document.get("preemptionPolicy") or "PreemptLowerPriority",
    ]  # fmt: skip


def _name_and_time(document: Document, now: datetime) -> list[Any]:
    return [_name(document), document["metadata"].get("creationTimestamp", "")]


def _role_binding(document: Document, now: datetime) -> list[Any]:
    reference = _section(document, "roleRef")
    subjects = document.get("subjects") or ()
    return [
        _name(document), f"{reference.get('kind', '')}/{reference.get('name', '')}", _age(document, now),
        ", ".join(s.get("name", "") for s in subjects if s.get("kind") == "User"),
        ", ".join(s.get("name", "") for s in subjects if s.get("kind") == "Group"),
        ", ".join(
            f"{s.get('namespace', '')}/{s.get('name', '')}" for s in subjects if s.get("kind") == "ServiceAccount"
        ),
    ]  # fmt: skip


def _policy(document: Document, now: datetime, counted: str = "validations") -> list[Any]:
    spec = _section(document, "spec")
    param = spec.get("paramKind")
    text = f"{param.get('apiVersion', '')}/{param.get('kind', '')}" if param else "<unset>"
    return [_name(document), len(spec.get(counted) or ()), text, _age(document, now)]


def _mutating_policy(document: Document, now: datetime) -> list[Any]:
    return _policy(document, now, "mutations")


def _policy_binding(document: Document, now: datetime) -> list[Any]:
    spec = _section(document, "spec")
    param = spec.get("paramRef")
    text = "<unset>"
    if param:
        name = param.get("name") or "*"
        text = f"{param['namespace']}/{name}" if param.get("namespace") else name
    return [_name(document), spec.get("policyName", ""), text, _age(document, now)]


CELLS: dict[str, Cells] = {
    "ResourceClaim": _claim,
    "ResourceSlice": _slice,
    "DeviceTaintRule": _taint_rule,
    "ResourcePoolStatusRequest": _pool_status,
    "Pod": pod_cells,
    "Node": _node,
    "Namespace": _namespace,
    "Lease": _lease,
    "ResourceQuota": _quota,
    "Event": _event,
    "ConfigMap": _config_map,
    "Secret": _secret,
    "PriorityClass": _priority_class,
    **dict.fromkeys(("Role", "ClusterRole", "LimitRange", "CSIStorageCapacity"), _name_and_time),
    "RoleBinding": _role_binding,
    "ClusterRoleBinding": _role_binding,
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _policy_binding,
    "MutatingAdmissionPolicy": _mutating_policy,
    "MutatingAdmissionPolicyBinding": _policy_binding,
    **WORKLOAD_CELLS,
    **CLUSTER_CELLS,
}


@cache
def _texts() -> dict[str, Any]:
    data = resources.files(__package__).joinpath("column_descriptions.json").read_bytes()
    texts: dict[str, Any] = msgspec.json.decode(data)
    return texts


def description(row: Resource, column: str) -> str:
    own = _texts()["columns"].get(row.plural, {}).get(column)
    return str(own or _texts()["common"].get(column) or f"{column} of the {row.singular}.")
