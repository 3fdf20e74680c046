"""The objects of a first start: namespaces, default roles and bindings, priority classes, flow schemas and priority levels.

It runs at every start: it creates missing objects and leaves the others unchanged. Service accounts and the root
certificate's ConfigMap come from controllers.
"""

import asyncio
from collections.abc import Callable, Iterator

from dray.apiserver.request.authorization.default_roles import (
    cluster_role_bindings,
    cluster_roles,
)
from dray.apiserver.request.request_info import Document
from dray.apiserver.security.default_flow_control import GROUP, LEVELS, SCHEMAS, default_flow_control
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.clock import Clock, rfc3339
from dray.store.errors import AlreadyExists
from dray.store.interface import Store

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITY_CLASSES = {
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
}
_PLURALS = {
    "Namespace": ("", "namespaces"),
    "ClusterRole": ("rbac.authorization.k8s.io", "clusterroles"),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io", "clusterrolebindings"),
    "PriorityClass": ("scheduling.k8s.io", "priorityclasses"),
    "FlowSchema": (GROUP, SCHEMAS),
    "PriorityLevelConfiguration": (GROUP, LEVELS),
}


def first_objects() -> Iterator[Document]:
    for name in NAMESPACES:
        yield {
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
    for name, (value, description) in PRIORITY_CLASSES.items():
        yield {
            "kind": "PriorityClass",
            "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        }
    yield from default_flow_control()
    yield from cluster_roles()
    yield from cluster_role_bindings()


async def bootstrap(store: Store, clock: Clock, new_uid: Callable[[], str]) -> int:
    """Creates the missing objects; returns how many."""
    return sum(await asyncio.gather(*(_make(store, clock, new_uid, document) for document in first_objects())))


async def _make(store: Store, clock: Clock, new_uid: Callable[[], str], document: Document) -> bool:
    group, plural = _PLURALS[document["kind"]]
    key = object_key(group, plural, "", document["metadata"]["name"])
    if await store.get(key) is not None:
        return False
    document["metadata"] |= {"uid": new_uid(), "creationTimestamp": rfc3339(clock.now())}
    try:
        await store.create(key, to_value(document))
    except AlreadyExists:
        return False  # another server on the same store was quicker
    return True
