"""The flow schemas and priority levels of a first start, as Kubernetes has them.

`exempt` and `catch-all` are always in force, also when somebody has deleted or changed the objects: administrators get through, and every request
has a level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Document = dict[str, Any]
GROUP = "flowcontrol.apiserver.k8s.io"
API_VERSION = f"{GROUP}/v1"
SCHEMAS, LEVELS = "flowschemas", "prioritylevelconfigurations"
EXEMPT, CATCH_ALL = "exempt", "catch-all"
AUTO_UPDATE = {"apf.kubernetes.io/autoupdate-spec": "true"}
EVERY = ["*"]

# Name: shares, percent that may be lent, queues, queues of one flow.
_LEVELS = {
    "system": (30, 33, 64, 6),
    "node-high": (40, 25, 64, 6),
    "leader-election": (10, 0, 16, 4),
    "workload-high": (40, 50, 128, 6),
    "workload-low": (100, 90, 128, 6),
    "global-default": (20, 50, 128, 6),
}
QUEUE_LENGTH = 50


def default_flow_control() -> Iterator[Document]:
    yield from mandatory_flow_control()
    for name, (shares, lendable, queues, hand) in _LEVELS.items():
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}
        yield _level(name, _limited(shares, lendable, {"type": "Queue", "queuing": queuing}))
    leases = _resource_rule(("get", "create", "update"), ("coordination.k8s.io",), ("leases",), cluster=False)
    nodes = _resource_rule(EVERY, ("",), ("nodes", "nodes/status"))
    all_leases = _resource_rule(EVERY, ("coordination.k8s.io",), ("leases",), cluster=False)
    probes = {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}
    everyone = [_group("system:unauthenticated"), _group("system:authenticated")]
    loops = [_user("system:kube-controller-manager"), _user("system:kube-scheduler")]
    accounts = [_account("kube-system", "*")]
    yield _schema("probes", EXEMPT, 2, "", everyone, [], [probes])
    yield _schema("system-leader-election", "leader-election", 100, "ByUser", [*loops, *accounts], [leases], [])
    yield _schema("system-node-high", "node-high", 400, "ByUser", [_group("system:nodes")], [nodes, all_leases], [])
    yield _everything("system-nodes", "system", 500, "ByUser", [_group("system:nodes")])
    yield _everything("kube-controller-manager", "workload-high", 800, "ByNamespace", loops[:1])
    yield _everything("kube-scheduler", "workload-high", 800, "ByNamespace", loops[1:])
    yield _everything("kube-system-service-accounts", "workload-high", 900, "ByNamespace", accounts)
    yield _everything("service-accounts", "workload-low", 9000, "ByUser", [_group("system:serviceaccounts")])
    yield _everything("global-default", "global-default", 9900, "ByUser", everyone)


def mandatory_flow_control() -> Iterator[Document]:
    everyone = [_group("system:unauthenticated"), _group("system:authenticated")]
    yield _level(EXEMPT, {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})
    yield _level(CATCH_ALL, _limited(5, 0, {"type": "Reject"}))
    yield _everything(EXEMPT, EXEMPT, 1, "", [_group("system:masters")])
    yield _everything(CATCH_ALL, CATCH_ALL, 10000, "ByUser", everyone)


def _limited(shares: int, lendable: int, response: Document) -> Document:
    limited = {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}
    return {"type": "Limited", "limited": limited}


def _level(name: str, spec: Document) -> Document:
    return _object("PriorityLevelConfiguration", name, spec, {})


def _schema(
    name: str,
    level: str,
    precedence: int,
    distinguisher: str,
    subjects: list[Document],
    resources: list[Document],
    paths: list[Document],
) -> Document:
    rule: Document = {"subjects": subjects}
    rule |= {"resourceRules": resources} if resources else {}
    rule |= {"nonResourceRules": paths} if paths else {}
    spec: Document = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
    spec |= {"distinguisherMethod": {"type": distinguisher}} if distinguisher else {}
    return _object("FlowSchema", name, {**spec, "rules": [rule]}, {})


def _everything(name: str, level: str, precedence: int, distinguisher: str, subjects: list[Document]) -> Document:
    paths = {"verbs": EVERY, "nonResourceURLs": EVERY}
    return _schema(name, level, precedence, distinguisher, subjects, [_resource_rule(EVERY, EVERY, EVERY)], [paths])


def _resource_rule(
    verbs: Sequence[str], groups: Sequence[str], resources: Sequence[str], *, cluster: bool = True
) -> Document:
    scope = {"clusterScope": True} if cluster else {}
    return {"verbs": [*verbs], "apiGroups": [*groups], "resources": [*resources], **scope, "namespaces": EVERY}


def _object(kind: str, name: str, spec: Document, status: Document) -> Document:
    metadata = {"name": name, "generation": 1, "annotations": {**AUTO_UPDATE}}
    return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}


def _group(name: str) -> Document:
    return {"kind": "Group", "group": {"name": name}}


def _user(name: str) -> Document:
    return {"kind": "User", "user": {"name": name}}


def _account(namespace: str, name: str) -> Document:
    return {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}
