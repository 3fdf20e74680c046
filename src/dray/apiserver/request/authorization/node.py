"""The node authorizer: what `system:node:<name>` may do, which is its own business and nothing of another node's.

What a node may write into its own objects is admission (`dray.apiserver.write.admission.node_restriction`).
"""

from collections.abc import Callable

from dray.apiserver.request.authorization.node_graph import NodeGraph
from dray.apiserver.request.request_info import Attributes, Decision

LEASE_NAMESPACE = "kube-node-lease"
ALLOWED = Decision(True)

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

    def _claims(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        return self._related(node, "resourceclaims", attributes)

    def _slices(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb in ("list", "watch", "deletecollection"):
            return _only(
                _selects(attributes, "spec.nodeName", node),
                f"can only {attributes.verb} resourceslices with field selector spec.nodeName={node}",
            )
        if attributes.verb in ("get", "update", "patch", "delete") and attributes.name:
            owner = self._graph.node_of_slice(attributes.name)
            return _only(owner == node, f"no relationship found between node '{node}' and this object")
        return Decision(False)

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
