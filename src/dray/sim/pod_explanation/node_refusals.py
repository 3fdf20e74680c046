"""Details of a filter's refusal: the taint, label, port, ledger row or claim that made a node refuse a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dray.accounting import (
    AccountingError,
    ClaimCharge,
    RequestOptions,
    budget_problems,
    pod_demand,
    pod_requests,
)
from dray.allocator import Allocation
from dray.api.core import Node, NodeSelector, NodeSelectorRequirement, Pod, PodAffinityTerm
from dray.api.dra.pools import device_id
from dray.api.matching import host_ports, matches_node, matches_requirement, only_names, required_nodes
from dray.explain.node_remedies import is_in_trouble, taints_in_the_way
from dray.explain.node_shortage import ShortRow, short_rows
from dray.explain.verdicts import Refusal
from dray.explain.what_if import step_limit
from dray.scheduler.framework.interface import CycleState
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.node_allocatable import charges_on
from dray.scheduler.plugins.dynamic_resources.pod_claims import PodAttempt
from dray.scheduler.plugins.inter_pod_affinity import required_affinity, required_anti_affinity, term_matches
from dray.scheduler.plugins.node_resources_fit import spec_demand

Detail = Callable[["RefusalDetails"], str]


class RefusalDetails:
    """The details behind the refusal of one pod by one node."""

    def __init__(self, pod: Pod, node: NodeState, cycle: CycleState, handle: Handle) -> None:
        self.pod = pod
        self.node = node
        self.cycle = cycle
        self.handle = handle

    def text(self, code: str) -> str:
        """More than the filter's own words; empty if there is no more to say."""
        detail = _DETAILS.get(code)
        return detail(self) if detail is not None else ""

    def has_claims_elsewhere(self) -> bool:
        attempt = self.cycle.read(PodAttempt)
        return attempt is not None and any(
            claim.status.allocation is not None
            and not matches_node(claim.status.allocation.node_selector, self.node.node)
            for claim in attempt.allocated
        )

    def short_rows(self, code: str) -> tuple[ShortRow, ...]:
        if code not in ("node-resources", "too-many-pods", "node-resources-of-devices"):
            return ()
        by_spec = spec_demand(self.pod)
        try:
            demand = pod_demand(self.pod, self.charges()) if code == "node-resources-of-devices" else by_spec
        except AccountingError:
            return ()
        return tuple(short_rows(self.node.ledger, demand, by_spec))

    def charges(self) -> tuple[ClaimCharge, ...]:
        attempt = self.cycle.read(PodAttempt)
        if attempt is None:
            return ()
        question = attempt.on(self.node).question
        answer = question.on(self.node.node, step_limit()) if question is not None else None
        allocation = answer if isinstance(answer, Allocation) else None
        return charges_on(attempt, self.pod, self.node, self.handle, allocation)


def without_taint_of_cordon(refusals: list[Refusal], pod: Pod, node: Node) -> list[Refusal]:
    """A cordoned node carries a taint that says the same once more."""
    is_cordoned = any(row.code == "node-unschedulable" for row in refusals)
    if not is_cordoned or taints_in_the_way(pod, node):
        return refusals
    return [row for row in refusals if row.code != "node-taint"]


def _taints(on_node: RefusalDetails) -> str:
    found = [
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in taints_in_the_way(on_node.pod, on_node.node.node)
    ]
    trouble = "; the node is not healthy" if is_in_trouble(on_node.node.node) else ""
    return f"taint {', '.join(found)} is not tolerated by the pod{trouble}"


def _affinity(on_node: RefusalDetails) -> str:
    return _unmet_selector(on_node) + _claims_here(on_node)


def _claims_here(on_node: RefusalDetails) -> str:
    """Claims that are allocated already and can be used on this node: the pod has to come here, and may not."""
    attempt = on_node.cycle.read(PodAttempt)
    here = [
        claim
        for claim in (attempt.allocated if attempt is not None else ())
        if claim.status.allocation is not None
        and claim.status.allocation.node_selector is not None
        and matches_node(claim.status.allocation.node_selector, on_node.node.node)
    ]
    names = ", ".join(f"{claim.metadata.namespace}/{claim.metadata.name}" for claim in here)
    return f"; but claim {names} is already allocated on this node" if here else ""


def _unmet_selector(on_node: RefusalDetails) -> str:
    labels = on_node.node.labels
    for key, value in on_node.pod.spec.node_selector.items():
        if labels.get(key) != value:
            has = f"has {key}={labels[key]}" if key in labels else f"has no label {key}"
            return f"node selector wants {key}={value}, the node {has}"
    required = required_nodes(on_node.pod.spec)
    return "required node affinity: " + "; or ".join(_unmet(required, on_node)) if required is not None else ""


def _unmet(selector: NodeSelector, on_node: RefusalDetails) -> Iterator[str]:
    fields = {"metadata.name": on_node.node.name}
    for term in selector.node_selector_terms:
        against = [row for row in term.match_expressions if not matches_requirement(row, on_node.node.labels)]
        against += [row for row in term.match_fields if not matches_requirement(row, fields)]
        yield " and ".join(_requirement(row, on_node) for row in against) or "an empty term, which matches no node"


def _requirement(row: NodeSelectorRequirement, on_node: RefusalDetails) -> str:
    wanted = f"{row.key} {row.operator} {', '.join(row.values)}".strip()
    has = on_node.node.labels.get(row.key)
    if row.key == "metadata.name":
        has = on_node.node.name
    return f"wants {wanted}, the node has {has if has is not None else 'no such label'}"


