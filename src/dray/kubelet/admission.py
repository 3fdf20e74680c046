"""Whether the node admits a pod: the kubelet's own check, with the same ledger as the scheduler's."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from dray.accounting import (
    SCHEDULING,
    SCHEDULING_WITHOUT_CLAIMS,
    AccountingError,
    Demand,
    DoesNotFit,
    NodeLedger,
    PodRef,
    Shortage,
    pod_demand,
    qos_class,
)
from dray.accounting.fit import Refusal
from dray.accounting.resources import PODS, is_node_allocatable
from dray.api.core import Node, Pod, Taint
from dray.api.dra.taints import NO_EXECUTE, first_untolerated
from dray.api.matching import HostPort, host_ports, pod_wants_node, ports_clash
from dray.api.quantity import Quantity
from dray.kubelet.eviction import CRITICAL_PRIORITY, PRESSURE_TAINT

PRESSURE = Taint(key=PRESSURE_TAINT, effect="NoSchedule")
OS_LABEL, THIS_OS = "kubernetes.io/os", "linux"


@dataclass(frozen=True, slots=True)
class AdmissionRejection:
    """The pod ends in phase Failed with this reason and message."""

    reason: str
    message: str


# Said of the node's labels and taints, which anybody may change at any moment.
OF_THE_NODE = ("NodeAffinity", "TaintToleration")


class PodAdmission:
    """The admitted pods and the room they leave. `counts_claims` says whether devices count against cpu and memory."""

    def __init__(self, node_name: str, allocatable: Mapping[str, Quantity], *, counts_claims: bool = True) -> None:
        self._node_name = node_name
        self._options = SCHEDULING if counts_claims else SCHEDULING_WITHOUT_CLAIMS
        self._ports: dict[PodRef, frozenset[HostPort]] = {}
        self.ledger = NodeLedger(node_name, allocatable)
        # Pods without any request are turned away meanwhile.
        self.has_memory_pressure = False

    def admit(self, pod: Pod, node: Node | None) -> AdmissionRejection | None:
        """Count the pod in, or say why not. A pod that is counted already stays in."""
        reference = PodRef.of(pod)
        if self.ledger.demand_of(reference) is not None:
            return None
        if rejection := _other_system(pod) or self._under_pressure(pod):
            return rejection
        try:
            demand = pod_demand(pod, options=self._options)
        except AccountingError as error:
            return AdmissionRejection("UnexpectedAdmissionError", str(error))
        rejection = self._no_room_for(demand) or self._rejects(pod, node)
        if rejection is None:
            self.ledger.add(reference, demand)
            self._ports[reference] = host_ports(pod)
        return rejection

    def _under_pressure(self, pod: Pod) -> AdmissionRejection | None:
        is_critical = (pod.spec.priority or 0) >= CRITICAL_PRIORITY
        if not self.has_memory_pressure or is_critical or qos_class(pod) != "BestEffort":
            return None
        if first_untolerated((PRESSURE,), pod.spec.tolerations) is None:
            return None
        return AdmissionRejection("Evicted", "The node had condition: [MemoryPressure].")

    def _no_room_for(self, demand: Demand) -> AdmissionRejection | None:
        answer = self.ledger.fits(demand)
        refusals = answer.refusals if isinstance(answer, DoesNotFit) else ()
        return next((_no_room(each) for each in refusals if not self._is_elsewhere(each)), None)

    def _rejects(self, pod: Pod, node: Node | None) -> AdmissionRejection | None:
        if node is not None and not pod_wants_node(pod.spec, node):
            return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
        if pod.spec.node_name != self._node_name:
            return _predicate("NodeName", "node(s) didn't match the requested node name")
        taken = [port for ports in self._ports.values() for port in ports]
        if any(ports_clash(wanted, port) for wanted in host_ports(pod) for port in taken):
            return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
        if node is not None and first_untolerated(node.spec.taints, pod.spec.tolerations, frozenset({NO_EXECUTE})):
            return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
        return None

    def _is_elsewhere(self, reason: Refusal) -> bool:
        """An extended resource that the node itself does not offer: devices serve it, and the scheduler has counted them."""
        return (
            isinstance(reason, Shortage)
            and not is_node_allocatable(reason.resource)
            and reason.resource != PODS
            and reason.resource not in self.ledger.allocatable_scalars
        )

    def let_back_in(self, pod: Pod) -> None:
        """A pod that this node let in before it was restarted: it runs, so it counts."""
        reference = PodRef.of(pod)
        self._ports[reference] = host_ports(pod)
        with contextlib.suppress(AccountingError):
            self.ledger.add(reference, pod_demand(pod, options=self._options))

    def release(self, pod: Pod) -> None:
        reference = PodRef.of(pod)
        self._ports.pop(reference, None)
        self.ledger.remove(reference)


def _no_room(first: Refusal) -> AdmissionRejection:
    if isinstance(first, Shortage):
        text = f"Node didn't have enough resource: {first.resource}, requested: {first.asked}, used: {first.used}, capacity: {first.capacity}"
        return AdmissionRejection(f"OutOf{first.resource}", text)
    return AdmissionRejection("UnexpectedAdmissionError", first.message)


def _other_system(pod: Pod) -> AdmissionRejection | None:
    if pod.spec.node_selector.get(OS_LABEL, THIS_OS) != THIS_OS:
        text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return AdmissionRejection("PodOSSelectorNodeLabelDoesNotMatch", text)
    if pod.spec.os is not None and pod.spec.os.name != THIS_OS:
        return AdmissionRejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _predicate(name: str, why: str) -> AdmissionRejection:
    return AdmissionRejection(name, f"Predicate {name} failed: {why}")
