"""The roles and bindings that exist from the first start.

They carry Kubernetes' names, so that manifests and habits fit. `view`, `edit` and `admin` hold for users; the rest is for the
parts of a cluster. Nobody but `cluster-admin` may write DeviceClasses, DeviceTaintRules or other nodes' slices.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from dray.api.scheme import READ_VERBS as READ
from dray.api.scheme import WRITE_VERBS as WRITE
from dray.apiserver.request.request_info import Document

_RBAC = "rbac.authorization.k8s.io"
_RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
MANAGER = "system:kube-controller-manager"
BOOTSTRAP_LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTO_UPDATE = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def rule(verbs: Iterable[str], group: str, *resources: str, names: Iterable[str] = ()) -> Document:
    found: Document = {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}
    if names:
        found["resourceNames"] = list(names)
    return found


def paths(*urls: str) -> Document:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


EVENTS = [
    rule(("create", "patch", "update"), "", "events"),
    rule(("create", "patch", "update"), "events.k8s.io", "events"),
]

_VIEW = [
    rule(READ, "", "configmaps", "pods", "serviceaccounts", "events", "resourcequotas", "namespaces"),
    rule(READ, "", "services", "services/status"),
    rule(READ, "", "pods/log", "pods/status", "resourcequotas/status", "namespaces/status"),
    rule(READ, "events.k8s.io", "events"),
    rule(READ, "apps", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status"),
    rule(READ, "apps", "replicasets", "replicasets/scale", "replicasets/status"),
    rule(READ, "batch", "jobs", "jobs/status"),
    rule(READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
    rule(READ, _RESOURCE, "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
    rule(READ, _SCHEDULING, "podgroups", "podgroups/status", "workloads"),
]

_EDIT = [
    rule(READ, "", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets"),
    rule(("impersonate",), "", "serviceaccounts"),
    rule(WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    rule(("create",), "", "pods/eviction"),
    rule(("patch", "update"), "", "pods/resize"),
    rule(WRITE, "", "configmaps", "events", "secrets", "serviceaccounts", "services"),
    rule(("create",), "", "serviceaccounts/token"),
    rule(WRITE, "apps", "daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale"),
    rule(WRITE, "batch", "jobs"),
    rule(WRITE, "policy", "poddisruptionbudgets"),
    rule(WRITE, _RESOURCE, "resourceclaims", "resourceclaimtemplates"),
    rule(WRITE, _SCHEDULING, "podgroups", "workloads"),
    rule((*READ, *WRITE), "coordination.k8s.io", "leases"),
]

_ADMIN = [
    rule((*READ, *WRITE), _RBAC, "roles", "rolebindings"),
    rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
]

USER_ROLES: dict[str, list[Document]] = {
    "cluster-admin": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ],
    "view": _VIEW,
    "edit": [*_EDIT, *_VIEW],
    "admin": [*_ADMIN, *_EDIT, *_VIEW],
}

SYSTEM_ROLES: dict[str, list[Document]] = {
    "system:basic-user": [
        rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
    ],
    "system:discovery": [
        paths("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"),
        paths("/version", "/version/"),
    ],
    "system:public-info-viewer": [paths("/healthz", "/livez", "/readyz", "/version", "/version/")],
    "system:monitoring": [
        paths("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*")
    ],
    "system:service-account-issuer-discovery": [
        paths(
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        )
    ],
    "system:cluster-trust-bundle-discovery": [
        rule(("get", "list", "watch"), "certificates.k8s.io", "clustertrustbundles")
    ],
    "system:auth-delegator": [
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
    # A kubelet asks whether the user that fetches container logs may do this; this server has nothing behind nodes/proxy.
    "system:dray:container-logs": [rule(("get",), "", "nodes/proxy")],
    # What a kubelet may do is the node authorizer's; the role exists for who binds it by hand.
    "system:node": [
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews", "subjectaccessreviews"),
        rule(("create", *READ), "", "nodes"),
        rule(("patch", "update"), "", "nodes", "nodes/status", "pods/status"),
        rule(("create", "delete", *READ), "", "pods"),
        rule(("create",), "", "pods/eviction", "serviceaccounts/token"),
        rule(READ, "", "configmaps", "secrets", "services"),
        rule(("get",), "", "endpoints", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts"),
        rule(("create", *READ), "certificates.k8s.io", "certificatesigningrequests"),
        rule(READ, "certificates.k8s.io", "clustertrustbundles"),
        rule(READ, "node.k8s.io", "runtimeclasses"),
        rule(READ, "storage.k8s.io", "csidrivers"),
        rule(("get",), "storage.k8s.io", "volumeattachments"),
        rule(("create", "delete", "get", "patch", "update"), "storage.k8s.io", "csinodes"),
        rule(("create", "delete", "get", "patch", "update"), "coordination.k8s.io", "leases"),
        rule(("get",), _RESOURCE, "resourceclaims"),
        rule((*READ, *WRITE), _RESOURCE, "resourceslices"),
        *EVENTS,
    ],
    "system:kube-scheduler": [
        *EVENTS,
        rule(("create",), "coordination.k8s.io", "leases"),
        rule(("get", "list", "update", "watch"), "coordination.k8s.io", "leases", names=("kube-scheduler",)),
        rule(READ, "", "nodes", "namespaces"),
        rule(("delete", *READ), "", "pods"),
        rule(("create",), "", "bindings", "pods/binding"),
        rule(("patch", "update"), "", "pods/status"),
        rule(("update",), "", "pods/finalizers"),
        rule(READ, "apps", "replicasets", "statefulsets"),
        rule(READ, "", "replicationcontrollers", "services"),
        rule(("patch", "update", *READ), "", "persistentvolumeclaims", "persistentvolumes"),
        rule(READ, "storage.k8s.io", "csidrivers", "csinodes", "csistoragecapacities", "storageclasses"),
        rule(READ, "storage.k8s.io", "volumeattachments"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, _SCHEDULING, "podgroups"),
        rule(READ, _RESOURCE, "deviceclasses", "resourceslices", "devicetaintrules"),
        rule(("patch", "update", *READ), _RESOURCE, "resourceclaims", "resourceclaims/status"),
        rule(("create", "delete"), _RESOURCE, "resourceclaims"),
        rule(("patch", "update"), _RESOURCE, "resourceclaims/binding"),
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
    "system:kube-controller-manager": [
        *EVENTS,
        rule(("create",), "coordination.k8s.io", "leases"),
        rule(("get", "list", "update", "watch"), "coordination.k8s.io", "leases"),
        rule(("get",), "", "configmaps", "namespaces", "secrets"),
        rule(("create", "get", "update"), "", "serviceaccounts"),
        rule(("create",), "", "serviceaccounts/token", "secrets"),
        rule(("list", "watch"), "*", "*"),
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
}

# One service account in kube-system each, named without the prefix.
CONTROLLER_ROLES: dict[str, list[Document]] = {
    "resource-claim-controller": [
        rule(READ, "", "pods"),
        rule(("create", "delete", "patch", "update", *READ), _RESOURCE, "resourceclaims"),
        rule(READ, _RESOURCE, "resourceclaimtemplates"),
        rule(("patch", "update"), _RESOURCE, "resourceclaims/status", "resourceclaims/binding"),
        rule(("update",), "", "pods/finalizers"),
        rule(("patch", "update"), "", "pods/status"),
        rule(READ, _SCHEDULING, "podgroups"),
        rule(("patch", "update"), _SCHEDULING, "podgroups/status"),
        *EVENTS,
    ],
    "device-taint-eviction-controller": [
        rule(("delete", *READ), "", "pods"),
        rule(("patch", "update"), "", "pods/status"),
        rule(READ, _RESOURCE, "resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules"),
        rule(("patch", "update"), _RESOURCE, "devicetaintrules/status"),
        *EVENTS,
    ],
    "resourcepoolstatusrequest-controller": [
        rule(("delete", *READ), _RESOURCE, "resourcepoolstatusrequests"),
        rule(("patch", "update"), _RESOURCE, "resourcepoolstatusrequests/status"),
        rule(READ, _RESOURCE, "resourceclaims", "resourceslices"),
        *EVENTS,
    ],
    "generic-garbage-collector": [rule(("delete", "get", "list", "patch", "update", "watch"), "*", "*"), *EVENTS],
    "namespace-controller": [
        rule(("delete", *READ), "", "namespaces"),
        rule(("update",), "", "namespaces/finalize", "namespaces/status"),
        rule(("delete", "deletecollection", "get", "list"), "*", "*"),
    ],
    "resourcequota-controller": [
        rule(("list", "watch"), "*", "*"),
        rule(("update",), "", "resourcequotas/status"),
        *EVENTS,
    ],
    "service-account-controller": [rule(("create", *READ), "", "serviceaccounts"), rule(READ, "", "namespaces")],
    "root-ca-cert-publisher": [
        rule(("create", "update", *READ), "", "configmaps"),
        rule(READ, "", "namespaces"),
    ],
    "endpointslice-controller": [
        rule(READ, "", "nodes", "pods", "services"),
        rule(("update",), "", "services/finalizers"),
        rule(("create", "delete", "update", *READ), "discovery.k8s.io", "endpointslices"),
        *EVENTS,
    ],
    "pod-garbage-collector": [
        rule(("delete", *READ), "", "pods"),
        rule(READ, "", "nodes"),
        rule(("patch",), "", "pods/status"),
        *EVENTS,
    ],
    "node-controller": [
        rule(("delete", "patch", "update", *READ), "", "nodes"),
        rule(("patch", "update"), "", "nodes/status", "pods/status"),
        rule(("delete", *READ), "", "pods"),
        rule(READ, "coordination.k8s.io", "leases"),
        *EVENTS,
    ],
    "disruption-controller": [
        rule(READ, "", "pods", "replicationcontrollers"),
        rule(READ, "apps", "deployments", "replicasets", "statefulsets"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(("update",), "policy", "poddisruptionbudgets/status"),
        rule(("patch", "update"), "", "pods/status"),
        rule(("get",), "*", "*/scale"),
        *EVENTS,
    ],
    "deployment-controller": [
        rule(("get", "list", "update", "watch"), "apps", "deployments"),
        rule(("update",), "apps", "deployments/status", "deployments/finalizers"),
        rule(("create", "delete", "patch", "update", *READ), "apps", "replicasets"),
        rule(READ, "", "pods"),
        *EVENTS,
    ],
    "replicaset-controller": [
        rule(("get", "list", "update", "watch"), "apps", "replicasets"),
        rule(("update",), "apps", "replicasets/status", "replicasets/finalizers"),
        rule(("create", "delete", "patch", *READ), "", "pods"),
        *EVENTS,
    ],
    "replication-controller": [
        rule(("get", "list", "update", "watch"), "", "replicationcontrollers"),
        rule(("update",), "", "replicationcontrollers/status", "replicationcontrollers/finalizers"),
        rule(("create", "delete", "patch", *READ), "", "pods"),
        *EVENTS,
    ],
    "daemon-set-controller": [
        rule(READ, "apps", "daemonsets"),
        rule(("update",), "apps", "daemonsets/status", "daemonsets/finalizers"),
        rule(READ, "", "nodes"),
        rule(("create", "delete", "patch", *READ), "", "pods"),
        rule(("create",), "", "pods/binding"),
        *EVENTS,
    ],
    "job-controller": [
        rule(("get", "list", "patch", "update", "watch"), "batch", "jobs"),
        rule(("update",), "batch", "jobs/status", "jobs/finalizers"),
        rule(("create", "delete", "patch", *READ), "", "pods"),
        *EVENTS,
    ],
}

# Cluster role -> its subjects.
BINDINGS: dict[str, list[Document]] = {
    "cluster-admin": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:masters"}],
    "system:basic-user": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}],
    "system:discovery": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}],
    "system:public-info-viewer": [
        {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"},
        {"apiGroup": _RBAC, "kind": "Group", "name": "system:unauthenticated"},
    ],
    "system:monitoring": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:monitoring"}],
    "system:service-account-issuer-discovery": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:serviceaccounts"}],
    "system:cluster-trust-bundle-discovery": [{"apiGroup": _RBAC, "kind": "Group", "name": "system:serviceaccounts"}],
    "system:dray:container-logs": [{"apiGroup": _RBAC, "kind": "User", "name": "kube-apiserver-kubelet-client"}],
    "system:kube-scheduler": [{"apiGroup": _RBAC, "kind": "User", "name": "system:kube-scheduler"}],
    "system:kube-controller-manager": [{"apiGroup": _RBAC, "kind": "User", "name": "system:kube-controller-manager"}],
}


def _object(kind: str, name: str, **body: Any) -> Document:
    metadata = {"name": name, "labels": dict(BOOTSTRAP_LABEL), "annotations": dict(AUTO_UPDATE)}
    return {"kind": kind, "apiVersion": f"{_RBAC}/v1", "metadata": metadata, **body}


def _binding(name: str, subjects: list[Document]) -> Document:
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return _object("ClusterRoleBinding", name, subjects=subjects, roleRef=role)


def _manager_rules() -> list[Document]:
    """One process runs all controllers under one name, so it has what they have together."""
    rules = [*SYSTEM_ROLES[MANAGER]]
    for controller in CONTROLLER_ROLES.values():
        rules += [rule for rule in controller if rule not in rules]
    return rules


def cluster_roles() -> Iterator[Document]:
    for name, rules in {**USER_ROLES, **SYSTEM_ROLES, MANAGER: _manager_rules()}.items():
        yield _object("ClusterRole", name, rules=rules)
    for name, rules in CONTROLLER_ROLES.items():
        yield _object("ClusterRole", f"system:controller:{name}", rules=rules)


def cluster_role_bindings() -> Iterator[Document]:
    for name, subjects in BINDINGS.items():
        yield _binding(name, subjects)
    for name in CONTROLLER_ROLES:
        account = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
        yield _binding(f"system:controller:{name}", [account])
