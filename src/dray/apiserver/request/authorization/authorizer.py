"""The authorizer of the server: asks `system:masters`, the node authorizer and RBAC in this order; and the 403 of a refused request.

The node authorizer says what `system:node:<name>` may do: a node may read only the objects that the pods bound to it use; `NodeGraph` knows
them. What a node may write into its own objects is checked by the admission plugin NodeRestriction (`dray.apiserver.write.admission.node_plugins`).
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from dray.api.dra.pod_claims import mentioned_claim_names
from dray.api.projections import (
    ClaimedVolume,
    OneNodesObject,
    ReferencedName,
    ReferencingPod,
    ReferencingPodSpec,
    ReferencingPodStatus,
    ReferencingVolume,
)
from dray.apiserver.errors import ApiError
from dray.apiserver.request.authorization.rbac import RbacIndex
from dray.apiserver.request.request_info import MASTERS, Attributes, Decision
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import HAS_NODE, resource_prefix

# (plural, namespace, name)
Reference = tuple[str, str, str]

POD_PREFIX = resource_prefix("", "pods")
VOLUME_PREFIX = resource_prefix("", "persistentvolumes")
# Objects that belong to the node that they name.
ONE_NODES_PREFIXES = {
    "resourceslices": resource_prefix("resource.k8s.io", "resourceslices"),
    "volumeattachments": resource_prefix("storage.k8s.io", "volumeattachments"),
    "podcertificaterequests": resource_prefix("certificates.k8s.io", "podcertificaterequests"),
}

_pods = msgspec.json.Decoder(ReferencingPod)
_volumes = msgspec.json.Decoder(ClaimedVolume)
_one_nodes = msgspec.json.Decoder(OneNodesObject)


class BoundPod(msgspec.Struct, frozen=True, gc=False):
    """What a pod refers to. One is kept for every pod of the cluster."""

    node: str
    claims: tuple[Reference, ...]
    others: tuple[Reference, ...]


# The lists that are shared are forgotten as a whole when they are too many; pods keep those that they have. Long ones are not shared.
MOST_SHARED = 1024
LONG_LIST = 16


class SharedReferences:
    """Gives equal lists of references as one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[Reference, ...], tuple[Reference, ...]] = {}

    def one(self, references: tuple[Reference, ...]) -> tuple[Reference, ...]:
        if len(references) > LONG_LIST:
            return references
        if len(self._known) >= MOST_SHARED:
            self._known.clear()
        return self._known.setdefault(references, references)


