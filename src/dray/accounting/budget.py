"""The amounts that claims add to a container, and whether the pod-level budget covers containers and claims."""

from collections.abc import Iterator, Sequence

from dray.accounting.charges import ClaimCharge, Policy
from dray.accounting.container_amounts import RequestOptions, requests_asked
from dray.accounting.pod_requests import pod_limits, requests_footprint
from dray.accounting.resources import is_hugepages, ledger_amount
from dray.api.core import Container, Pod
from dray.api.dra.qos import is_pod_level_resource
from dray.api.quantity import NANOS
from dray.api.reasons import Reason

_CONTAINERS_AND_CLAIMS = RequestOptions(skip_pod_level_resources=True, exclude_overhead=True)


def budget_problems(pod: Pod, charges: Sequence[ClaimCharge]) -> tuple[Reason, ...]:
    """The reason why the pod-level budget is too small, in Kubernetes' words; it is too small on every node.

    A pod without pod-level resources, or without amounts from claims, has nothing to check here.
    """
    level = pod.spec.resources
    if level is None or not charges:
        return ()
    return (*_request_problems(pod, charges), *_limit_problems(pod, charges))


def _request_problems(pod: Pod, charges: Sequence[ClaimCharge]) -> Iterator[Reason]:
    assert pod.spec.resources is not None
    footprint = requests_footprint(requests_asked(pod, _CONTAINERS_AND_CLAIMS), charges)
    asked = footprint.amounts
    for draw in footprint.draws:
        asked[draw.resource] = asked.get(draw.resource, 0) + draw.nanos
    for name, budget in sorted(pod.spec.resources.requests.items()):
        if is_pod_level_resource(name) and asked.get(name, 0) > budget.nanos:
            yield _too_small("requests", name, "the aggregated container and node-allocatable DRA requests")


def _limit_problems(pod: Pod, charges: Sequence[ClaimCharge]) -> Iterator[Reason]:
    assert pod.spec.resources is not None
    aggregated = pod_limits(pod, _CONTAINERS_AND_CLAIMS, charges)
    for name, budget in sorted(pod.spec.resources.limits.items()):
        if is_hugepages(name):
            if name in aggregated and aggregated[name] > budget:
                yield _too_small("limits", name, "the aggregated container and node-allocatable DRA limits")
        elif is_pod_level_resource(name):
            # Containers may share one budget, so each is held against it alone.
            for container in pod.spec.containers:
                if _limit_with_claims(container, name, charges) > budget.nanos:
                    yield _too_small("limits", name, f"the limit and DRA overhead for container {container.name}")


def _too_small(part: str, resource: str, asked: str) -> Reason:
    text = f"pod level {part.removesuffix('s')} for {resource} is insufficient to cover {asked}"
    return Reason("pod-budget", text, {"resource": resource, "part": part})


def _limit_with_claims(container: Container, resource: str, charges: Sequence[ClaimCharge]) -> int:
    declared = container.resources.limits.get(resource)
    if declared is None:
        return 0
    return effective_amount(declared.nanos, container.name, resource, charges)


def effective_amount(own: int, container: str, resource: str, charges: Sequence[ClaimCharge]) -> int:
    """A container's own amount with all that its claims bring: added, or raised to; a pool leaves it as it is."""
    return max(own, raised_to(container, resource, charges)) + container_share(container, resource, charges)


def container_share(container: str, resource: str, charges: Sequence[ClaimCharge]) -> int:
    """The amounts that the claims of one container add: every claim in full, though others may share it."""
    share = 0
    for charge in charges:
        if container not in charge.containers:
            continue
        for amount in charge.mapped:
            if amount.resource == resource and amount.policy in (Policy.ADD_PER_CLAIM, Policy.ADD_PER_REFERENCE):
                share += amount.quantity.nanos
        for overhead in charge.overhead:
            if overhead.resource == resource:
                parts = (overhead.per_pod, overhead.per_container)
                share += sum(part.nanos for part in parts if part is not None)
    return share


def raised_to(container: str, resource: str, charges: Sequence[ClaimCharge]) -> int:
    """The amount of a container after claims with policy Max have raised it."""
    return sum(
        amount.quantity.nanos
        for charge in charges
        if container in charge.containers
        for amount in charge.mapped
        if amount.resource == resource and amount.policy is Policy.MAX
    )


def split_share(container: str, resource: str, own: int, charges: Sequence[ClaimCharge]) -> int:
    """A container's own amount with its fair part of its claims, in nano-units.

    What a claim gives once is split evenly, in whole units, over the containers that share it, so that the parts of
    all containers do not add up to more than the claim has.
    """
    part = max(own, raised_to(container, resource, charges))
    unit = NANOS if ledger_amount(resource, NANOS) == 1 else NANOS // 1000
    for charge in charges:
        if container not in charge.containers:
            continue
        sharing = len(charge.containers)
        for amount in charge.mapped:
            if amount.resource == resource:
                part += _part(amount.quantity.nanos, amount.policy, sharing, unit)
        for overhead in charge.overhead:
            if overhead.resource == resource:
                part += overhead.per_pod.nanos // sharing // unit * unit if overhead.per_pod else 0
                part += overhead.per_container.nanos if overhead.per_container else 0
    return part


def _part(nanos: int, policy: Policy, sharing: int, unit: int) -> int:
    if policy is Policy.ADD_PER_REFERENCE:
        return nanos
    return nanos // sharing // unit * unit if policy is Policy.ADD_PER_CLAIM else 0
