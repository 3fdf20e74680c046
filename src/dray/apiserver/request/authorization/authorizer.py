"""The authorizer of the server: asks `system:masters`, the node authorizer and RBAC in this order; and the 403 of a refused request."""

from dray.apiserver.errors import ApiError
from dray.apiserver.request.authorization.node_authorizer import POD_PREFIX, SLICE_PREFIX, NodeAuthorizer, NodeGraph
from dray.apiserver.request.authorization.rbac import RbacIndex
from dray.apiserver.request.request_info import MASTERS, Attributes, Decision
from dray.apiserver.watch.store_mirror import Mirror
from dray.store.interface import Store


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
    """The authorizer of a server. Start it before the first request: its indexes must be complete."""

    def __init__(self, rbac: RbacIndex, graph: NodeGraph, mirrors: list[Mirror]) -> None:
        self.rbac = rbac
        self.graph = graph
        self._node = NodeAuthorizer(graph)
        self._mirrors = mirrors

    @staticmethod
    async def start(store: Store) -> "ServerAuthorizer":
        rbac, rbac_mirror = await RbacIndex.start(store)
        graph = NodeGraph()
        mirrors = [Mirror(store, POD_PREFIX, graph.apply_pod), Mirror(store, SLICE_PREFIX, graph.apply_slice)]
        for mirror in mirrors:
            await mirror.start()
        return ServerAuthorizer(rbac, graph, [rbac_mirror, *mirrors])

    async def stop(self) -> None:
        for mirror in self._mirrors:
            await mirror.stop()

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
