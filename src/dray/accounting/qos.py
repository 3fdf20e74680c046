"""QoS class of a pod: as Kubernetes tells it today, or with what its claims bring."""

from collections.abc import Sequence
from enum import StrEnum

from dray.accounting.budget import container_share, raised_to
from dray.accounting.charges import ClaimCharge, Policy, added_amounts, charges_in_status
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
