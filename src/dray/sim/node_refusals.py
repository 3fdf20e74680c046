"""What exactly a node filter found: the taint, the label, the port, the row of the ledger, the claim."""

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
from dray.api.core import NodeSelector, NodeSelectorRequirement, Pod
from dray.api.dra.taints import HARD_EFFECTS, untolerated
from dray.api.host_ports import host_ports
from dray.api.matching import matches_node, matches_requirement, only_names, required_nodes
from dray.explain.node_shortage import ShortRow, short_rows
from dray.explain.what_if import patience
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.handle import Handle
from dray.scheduler.nodes import NodeState
from dray.scheduler.plugins.dynamic_resources.node_allocatable import charges_on
from dray.scheduler.plugins.dynamic_resources.pre_filter import Attempt
from dray.scheduler.plugins.node_resources_fit import spec_demand

Detail = Callable[["Look"], str]


class Look:
    """One pod before one node."""

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
        attempt = self.cycle.read(Attempt)
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
        attempt = self.cycle.read(Attempt)
        if attempt is None:
            return ()
        question = attempt.on(self.node).question
        answer = question.on(self.node.node, patience()) if question is not None else None
        allocation = answer if isinstance(answer, Allocation) else None
        return charges_on(attempt, self.pod, self.handle, allocation)


def _taints(look: Look) -> str:
    found = [
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in untolerated(look.node.node.spec.taints, look.pod.spec.tolerations)
        if taint.effect in HARD_EFFECTS
    ]
    return f"taint {', '.join(found)} is not tolerated by the pod"


def _affinity(look: Look) -> str:
    labels = look.node.labels
    for key, value in look.pod.spec.node_selector.items():
        if labels.get(key) != value:
            has = f"has {key}={labels[key]}" if key in labels else f"has no label {key}"
            return f"node selector wants {key}={value}, the node {has}"
    required = required_nodes(look.pod.spec)
    return "required node affinity: " + "; or ".join(_unmet(required, look)) if required is not None else ""


def _unmet(selector: NodeSelector, look: Look) -> Iterator[str]:
    fields = {"metadata.name": look.node.name}
    for term in selector.node_selector_terms:
        against = [row for row in term.match_expressions if not matches_requirement(row, look.node.labels)]
        against += [row for row in term.match_fields if not matches_requirement(row, fields)]
        yield " and ".join(_requirement(row, look) for row in against) or "an empty term, which matches no node"


def _requirement(row: NodeSelectorRequirement, look: Look) -> str:
    wanted = f"{row.key} {row.operator} {', '.join(row.values)}".strip()
    has = look.node.labels.get(row.key)
    if row.key == "metadata.name":
        has = look.node.name
    return f"wants {wanted}, the node has {has if has is not None else 'no such label'}"


def _ports(look: Look) -> str:
    wanted = {(protocol, port) for protocol, _, port in host_ports(look.pod)}
    found = [
        f"{port}/{protocol} is taken by pod {placed.ref}"
        for placed in look.node.pods.values()
        for protocol, _, port in sorted(placed.ports)
        if (protocol, port) in wanted
    ]
    return "host port " + ", ".join(found) if found else ""


def _elsewhere(look: Look) -> str:
    attempt = look.cycle.read(Attempt)
    found = []
    for claim in attempt.allocated if attempt is not None else ():
        allocation = claim.status.allocation
        if allocation is None or matches_node(allocation.node_selector, look.node.node):
            continue
        devices = ", ".join(f"{row.driver}/{row.pool}/{row.device}" for row in allocation.devices.results[:3])
        users = ", ".join(user.name for user in claim.status.reserved_for) or "no pod"
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        names = only_names(allocation.node_selector)
        where = ", ".join(sorted(names)[:3]) if names else "other nodes"
        found.append(f"claim {name} is allocated ({devices}; used by {users}) and usable on {where} only")
    if found:
        return "; ".join(found)
    return "a claim's devices did not become ready in time" if attempt is not None else ""


def _spread(look: Look) -> str:
    hard = [row for row in look.pod.spec.topology_spread_constraints if row.when_unsatisfiable != "ScheduleAnyway"]
    missing = [row.topology_key for row in hard if row.topology_key not in look.node.labels]
    if missing:
        return f"the node has no label {', '.join(missing)}, over which the pod is to be spread"
    return "; ".join(f"maxSkew {row.max_skew} over {row.topology_key} would be passed" for row in hard)


def _budget(look: Look) -> str:
    """The numbers behind Kubernetes' sentence."""
    level = look.pod.spec.resources
    problems = budget_problems(look.pod, look.charges())
    if level is None or not problems:
        return ""
    taken = pod_requests(look.pod, _CONTAINERS_AND_CLAIMS, look.charges())
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
    "node-unschedulable": lambda look: "the node is cordoned (spec.unschedulable)",
    "node-affinity": _affinity,
    "not-considered": _affinity,
    "host-port": _ports,
    "claim-elsewhere": _elsewhere,
    "topology-spread": _spread,
    "too-many-pods": lambda look: (
        f"the node holds {look.node.ledger.pod_count} of {look.node.ledger.allocatable('pods')} pods"
    ),
}
