"""Extended resources in the words of the pod that asks for them: its containers name a resource, and know no claim or request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.api.core import Pod
from dray.api.quantity import Quantity
from dray.api.resource import IMPLICIT_EXTENDED_RESOURCE_PREFIX, DeviceClass
from dray.explain.cluster_objects import similar_name
from dray.explain.node_remedies import asking_at_most
from dray.explain.node_shortage import ShortRow
from dray.explain.request_counts import RequestCounts
from dray.explain.what_if import Remedy
from dray.scheduler.plugins.dynamic_resources.pod_claims import IN_MEMORY_NAME, ExtendedDemand


def in_words_of_the_pod(message: str, namespace: str, demand: ExtendedDemand) -> str:
    """Says resource and container instead of the request of the claim that the scheduler keeps in memory."""
    for row in demand.requests:
        request = f"request {row.name} of claim {namespace}/{IN_MEMORY_NAME}"
        message = message.replace(request, f"{row.resource} of container {row.container}")
    return message


def asking_for_fewer(pod: Pod, demand: ExtendedDemand, counts: Sequence[RequestCounts]) -> Remedy | None:
    """The pod with as many devices as the node can give it, where it asks for one resource; None if the node has none to give."""
    wanted = sum(row.count for row in demand.requests)
    names = {row.name for row in demand.requests}
    left = min((row.by_stage["satisfy"] for row in counts if row.request in names), default=0)
    if len(demand.resources) != 1 or not 0 < left < wanted:
        return None
    (resource,) = demand.resources
    text = f"let the pod ask for at most {left} {resource} instead of {wanted}"
    return Remedy("less-node-resources", text, (asking_at_most(pod, resource, Quantity.parse(str(left))),))


def not_served(rows: Iterable[ShortRow], classes: Iterable[DeviceClass]) -> str:
    """Says of the first extended resource that no class serves which class is missing, with the name that was probably meant."""
    known = {each.metadata.name: each.spec.extended_resource_name or "" for each in classes}
    for row in rows:
        class_name = row.resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE_PREFIX)
        if row.allocatable != "0" or "/" not in row.resource:
            continue
        if class_name != row.resource:
            said = "" if class_name in known else f"; device class {class_name} does not exist"
            return said and said + similar_name(class_name, known)
        if row.resource not in known.values():
            return f"; no device class has the extendedResourceName {row.resource}{similar_name(row.resource, known.values())}"
    return ""
