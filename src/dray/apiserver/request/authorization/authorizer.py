"""The authorizer of the server: asks `system:masters`, the node authorizer and RBAC in this order; and the 403 of a refused request."""

from dray.apiserver.errors import ApiError
from dray.apiserver.request.authorization.node_authorizer import POD_PREFIX, SLICE_PREFIX, NodeAuthorizer, NodeGraph
from dray.apiserver.request.authorization.rbac import RbacIndex
from dray.apiserver.request.request_info import MASTERS, Attributes, Decision
from dray.apiserver.watch.store_follower import StoreFollower


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
        follower.subscribe_index([SLICE_PREFIX], self.graph.apply_slice)

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