def _ports(on_node: RefusalDetails) -> str:
    wanted = {(protocol, port) for protocol, _, port in host_ports(on_node.pod)}
    found = [
        f"{port}/{protocol} is taken by pod {placed.ref}"
        for placed in on_node.node.pods.values()
        for protocol, _, port in sorted(placed.ports)
        if (protocol, port) in wanted
    ]
    return "host port " + ", ".join(found) if found else ""


def _elsewhere(on_node: RefusalDetails) -> str:
    attempt = on_node.cycle.read(PodAttempt)
    found = []
    for claim in attempt.allocated if attempt is not None else ():
        allocation = claim.status.allocation
        if allocation is None or matches_node(allocation.node_selector, on_node.node.node):
            continue
        devices = ", ".join(str(device_id(row)) for row in allocation.devices.results[:3])
        users = ", ".join(user.name for user in claim.status.reserved_for) or "no pod"
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        names = only_names(allocation.node_selector)
        where = ", ".join(sorted(names)[:3]) if names else "other nodes"
        there = on_node.handle.snapshot.nodes
        gone = ", and there is no such node" if names and all(there.get(each) is None for each in names) else ""
        found.append(f"claim {name} is allocated ({devices}; used by {users}) and usable on {where} only{gone}")
    if found:
        return "; ".join(found) + _claims_here(on_node)
    return "a claim's devices did not become ready in time" if attempt is not None else ""


def _spread(on_node: RefusalDetails) -> str:
    hard = [row for row in on_node.pod.spec.topology_spread_constraints if row.when_unsatisfiable != "ScheduleAnyway"]
    missing = [row.topology_key for row in hard if row.topology_key not in on_node.node.labels]
    if missing:
        return f"the node has no label {', '.join(missing)}, over which the pod is to be spread"
    return "; ".join(f"maxSkew {row.max_skew} over {row.topology_key} would be passed" for row in hard)


def _between_pods(on_node: RefusalDetails) -> str:
    """The pods that keep each other apart, or the ones that are wanted and not there."""
    pod, labels = on_node.pod, on_node.node.labels
    namespaces = on_node.handle.snapshot.namespace_labels
    for term in required_affinity(pod):
        if not any(term_matches(term, pod, other, namespaces) for other in _pods_in(term, on_node)):
            where = f"in the same {term.topology_key} as this node" if term.topology_key in labels else "there"
            return f"affinity wants a pod {where} that matches {_selected(term)}, and there is none"
    for term in required_anti_affinity(pod):
        for other in _pods_in(term, on_node):
            if term_matches(term, pod, other, namespaces):
                return (
                    f"anti-affinity keeps the pod away from {_named(other)}, which is in the same {term.topology_key}"
                )
    for state in on_node.handle.snapshot.nodes:
        for placed in state.pods.values():
            for term in required_anti_affinity(placed.pod):
                alike = labels.get(term.topology_key, "") == state.labels.get(term.topology_key)
                if alike and term_matches(term, placed.pod, pod, namespaces):
                    return f"anti-affinity of {_named(placed.pod)} keeps the pod out of its {term.topology_key}"
    return ""


def _pods_in(term: PodAffinityTerm, on_node: RefusalDetails) -> Iterator[Pod]:
    """Pods in the same domain of the term's topology as the node."""
    domain = on_node.node.labels.get(term.topology_key)
    for state in on_node.handle.snapshot.nodes if domain is not None else ():
        if state.labels.get(term.topology_key) == domain:
            yield from (placed.pod for placed in state.pods.values())


def _selected(term: PodAffinityTerm) -> str:
    selector = term.label_selector
    if selector is None:
        return "nothing"
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    parts += [f"{row.key} {row.operator} {', '.join(row.values)}".strip() for row in selector.match_expressions]
    return ", ".join(parts) or "anything"


def _named(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _budget(on_node: RefusalDetails) -> str:
    """The numbers behind Kubernetes' sentence."""
    level = on_node.pod.spec.resources
    problems = budget_problems(on_node.pod, on_node.charges())
    if level is None or not problems:
        return ""
    taken = pod_requests(on_node.pod, _CONTAINERS_AND_CLAIMS, on_node.charges())
    rows = [
        f"{name}: {taken[name]} taken by containers and claims, {budget} allowed"
        for name, budget in sorted(level.requests.items())
        if name in taken and taken[name] > budget
    ]
    return ", ".join(reason.text for reason in problems) + (f" ({'; '.join(rows)})" if rows else "")


_CONTAINERS_AND_CLAIMS = RequestOptions(skip_pod_level_resources=True, exclude_overhead=True)

_DETAILS: dict[str, Detail] = {
    "pod-budget": _budget,
    "node-taint": _taints,
    "node-unschedulable": lambda on_node: "the node is cordoned (spec.unschedulable)",
    "node-affinity": _affinity,
    "not-considered": _affinity,
    "host-port": _ports,
    "claim-elsewhere": _elsewhere,
    "topology-spread": _spread,
    "pod-affinity": _between_pods,
    "too-many-pods": lambda on_node: (
        f"the node holds {on_node.node.ledger.pod_count} of {on_node.node.ledger.allocatable('pods')} pods"
    ),
}
