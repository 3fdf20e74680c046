"""What a pod asks for and where its limits are, as Kubernetes' users see it: resource names to quantities."""

from collections.abc import Sequence

import msgspec

from dray.accounting.ask import RequestOptions, limits_asked, requests_asked
from dray.accounting.charges import ClaimCharge, charges_in_status
from dray.accounting.footprint import add_to, limits_footprint, requests_footprint
from dray.accounting.resources import is_hugepages
from dray.api.core import Pod
from dray.api.quantity import Format, Quantity

DEFAULT_OPTIONS = RequestOptions()


def pod_requests(
    pod: Pod, options: RequestOptions = DEFAULT_OPTIONS, charges: Sequence[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """Everything the pod asks of its node, pools of its claims included.

    `charges` are the claims' amounts; without them the pod's status tells, if the options say so.
    """
    charges = _charges(pod, options, charges)
    if options.skip_container_level_resources:
        charges = ()
    footprint = requests_footprint(requests_asked(pod, options), charges)
    for pool in footprint.pools:
        add_to(footprint.amounts, {pool.resource: pool.nanos})
    return _as_quantities(footprint.amounts, pod, charges)


def pod_limits(
    pod: Pod, options: RequestOptions = DEFAULT_OPTIONS, charges: Sequence[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """The pod's limits. Claims raise limits that some container declares, and huge pages always."""
    charges = limited_charges(pod, _charges(pod, options, charges))
    return _as_quantities(limits_footprint(limits_asked(pod, options), charges), pod, charges)


def _charges(pod: Pod, options: RequestOptions, given: Sequence[ClaimCharge] | None) -> Sequence[ClaimCharge]:
    if given is not None:
        return given
    return charges_in_status(pod.status.node_allocatable_resource_claim_statuses) if options.use_claim_status else ()


def limited_charges(pod: Pod, charges: Sequence[ClaimCharge]) -> tuple[ClaimCharge, ...]:
    """The claims' amounts of resources for which the pod has limits."""
    declared = {name for c in (*pod.spec.init_containers, *pod.spec.containers) for name in c.resources.limits}

    def counts(resource: str) -> bool:
        return resource in declared or is_hugepages(resource)

    return tuple(
        msgspec.structs.replace(
            charge,
            mapped=tuple(amount for amount in charge.mapped if counts(amount.resource)),
            overhead=tuple(amount for amount in charge.overhead if counts(amount.resource)),
        )
        for charge in charges
    )


def _as_quantities(amounts: dict[str, int], pod: Pod, charges: Sequence[ClaimCharge]) -> dict[str, Quantity]:
    formats = _formats(pod, charges)
    return {name: Quantity(nanos, formats.get(name, "DecimalSI")) for name, nanos in amounts.items()}


def _formats(pod: Pod, charges: Sequence[ClaimCharge]) -> dict[str, Format]:
    """How each resource is written: as in the first place that names an amount of it."""
    level = pod.spec.resources
    lists = [level.requests, level.limits] if level else []
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        lists += [container.resources.requests, container.resources.limits]
    lists += [{amount.resource: amount.quantity} for charge in charges for amount in charge.mapped]
    lists += [
        {entry.resource: part}
        for charge in charges
        for entry in charge.overhead
        for part in (entry.per_pod, entry.per_container)
        if part is not None
    ]
    lists.append(pod.spec.overhead)
    formats: dict[str, Format] = {}
    for quantities in lists:
        for name, quantity in quantities.items():
            if quantity.nanos:
                formats.setdefault(name, quantity.format)
    return formats
