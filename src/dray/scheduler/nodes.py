"""Nodes as the scheduler sees them: the object, the pods placed there, and what is left."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dray.accounting.demand import Demand, PodRef
from dray.accounting.node_ledger import NodeLedger
from dray.api.core import Node, Pod
from dray.api.matching import HostPort
from dray.scheduler.framework.filtering import NodeChangeLog
from dray.scheduler.framework.interface import NodeFacet

REGION_LABEL = "topology.kubernetes.io/region"
ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class CountedPod:
    """A pod on a node, bound or assumed, with the amounts that were added for it; the same are subtracted when it leaves."""

    pod: Pod
    ref: PodRef
    demand: Demand
    ports: frozenset[HostPort]

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


def zone_of(node: Node) -> str:
    labels = node.metadata.labels
    region, zone = labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")
    return f"{region}\0{zone}" if region or zone else ""


class NodeState:
    """One node. `position` is its place in the node list, `bit` the mask with only that bit set."""

    __slots__ = ("bit", "ledger", "node", "pods", "ports", "position")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.position = -1
        self.bit = 0
        self.ledger = NodeLedger(node.metadata.name, node.status.allocatable)
        self.pods: dict[str, CountedPod] = {}
        self.ports: dict[HostPort, int] = {}

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels

    def replace_node(self, node: Node) -> None:
        self.node = node
        self.ledger.set_allocatable(node.status.allocatable)

    def enter(self, placed: CountedPod) -> None:
        self.pods[placed.pod.metadata.uid] = placed
        self.ledger.add(placed.ref, placed.demand)
        for port in placed.ports:
            self.ports[port] = self.ports.get(port, 0) + 1

    def leave(self, uid: str) -> CountedPod | None:
        placed = self.pods.pop(uid, None)
        if placed is None:
            return None
        self.ledger.remove(placed.ref)
        for port in placed.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        return placed

    def check(self) -> None:
        """Raise if the ledger's sums differ from what the pods say."""
        self.ledger.check()
        if {placed.ref for placed in self.pods.values()} != {ref for ref, _ in self.ledger.pods()}:
            raise AssertionError(f"node {self.name}: its ledger counts other pods than are placed on it")


class NodeList:
    """All nodes in the order in which attempts walk them: round-robin over zones, zones in order of appearance.

    Additions and removals take effect at the next `refresh`, so a burst of them is sorted once.
    """

    def __init__(self, log: NodeChangeLog) -> None:
        self._log = log
        self._by_name: dict[str, NodeState] = {}
        self._zones: dict[str, dict[str, None]] = {}
        self._in_order: list[NodeState] = []
        self._added: list[NodeState] = []
        self._reordered = False
        self._labels: dict[str, dict[str, int]] = {}
        self._labels_at = (-1, -1)

    def __len__(self) -> int:
        return len(self._in_order)

    def __getitem__(self, position: int) -> NodeState:
        return self._in_order[position]

    def __iter__(self) -> Iterator[NodeState]:
        return iter(self._in_order)

    @property
    def in_order(self) -> Sequence[NodeState]:
        """By position."""
        return self._in_order

    @property
    def everything(self) -> int:
        return (1 << len(self._in_order)) - 1

    def get(self, name: str) -> NodeState | None:
        return self._by_name.get(name)

    def mask_of(self, names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            state = self._by_name.get(name)
            if state is not None:
                mask |= state.bit
        return mask

    def by_label(self, key: str) -> dict[str, int]:
        """Nodes by the value of a label; those without it are left out. Worked out again when nodes have changed."""
        at = (self._log.ends[NodeFacet.OBJECT], len(self._in_order))
        if at != self._labels_at:
            self._labels, self._labels_at = {}, at
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = {}
            for state in self._in_order:
                value = state.labels.get(key)
                if value is not None:
                    found[value] = found.get(value, 0) | state.bit
        return found

    def set(self, node: Node) -> None:
        """Add the node or replace its object."""
        state = self._by_name.get(node.metadata.name)
        if state is None:
            self._add(NodeState(node))
            return
        if zone_of(state.node) != zone_of(node):
            self._zones[zone_of(state.node)].pop(node.metadata.name)
            self._zones.setdefault(zone_of(node), {})[node.metadata.name] = None
            self._reordered = True
        state.replace_node(node)
        self.touch(state, NodeFacet.OBJECT)

    def _add(self, state: NodeState) -> None:
        self._by_name[state.name] = state
        self._zones.setdefault(zone_of(state.node), {})[state.name] = None
        self._added.append(state)

    def remove(self, name: str) -> NodeState | None:
        state = self._by_name.pop(name, None)
        if state is None:
            return None
        zone = self._zones[zone_of(state.node)]
        zone.pop(name)
        if not zone:
            del self._zones[zone_of(state.node)]
        self._reordered = True
        return state

    def touch(self, state: NodeState, facet: NodeFacet) -> None:
        if state.bit:
            self._log.add(facet, state.bit)

    def refresh(self) -> None:
        if self._reordered or (self._added and len(self._zones) > 1):
            self._sort_all()
        else:
            for state in self._added:
                self._append(state)
        self._added.clear()
        self._reordered = False

    def _append(self, state: NodeState) -> None:
        state.position = len(self._in_order)
        state.bit = 1 << state.position
        self._in_order.append(state)

    def _sort_all(self) -> None:
        self._in_order.clear()
        queues = [list(zone) for zone in self._zones.values()]
        for turn in range(max((len(queue) for queue in queues), default=0)):
            for queue in queues:
                if turn < len(queue):
                    self._append(self._by_name[queue[turn]])
        self._log.forget_all()
