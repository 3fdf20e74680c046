"""The values that a node enforces for a pod with claims: QoS class, cgroup values and the OOM score."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dray.accounting.budget import container_share, raised_to, split_share
from dray.accounting.charges import ClaimCharge, Policy, added_amounts, charges_in_status
from dray.accounting.container_amounts import RequestOptions, requests_asked
from dray.accounting.pod_requests import add_to, pod_limits, requests_footprint
from dray.accounting.resources import CPU, HUGEPAGES_PREFIX, MEMORY, is_hugepages, ledger_amount
from dray.api.core import Container, Pod
from dray.api.dra.qos import (
    DECISIVE_RESOURCES,
    Amounts,
    QosClass,
    amounts_of,
    qos_class_of,
    qos_class_of_spec,
    sets_pod_level_resources,
)


class Enforcement(StrEnum):
    """Whose rules decide what a node enforces for a pod.

    KUBERNETES is what 1.37 does: claims change pod cgroups, container limits and the OOM score, but not the QoS class.
    KEP is what KEP-5517 asks of the kubelet later: claims count everywhere.
    """

    KUBERNETES = "kubernetes"
    KEP = "kep-5517"


def qos_class(
    pod: Pod, enforcement: Enforcement = Enforcement.KEP, charges: Sequence[ClaimCharge] | None = None
) -> QosClass:
    """The class by the pod's spec, and for the KEP by its claims; without `charges` its status tells them.

    Pod-level resources decide alone, claims or not: they are the budget that claims must fit in.
    """
    if enforcement is Enforcement.KEP and charges is None:
        charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    if enforcement is Enforcement.KUBERNETES or not charges:
        return qos_class_of_spec(pod)
    if sets_pod_level_resources(pod) and pod.spec.resources is not None:
        parts = [amounts_of(pod.spec.resources.requests, pod.spec.resources.limits)]
    else:
        parts = [_effective_amounts(each, charges) for each in (*pod.spec.init_containers, *pod.spec.containers)]
    found = qos_class_of(parts)
    return "Burstable" if found == "BestEffort" and _unreferenced(charges) else found


def _effective_amounts(container: Container, charges: Sequence[ClaimCharge]) -> Amounts:
    return Amounts(
        {name: effective_request(container, name, charges) for name in DECISIVE_RESOURCES},
        {name: effective_limit(container, name, charges) or 0 for name in DECISIVE_RESOURCES},
    )


def _unreferenced(charges: Sequence[ClaimCharge]) -> bool:
    """Do claims that no container uses bring cpu or memory to the pod?"""
    added = added_amounts(charge for charge in charges if not charge.containers)
    return any(added.get(name) for name in DECISIVE_RESOURCES)


def effective_request(container: Container, resource: str, charges: Sequence[ClaimCharge]) -> int:
    """A container's request with its claims, in nano-units."""
    own = container.resources.requests.get(resource)
    name = container.name
    raised = max(own.nanos if own else 0, raised_to(name, resource, charges))
    return raised + container_share(name, resource, charges)


def effective_limit(container: Container, resource: str, charges: Sequence[ClaimCharge]) -> int | None:
    """A container's limit with its claims; None if it has none.

    Amounts mapped to a container that asks for none of its own are all it gets. Overhead only ever raises a limit:
    it is what a device needs beside the application, whose own need is unknown.
    """
    own, name = container.resources.limits.get(resource), container.name
    if own is None and (resource in container.resources.requests or not _has_mapped(name, resource, charges)):
        return None
    raised = max(own.nanos if own else 0, raised_to(name, resource, charges))
    return raised + container_share(name, resource, charges)


def _has_mapped(container: str, resource: str, charges: Sequence[ClaimCharge]) -> bool:
    return any(
        amount.resource == resource and amount.policy is not Policy.CONSUME_FROM and amount.quantity.nanos > 0
        for charge in charges
        if container in charge.containers
        for amount in charge.mapped
    )


PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000
_MIN_SHARES, _MAX_SHARES = 2, 262_144


