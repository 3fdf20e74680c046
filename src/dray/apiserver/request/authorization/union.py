"""Everything that may say yes, asked in order: masters, nodes, RBAC."""

from dray.apiserver.request.authorization.node import NodeAuthorizer
from dray.apiserver.request.authorization.node_graph import (
    PODS,
    SLICES,
    NodeGraph,
)
from dray.apiserver.request.authorization.rbac import RbacIndex
from dray.apiserver.request.request_info import MASTERS, Attributes, Decision
from dray.apiserver.watch.store_mirror import Mirror
from dray.store.interface import Store


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
        mirrors = [Mirror(store, PODS, graph.apply_pod), Mirror(store, SLICES, graph.apply_slice)]
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
