"""The QoS class of a pod, from the cpu and memory that its parts request and are limited to. Pure.

A part is a container or, where the pod sets pod-level resources, the pod as a whole. For each part and resource
Kubernetes compares request and limit: a pod is Guaranteed if they are equal and above zero everywhere, BestEffort if
they are zero everywhere, and Burstable otherwise. A missing amount is zero; the server copies limits to missing
requests before it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from dray.api.core import Pod
from dray.api.quantity import Quantity

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]

DECISIVE_RESOURCES = ("cpu", "memory")


class Amounts(NamedTuple):
    """Request and limit of one part, in nano-units by resource; what is missing is zero."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]


def qos_class_of(parts: Iterable[Amounts]) -> QosClass:
    """The class by the amounts of each part. A caller that counts claims adds their amounts before."""
    has_none = has_all = True
    for part in parts:
        for resource in DECISIVE_RESOURCES:
            request, limit = part.requests.get(resource, 0), part.limits.get(resource, 0)
            if request != limit:
                return "Burstable"
            has_none &= limit == 0
            has_all &= limit != 0
    if has_none:
        return "BestEffort"
    return "Guaranteed" if has_all else "Burstable"


def is_pod_level_resource(name: str) -> bool:
    """Whether Kubernetes lets a pod set this resource for all its containers together."""
    return name in DECISIVE_RESOURCES or name.startswith("hugepages-")


def sets_pod_level_resources(pod: Pod) -> bool:
    level = pod.spec.resources
    return level is not None and any(map(is_pod_level_resource, (*level.requests, *level.limits)))


def qos_class_of_spec(pod: Pod) -> QosClass:
    """The class by the spec alone, as the API server records it; claims do not count."""
    if sets_pod_level_resources(pod) and pod.spec.resources is not None:
        return qos_class_of([amounts_of(pod.spec.resources.requests, pod.spec.resources.limits)])
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return qos_class_of(amounts_of(each.resources.requests, each.resources.limits) for each in containers)


def amounts_of(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    return Amounts(
        {name: requests[name].nanos for name in DECISIVE_RESOURCES if name in requests},
        {name: limits[name].nanos for name in DECISIVE_RESOURCES if name in limits},
    )


def qos_class_of_document(spec: dict[str, Any]) -> QosClass:
    """`qos_class_of_spec` for the spec of a valid pod document."""
    level = spec.get("resources") or {}
    if any(map(is_pod_level_resource, (*(level.get("requests") or ()), *(level.get("limits") or ())))):
        return qos_class_of([_parsed(level)])
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return qos_class_of(_parsed(container.get("resources") or {}) for container in containers)


def _parsed(resources: dict[str, Any]) -> Amounts:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return Amounts(_nanos(requests), _nanos(limits))


def _nanos(amounts: dict[str, Any]) -> dict[str, int]:
    return {name: Quantity.parse(amounts[name]).nanos for name in DECISIVE_RESOURCES if name in amounts}