class NodeGraph:
    """Fed from the store; answers whether a node has anything to do with an object."""

    def __init__(self) -> None:
        # How many pods of a node refer to an object.
        self._references_by_node: dict[str, dict[Reference, int]] = {}
        self._by_pod: dict[str, BoundPod] = {}
        self._shared = SharedReferences()
        self._claim_by_volume: dict[str, tuple[str, str]] = {}
        self._node_by_key: dict[str, str] = {}

    def apply_pod(self, key: str, value: bytes | None) -> None:
        before = self._by_pod.pop(key, None)
        if before is not None:
            self._count(before, -1)
        # Most pods change several times before they have a node; then there is nothing to read.
        if value is None or HAS_NODE not in value:
            return
        pod = _pods.decode(value)
        if not pod.spec.node_name:
            return
        namespace = sys.intern(key[len(POD_PREFIX) : key.rindex("/")])
        own, others = dict.fromkeys(_claims(pod, namespace)), dict.fromkeys(_references(pod, namespace))
        bound = BoundPod(sys.intern(pod.spec.node_name), tuple(own), self._shared.one(tuple(others)))
        self._by_pod[key] = bound
        self._count(bound, 1)

    def _count(self, pod: BoundPod, by: int) -> None:
        counts = self._references_by_node.setdefault(pod.node, {})
        for reference in chain(pod.claims, pod.others):
            count = counts.get(reference, 0) + by
            if count > 0:
                counts[reference] = count
            else:
                counts.pop(reference, None)
        if not counts:
            del self._references_by_node[pod.node]

    def apply_volume(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(VOLUME_PREFIX)
        self._claim_by_volume.pop(name, None)
        spec = _volumes.decode(value).spec if value is not None else None
        if spec is not None and spec.claim_ref is not None:
            self._claim_by_volume[name] = spec.claim_ref.namespace, spec.claim_ref.name

    def apply_one_nodes(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._node_by_key.pop(key, None)
        else:
            self._node_by_key[key] = _one_nodes.decode(value).spec.node_name or ""

    def refers(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether a pod bound to the node (or the pod itself) is, or uses, this object."""
        if plural == "pods":
            pod = self._by_pod.get(f"{POD_PREFIX}{namespace}/{name}")
            return pod is not None and pod.node == node
        counts = self._references_by_node.get(node)
        return counts is not None and (plural, namespace, name) in counts

    def uses_volume(self, node: str, name: str) -> bool:
        """Whether a pod of the node has the claim to which the volume is bound."""
        claim = self._claim_by_volume.get(name)
        return claim is not None and self.refers(node, "persistentvolumeclaims", *claim)

    def belongs(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether the object, if there is one, names this node as its own."""
        path = f"{namespace}/{name}" if namespace else name
        return self._node_by_key.get(f"{ONE_NODES_PREFIXES[plural]}{path}") == node


def _claims(pod: ReferencingPod, namespace: str) -> Iterator[Reference]:
    for claim_name in mentioned_claim_names(pod.spec, pod.status or ReferencingPodStatus()):
        yield "resourceclaims", namespace, claim_name


def _references(pod: ReferencingPod, namespace: str) -> Iterator[Reference]:
    """Without its claims: what pods of one template have in common."""
    spec = pod.spec
    if spec.service_account_name:  # A mirror pod has none, and its node may make one in any namespace.
        yield "serviceaccounts", namespace, spec.service_account_name
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield "persistentvolumeclaims", namespace, volume.persistent_volume_claim.claim_name
    for plural, name in secrets_and_config_maps(spec):
        if name:
            yield plural, namespace, name


def secrets_and_config_maps(spec: ReferencingPodSpec) -> Iterator[tuple[str, str]]:
    """Plural and name of every Secret and ConfigMap that a kubelet reads for this pod.

    The node graph and NodeRestriction both use it, so that a node cannot refer to an object that only one of them sees.
    """
    for pull in spec.image_pull_secrets or ():
        yield "secrets", pull.name
    for container in (*(spec.containers or ()), *(spec.init_containers or ()), *(spec.ephemeral_containers or ())):
        for origin in container.env_from or ():
            yield from _named("configmaps", origin.config_map_ref)
            yield from _named("secrets", origin.secret_ref)
        for variable in container.env or ():
            if variable.value_from is not None:
                yield from _named("configmaps", variable.value_from.config_map_key_ref)
                yield from _named("secrets", variable.value_from.secret_key_ref)
    for volume in spec.volumes or ():
        if volume.secret is not None:
            yield "secrets", volume.secret.secret_name
        yield from _secrets_of_remote_storage(volume)
        yield from _named("configmaps", volume.config_map)
        for source in (volume.projected.sources if volume.projected else None) or ():
            yield from _named("secrets", source.secret)
            yield from _named("configmaps", source.config_map)


def _secrets_of_remote_storage(volume: ReferencingVolume) -> Iterator[tuple[str, str]]:
    if volume.azure_file is not None:
        yield "secrets", volume.azure_file.secret_name
    if volume.csi is not None:
        yield from _named("secrets", volume.csi.node_publish_secret_ref)
    for source in (
        volume.cephfs, volume.cinder, volume.flex_volume, volume.iscsi, volume.rbd, volume.scale_io, volume.storageos
    ):  # fmt: skip
        if source is not None:
            yield from _named("secrets", source.secret_ref)


def _named(plural: str, reference: ReferencedName | None) -> Iterator[tuple[str, str]]:
    if reference is not None:
        yield plural, reference.name


LEASE_NAMESPACE = "kube-node-lease"
ALLOWED = Decision(True)

READ = frozenset({"get", "list", "watch"})

# Verbs that need no look at the object: admission looks at what is written.
_ALWAYS: dict[tuple[str, str], frozenset[str]] = {
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("authentication.k8s.io", "selfsubjectreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "localsubjectaccessreviews"): frozenset({"create"}),
    ("", "events"): frozenset({"create", "update", "patch"}),
    ("events.k8s.io", "events"): frozenset({"create", "update", "patch"}),
    ("", "nodes"): frozenset({"create", "update", "patch"}),
    ("", "nodes/status"): frozenset({"update", "patch"}),
    ("", "pods"): frozenset({"create", "delete"}),
    ("", "pods/status"): frozenset({"update", "patch"}),
    ("", "pods/eviction"): frozenset({"create"}),
    ("resource.k8s.io", "resourceslices"): frozenset({"create"}),
    ("", "services"): READ,
    ("", "endpoints"): frozenset({"get"}),
    ("node.k8s.io", "runtimeclasses"): READ,
    ("storage.k8s.io", "csidrivers"): READ,
    ("certificates.k8s.io", "clustertrustbundles"): READ,
    ("certificates.k8s.io", "certificatesigningrequests"): frozenset({"create"}) | READ,
}


class NodeAuthorizer:
    def __init__(self, graph: NodeGraph) -> None:
        self._graph = graph
        self._rules: dict[tuple[str, str], Callable[[str, Attributes], Decision]] = {
            ("", "nodes"): self._nodes,
            ("", "pods"): self._pods,
            ("", "secrets"): self._referenced_reads,
            ("", "configmaps"): self._referenced_reads,
            ("", "serviceaccounts"): self._service_accounts,
            ("", "serviceaccounts/token"): self._tokens,
            ("coordination.k8s.io", "leases"): self._leases,
            ("storage.k8s.io", "csinodes"): self._csi_nodes,
            ("storage.k8s.io", "csinodes/status"): self._csi_node_status,
            ("storage.k8s.io", "volumeattachments"): self._attachments,
            ("", "persistentvolumes"): self._volumes,
            ("", "persistentvolumeclaims"): self._volume_claims,
            ("", "persistentvolumeclaims/status"): self._volume_claim_status,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificates,
            ("resource.k8s.io", "resourceclaims"): self._claims,
            ("resource.k8s.io", "resourceslices"): self._slices,
        }

    def decide(self, attributes: Attributes) -> Decision:
        node = attributes.user.node_name
        if not node or not attributes.is_resource:
            return Decision(False)
        kind = (attributes.group, attributes.full_resource)
        if attributes.verb in _ALWAYS.get(kind, ()):
            return ALLOWED
        rule = self._rules.get(kind)
        return rule(node, attributes) if rule else Decision(False)

    def _nodes(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get":
            return _only(
                attributes.name == node, f"node {node!r} cannot read {attributes.name!r}, only its own Node object"
            )
        if attributes.verb in ("list", "watch"):
            own = attributes.name == node or _selects(attributes, "metadata.name", node)
            return _only(own, f"node {node!r} cannot read all nodes, only its own Node object")
        return Decision(False)

    def _pods(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get":
            return self._related(node, "pods", attributes)
        if attributes.verb in ("list", "watch"):
            own = _selects(attributes, "spec.nodeName", node)
            if not own and attributes.name:
                return self._related(node, "pods", attributes)
            return _only(own, "can only list/watch pods with spec.nodeName field selector")
        return Decision(False)

    def _referenced_reads(self, node: str, attributes: Attributes) -> Decision:
        """Secrets and config maps: one at a time, by name, and only those a pod of this node uses."""
        if attributes.verb not in ("get", "list", "watch"):
            return Decision(False, "can only read resources of this type")
        return self._related(node, attributes.resource, attributes)

    def _service_accounts(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get service accounts")
        return self._related(node, "serviceaccounts", attributes)

    def _tokens(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "create":
            return Decision(False, "can only create tokens for individual service accounts")
        return self._related(node, "serviceaccounts", attributes)

    def _leases(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in ("get", "create", "update", "patch", "delete"):
            return Decision(False, "can only get, create, update, patch, or delete a node lease")
        if attributes.namespace != LEASE_NAMESPACE:
            return Decision(False, f"can only access leases in the {LEASE_NAMESPACE!r} system namespace")
        # A creation has no name in its path; admission compares the object's name.
        return _only(
            attributes.verb == "create" or attributes.name == node,
            "can only access node lease with the same name as the requesting node",
        )

    def _csi_nodes(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in ("get", "create", "update", "patch", "delete"):
            return Decision(False, "can only get, create, update, patch, or delete a CSINode")
        # A creation has no name in its path; admission compares the object's name.
        return _only(
            attributes.verb == "create" or attributes.name == node,
            "can only access CSINode with the same name as the requesting node",
        )

    def _csi_node_status(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in ("get", "update", "patch"):
            return Decision(False, "can only get, update, or patch CSINode status")
        return _only(attributes.name == node, "can only access CSINode with the same name as the requesting node")

    def _attachments(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        return self._owned(node, attributes)

    def _volumes(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        if not attributes.name:
            return Decision(False, "No Object name found")
        found = self._graph.uses_volume(node, attributes.name)
        return _only(found, f"no relationship found between node '{node}' and this object")

    def _volume_claim_status(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in ("update", "patch"):
            return Decision(False, "can only get/update/patch this type")
        return self._related(node, "persistentvolumeclaims", attributes)

    def _volume_claims(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        return self._related(node, "persistentvolumeclaims", attributes)

    def _claims(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        return self._related(node, "resourceclaims", attributes)

    def _slices(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb in ("list", "watch") and _selects(attributes, "spec.nodeName", ""):
            # Devices that several nodes can reach: a pod here may refer to their attributes.
            return ALLOWED
        if attributes.verb in ("list", "watch", "deletecollection"):
            return _only(
                _selects(attributes, "spec.nodeName", node),
                f"can only {attributes.verb} resourceslices with field selector spec.nodeName={node}",
            )
        if attributes.verb in ("get", "update", "patch", "delete") and attributes.name:
            return self._owned(node, attributes)
        return Decision(False)

    def _pod_certificates(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get":
            return self._owned(node, attributes)
        if attributes.verb in ("list", "watch"):
            return _only(
                _selects(attributes, "spec.nodeName", node),
                "can only list/watch podcertificaterequests with nodeName field selector",
            )
        return _only(attributes.verb == "create", f"nodes may not {attributes.verb} podcertificaterequests")

    def _owned(self, node: str, attributes: Attributes) -> Decision:
        if not attributes.name:
            return Decision(False, "No Object name found")
        found = self._graph.belongs(node, attributes.resource, attributes.namespace, attributes.name)
        return _only(found, f"no relationship found between node '{node}' and this object")

    def _related(self, node: str, plural: str, attributes: Attributes) -> Decision:
        if not attributes.name:
            return Decision(False, "No Object name found")
        found = self._graph.refers(node, plural, attributes.namespace, attributes.name)
        return _only(found, f"no relationship found between node '{node}' and this object")


def _only(condition: bool, reason: str) -> Decision:
    return ALLOWED if condition else Decision(False, reason)


def _selects(attributes: Attributes, field: str, value: str) -> bool:
    return any(
        term.field == field and term.operator in ("=", "==") and term.value == value
        for term in attributes.field_requirements
    )


def forbidden_error(attributes: Attributes, decision: Decision) -> ApiError:
    """403, for a resource or for a plain path."""
    user = attributes.user.name
    because = f": {decision.reason}" if decision.reason else ""
    if not attributes.is_resource:
        message = f'forbidden: User "{user}" cannot {attributes.verb} path "{attributes.path}"{because}'
        return ApiError(403, "Forbidden", message, {})
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    plural = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    subject = f'{plural} "{attributes.name}"' if attributes.name else plural
    message = (
        f'{subject} is forbidden: User "{user}" cannot {attributes.verb} resource "{attributes.full_resource}" '
        f'in API group "{attributes.group}" {where}{because}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return ApiError(403, "Forbidden", message, {key: value for key, value in details.items() if value})


class ServerAuthorizer:
    """The authorizer of a server. Its indexes are complete once the follower of the store was started."""

    def __init__(self, follower: StoreFollower) -> None:
        self.rbac = RbacIndex.following(follower)
        self.graph = NodeGraph()
        self._node = NodeAuthorizer(self.graph)
        follower.subscribe_index([POD_PREFIX], self.graph.apply_pod)
        follower.subscribe_index([VOLUME_PREFIX], self.graph.apply_volume)
        follower.subscribe_index(list(ONE_NODES_PREFIXES.values()), self.graph.apply_one_nodes)

    async def authorize(self, attributes: Attributes) -> Decision:
        return self.decide(attributes)

    def decide(self, attributes: Attributes) -> Decision:
        """The answer at once: everything it needs is in memory."""
        if MASTERS in attributes.user.groups:
            return Decision(True)
        reasons = []
        for decide in (self._node.decide, self.rbac.decide):
            decision = decide(attributes)
            if decision.allowed:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(False, ", ".join(reasons))
