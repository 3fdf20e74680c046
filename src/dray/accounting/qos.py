"""QoS class of a pod: as Kubernetes tells it today, or with what its claims bring."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from dray.accounting.ask import sets_pod_level_resources
from dray.accounting.budget import container_share, raised_to
from dray.accounting.charges import ClaimCharge, Policy, added_amounts, charges_in_status
from dray.accounting.resources import CPU, MEMORY
from dray.api.core import Container, Pod
from dray.api.quantity import Quantity

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]

_DECISIVE = (CPU, MEMORY)


class Enforcement(StrEnum):
    """Whose rules decide what a node enforces for a pod.

    KUBERNETES is what 1.37 does: claims change pod cgroups, container limits and the OOM score, but not the QoS class.
    KEP is what KEP-5517 asks of the kubelet later: claims count everywhere.
    """

    KUBERNETES = "kubernetes"
    KEP = "kep-5517"


class _Declared(NamedTuple):
    """Amounts above zero that decide the class."""

    requests: dict[str, int]
    limits: dict[str, int]


def qos_class(
    pod: Pod, enforcement: Enforcement = Enforcement.KEP, charges: Sequence[ClaimCharge] | None = None
) -> QosClass:
    """The class by the pod's spec, and for the KEP by its claims; without `charges` its status tells them.

    Pod-level resources decide alone, claims or not: they are the budget that claims must fit in.
    """
    if enforcement is Enforcement.KUBERNETES:
        charges = ()
    elif charges is None:
        charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    if sets_pod_level_resources(pod):
        declared = [_pod_level(pod)]
    else:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        declared = [_declared(container, charges) for container in containers]
    return _class_of(declared, _unreferenced(charges))


def _pod_level(pod: Pod) -> _Declared:
    level = pod.spec.resources
    assert level is not None
    return _Declared(_decisive(level.requests), _decisive(level.limits))


def _decisive(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: quantities[name].nanos for name in _DECISIVE if name in quantities and quantities[name].nanos > 0}


def _declared(container: Container, charges: Sequence[ClaimCharge]) -> _Declared:
    if not charges:
        return _Declared(_decisive(container.resources.requests), _decisive(container.resources.limits))
    requests, limits = {}, {}
    for name in _DECISIVE:
        if request := effective_request(container, name, charges):
            requests[name] = request
        if limit := effective_limit(container, name, charges):
            limits[name] = limit
    return _Declared(requests, limits)


def _class_of(declared: list[_Declared], elsewhere: bool) -> QosClass:
    requests, limits = _sums(one.requests for one in declared), _sums(one.limits for one in declared)
    if not requests and not limits:
        return "Burstable" if elsewhere else "BestEffort"
    if requests == limits and all(len(one.limits) == len(_DECISIVE) for one in declared):
        return "Guaranteed"
    return "Burstable"


def _sums(lists: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for amounts in lists:
        for name, nanos in amounts.items():
            sums[name] = sums.get(name, 0) + nanos
    return sums


def _unreferenced(charges: Sequence[ClaimCharge]) -> bool:
    """Do claims that no container uses bring cpu or memory to the pod?"""
    added = added_amounts(charge for charge in charges if not charge.containers)
    return any(added.get(name) for name in _DECISIVE)


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
