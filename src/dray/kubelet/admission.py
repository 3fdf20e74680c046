"""May this pod run here? The node's own check, by the same ledger as the scheduler's."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from dray.accounting import AccountingError, NodeLedger, NoFit, PodRef, Shortage, pod_demand
from dray.accounting.fit import Reason
from dray.accounting.resources import PODS, is_node_allocatable
from dray.api.core import Node, Pod
from dray.api.matching import pod_wants_node, untolerated
from dray.api.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Rejection:
    """The pod ends in phase Failed with this reason and message."""

    reason: str
    message: str


class Admission:
    """Pods that were let in, and what is left for the next."""

    def __init__(self, node_name: str, allocatable: Mapping[str, Quantity]) -> None:
        self._node_name = node_name
        self.ledger = NodeLedger(node_name, allocatable)

    def admit(self, pod: Pod, node: Node | None) -> Rejection | None:
        """Count the pod in, or say why not. A pod that is counted already stays in."""
        reference = PodRef.of(pod)
        if self.ledger.demand_of(reference) is not None:
            return None
        if pod.spec.node_name != self._node_name:
            return Rejection("NodeName", "Predicate NodeName failed: node didn't match the requested node name")
        try:
            demand = pod_demand(pod)
        except AccountingError as error:
            return Rejection("UnexpectedAdmissionError", str(error))
        answer = self.ledger.fits(demand)
        if isinstance(answer, NoFit) and (reasons := [each for each in answer.reasons if not self._is_elsewhere(each)]):
            return _no_room(reasons[0])
        if node is not None and (rejection := _node_rejects(pod, node)):
            return rejection
        self.ledger.add(reference, demand)
        return None

    def _is_elsewhere(self, reason: Reason) -> bool:
        """An extended resource that the node itself does not offer: devices serve it, and the scheduler has counted them."""
        return (
            isinstance(reason, Shortage)
            and not is_node_allocatable(reason.resource)
            and reason.resource != PODS
            and reason.resource not in self.ledger.allocatable_scalars
        )

    def let_back_in(self, pod: Pod) -> None:
        """A pod that this node let in before it was restarted: it runs, so it counts."""
        with contextlib.suppress(AccountingError):
            self.ledger.add(PodRef.of(pod), pod_demand(pod))

    def release(self, pod: Pod) -> None:
        self.ledger.remove(PodRef.of(pod))


def _no_room(first: Reason) -> Rejection:
    if isinstance(first, Shortage):
        text = f"Node didn't have enough resource: {first.resource}, requested: {first.asked}, used: {first.used}, capacity: {first.capacity}"
        return Rejection(f"OutOf{first.resource}", text)
    return Rejection("UnexpectedAdmissionError", first.message)


def _node_rejects(pod: Pod, node: Node) -> Rejection | None:
    if not pod_wants_node(pod.spec, node):
        return Rejection(
            "NodeAffinity", "Predicate NodeAffinity failed: node didn't match Pod's node affinity/selector"
        )
    if untolerated(node.spec.taints, pod.spec.tolerations, frozenset({"NoExecute"})):
        return Rejection("TaintToleration", "Predicate TaintToleration failed: node had untolerated taint(s)")
    return None