def cpu_shares(milli_cpu: int) -> int:
    return max(_MIN_SHARES, min(_MAX_SHARES, milli_cpu * 1024 // 1000))


def cpu_weight(shares: int) -> int:
    """The kubelet's way from shares (2 to 262144) to cpu.weight (1 to 10000)."""
    return 1 + (shares - _MIN_SHARES) * 9999 // (_MAX_SHARES - _MIN_SHARES)


def runtime_cpu_weight(shares: int) -> int:
    """The way of current container runtimes, under which 1024 shares are weight 100."""
    if shares <= _MIN_SHARES:
        return 1
    if shares >= _MAX_SHARES:
        return 10_000
    scale = math.log2(shares)
    return math.ceil(10 ** ((scale * scale + 125 * scale) / 612 - 7 / 34))


def cpu_quota(milli_cpu: int) -> int:
    """Microseconds per period; 0 means no limit."""
    return max(_MIN_QUOTA_US, milli_cpu * PERIOD_US // 1000) if milli_cpu else 0


@dataclass(frozen=True, slots=True)
class CgroupValues:
    """The cgroup values of one pod or container; None or 0 leaves a limit open."""

    cpu_shares: int
    cpu_quota_us: int = 0
    memory_min: int = 0
    memory_max: int | None = None
    # Page size as the kernel names it ("2MB") to bytes.
    hugetlb: dict[str, int] = field(default_factory=dict)
    # Of a pod: the class whose group it belongs into.
    qos_class: QosClass = "Guaranteed"

    @property
    def cpu_weight(self) -> int:
        return cpu_weight(self.cpu_shares)

    @property
    def cpu_max(self) -> str:
        return f"{self.cpu_quota_us or 'max'} {PERIOD_US}"

    def files(self) -> dict[str, str]:
        """File names and contents, ready to be written."""
        values = {
            "cpu.weight": str(self.cpu_weight),
            "cpu.max": self.cpu_max,
            "memory.min": str(self.memory_min),
            "memory.max": "max" if self.memory_max is None else str(self.memory_max),
        }
        values.update((f"hugetlb.{size}.max", str(limit)) for size, limit in self.hugetlb.items())
        return values


def pod_cgroup(
    pod: Pod,
    enforcement: Enforcement = Enforcement.KEP,
    charges: Sequence[ClaimCharge] | None = None,
    page_sizes: Collection[str] = (),
) -> CgroupValues:
    """The pod's own group. `page_sizes` ("2Mi") are those the node has: a pod may use none that it did not ask for."""
    charges = _charges(pod, charges)
    tier = qos_class(pod, enforcement, charges)
    requests = usable_requests(pod, charges)
    hugetlb = {kernel_page_size(size): 0 for size in page_sizes}
    hugetlb.update(
        (kernel_page_size(name.removeprefix(HUGEPAGES_PREFIX)), ledger_amount(name, nanos))
        for name, nanos in requests.items()
        if is_hugepages(name)
    )
    if tier == "BestEffort":
        return CgroupValues(_MIN_SHARES, hugetlb=hugetlb, qos_class=tier)
    cpu, memory = (_pod_limit(pod, name, enforcement, charges) for name in (CPU, MEMORY))
    return CgroupValues(
        cpu_shares(ledger_amount(CPU, requests.get(CPU, 0))),
        cpu_quota(ledger_amount(CPU, cpu or 0)),
        ledger_amount(MEMORY, requests.get(MEMORY, 0)) if enforcement is Enforcement.KEP else 0,
        ledger_amount(MEMORY, memory) if memory else None,
        hugetlb,
        tier,
    )


def usable_requests(pod: Pod, charges: Sequence[ClaimCharge]) -> dict[str, int]:
    """The amounts that the pod itself may use, in nano-units: of a pool the part it draws, not all of it."""
    footprint = requests_footprint(requests_asked(pod, RequestOptions()), charges)
    for draw in footprint.draws:
        add_to(footprint.amounts, {draw.resource: draw.nanos})
    return footprint.amounts


def _pod_limit(pod: Pod, resource: str, enforcement: Enforcement, charges: Sequence[ClaimCharge]) -> int | None:
    """The pod's limit; None if some container may use as much as there is."""
    level = pod.spec.resources
    by_level = level is not None and resource in level.limits
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    counted = charges if enforcement is Enforcement.KEP else ()
    if not by_level and any(_limit(container, resource, counted) is None for container in containers):
        return None
    declared = by_level or any(resource in container.resources.limits for container in containers)
    if declared:
        return pod_limits(pod, charges=charges)[resource].nanos
    # Nobody declares a limit: what claims map is all there is.
    return usable_requests(pod, charges).get(resource)


def _limit(container: Container, resource: str, charges: Sequence[ClaimCharge]) -> int | None:
    return effective_limit(container, resource, charges) or None


def container_cgroup(
    pod: Pod,
    container: Container,
    enforcement: Enforcement = Enforcement.KEP,
    charges: Sequence[ClaimCharge] | None = None,
) -> CgroupValues:
    """One container's group: its weight among the pod's containers, and its limits with all that its claims allow."""
    charges = _charges(pod, charges)
    cpu = _container_limit(pod, container, CPU, enforcement, charges)
    memory = _container_limit(pod, container, MEMORY, enforcement, charges)
    return CgroupValues(
        cpu_shares(ledger_amount(CPU, _weight(container, enforcement, charges))),
        cpu_quota(ledger_amount(CPU, cpu or 0)),
        _memory_min(pod, container, enforcement, charges),
        ledger_amount(MEMORY, memory) if memory else None,
        _container_hugetlb(pod, container, charges),
    )


def _weight(container: Container, enforcement: Enforcement, charges: Sequence[ClaimCharge]) -> int:
    resources = container.resources
    own = resources.requests.get(CPU) or resources.limits.get(CPU)
    nanos = own.nanos if own else 0
    if enforcement is Enforcement.KUBERNETES:
        return nanos
    return split_share(container.name, CPU, nanos, charges)


def _memory_min(pod: Pod, container: Container, enforcement: Enforcement, charges: Sequence[ClaimCharge]) -> int:
    if enforcement is Enforcement.KUBERNETES or qos_class(pod, enforcement, charges) == "BestEffort":
        return 0
    own = container.resources.requests.get(MEMORY)
    return ledger_amount(MEMORY, split_share(container.name, MEMORY, own.nanos if own else 0, charges))


def _container_limit(
    pod: Pod, container: Container, resource: str, enforcement: Enforcement, charges: Sequence[ClaimCharge]
) -> int | None:
    if resource in container.resources.limits or enforcement is Enforcement.KEP:
        limit = effective_limit(container, resource, charges)
        if limit is not None:
            return limit
    level = pod.spec.resources
    if level is not None and resource in level.limits and sets_pod_level_resources(pod):
        return level.limits[resource].nanos
    return None


def _container_hugetlb(pod: Pod, container: Container, charges: Sequence[ClaimCharge]) -> dict[str, int]:
    level = pod.spec.resources.limits if pod.spec.resources else {}
    names = {*container.resources.limits, *level, *_resources(charges)}
    sizes: dict[str, int] = {}
    for name in sorted(filter(is_hugepages, names)):
        own = container.resources.limits.get(name)
        if own is None and name in level:
            nanos = level[name].nanos
        else:
            nanos = (own.nanos if own else 0) + container_share(container.name, name, charges)
        sizes[kernel_page_size(name.removeprefix(HUGEPAGES_PREFIX))] = ledger_amount(name, nanos)
    return sizes


def _resources(charges: Sequence[ClaimCharge]) -> set[str]:
    mapped = {amount.resource for charge in charges for amount in charge.mapped}
    return mapped | {amount.resource for charge in charges for amount in charge.overhead}


def _charges(pod: Pod, charges: Sequence[ClaimCharge] | None) -> Sequence[ClaimCharge]:
    return charges_in_status(pod.status.node_allocatable_resource_claim_statuses) if charges is None else charges


def kernel_page_size(size: str) -> str:
    """ "2Mi" is "2MB" in file names and in the container runtime interface."""
    return size.removesuffix("i") + "B"


NODE_CRITICAL = "system-node-critical"

_GUARANTEED = -997
_BEST_EFFORT = 1000
_BURSTABLE_RANGE = (3, 999)
_CONTAINERS = RequestOptions(skip_pod_level_resources=True, exclude_overhead=True)


def oom_score_adj(
    pod: Pod,
    container: Container,
    memory_capacity: int,
    enforcement: Enforcement = Enforcement.KEP,
    charges: Sequence[ClaimCharge] | None = None,
) -> int:
    """The adjustment for one container on a node with `memory_capacity` bytes; higher is killed earlier."""
    if charges is None:
        charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    tier = qos_class(pod, enforcement, charges)
    if pod.spec.priority_class_name == NODE_CRITICAL or tier == "Guaranteed":
        return _GUARANTEED
    if tier == "BestEffort" or memory_capacity <= 0:
        return _BEST_EFFORT
    beside = _unclaimed_level(pod, charges)
    own = _adjustment(_memory(container, charges) + beside, memory_capacity)
    if container.restart_policy != "Always" or container in pod.spec.containers:
        return own
    # A sidecar must outlive the containers it serves.
    smallest = min((_memory(other, charges) for other in pod.spec.containers), default=0)
    return min(own, _adjustment(smallest + beside, memory_capacity))


def _adjustment(memory: int, capacity: int) -> int:
    lowest, highest = _BURSTABLE_RANGE
    return max(lowest, min(highest, 1000 - 1000 * memory // capacity))


def _memory(container: Container, charges: Sequence[ClaimCharge]) -> int:
    own = container.resources.requests.get(MEMORY)
    return ledger_amount(MEMORY, split_share(container.name, MEMORY, own.nanos if own else 0, charges))


def _unclaimed_level(pod: Pod, charges: Sequence[ClaimCharge]) -> int:
    """Each container's even part of pod-level memory that no container or claim has asked for."""
    level = pod.spec.resources
    if level is None or MEMORY not in level.requests:
        return 0
    asked = requests_footprint(requests_asked(pod, _CONTAINERS), charges).amounts.get(MEMORY, 0)
    left = ledger_amount(MEMORY, level.requests[MEMORY].nanos) - ledger_amount(MEMORY, asked)
    return max(0, left) // (len(pod.spec.init_containers) + len(pod.spec.containers))
