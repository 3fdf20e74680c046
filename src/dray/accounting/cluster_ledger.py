"""The ledgers of all nodes, and where each pod is."""

from collections.abc import Iterator

from dray.accounting.demand import Demand, PodRef
from dray.accounting.node_ledger import NodeLedger
from dray.api.core import Node


class ClusterLedger:
    """Events come as a watch gives them, in any order between nodes and pods; each touches one node's ledger."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeLedger] = {}
        # Nodes that pods name but that are not there (yet).
        self._absent: set[str] = set()
        self._node_of: dict[PodRef, str] = {}

    def __iter__(self) -> Iterator[NodeLedger]:
        return (ledger for name, ledger in self.nodes.items() if name not in self._absent)

    def set_node(self, node: Node) -> NodeLedger:
        """A node that came or changed."""
        ledger = self._ledger(node.metadata.name)
        self._absent.discard(ledger.name)
        ledger.set_allocatable(node.status.allocatable)
        return ledger

    def remove_node(self, name: str) -> None:
        """Its pods stay known until they are removed themselves."""
        ledger = self.nodes.get(name)
        if ledger is None:
            return
        if ledger.pod_count:
            self._absent.add(name)
            ledger.set_allocatable({})
        else:
            del self.nodes[name]

    def add(self, node_name: str, pod: PodRef, demand: Demand) -> None:
        """The pod is on that node; should it have been assumed elsewhere, it is not there any more."""
        present = self._node_of.get(pod)
        if present is not None and present != node_name:
            self.remove(pod)
        self._ledger(node_name).add(pod, demand)
        self._node_of[pod] = node_name

    def remove(self, pod: PodRef) -> Demand | None:
        name = self._node_of.pop(pod, None)
        return None if name is None else self._leave(name, self.nodes[name].remove(pod))

    def assume(self, node_name: str, pod: PodRef, demand: Demand) -> None:
        self._ledger(node_name).assume(pod, demand)
        self._node_of[pod] = node_name

    def forget(self, node_name: str, pod: PodRef) -> None:
        self._leave(node_name, self._ledger(node_name).forget(pod))
        del self._node_of[pod]

    def node_of(self, pod: PodRef) -> str | None:
        return self._node_of.get(pod)

    def check(self) -> None:
        for ledger in self.nodes.values():
            ledger.check()

    def _ledger(self, name: str) -> NodeLedger:
        ledger = self.nodes.get(name)
        if ledger is None:
            ledger = self.nodes[name] = NodeLedger(name)
            self._absent.add(name)
        return ledger

    def _leave(self, name: str, demand: Demand | None) -> Demand | None:
        if name in self._absent and not self.nodes[name].pod_count:
            del self.nodes[name]
            self._absent.discard(name)
        return demand
