"""What a pod asks for and where its limits are, as Kubernetes' users see it: resource names to quantities."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dray.accounting.ask import Quantities, RequestOptions, limits_asked, requests_asked
from dray.accounting.charges import ClaimCharge, Policy, charges_in_status
from dray.accounting.footprint import add_to, limits_footprint, requests_footprint
from dray.accounting.resources import is_hugepages
from dray.api.core import Container, Pod
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
    level = pod.spec.resources
    lists: list[Quantities] = [level.requests] if level else []
    lists += [container.resources.requests for container in _containers(pod)]
    lists.append(options.non_missing_container_requests)
    return _as_quantities(footprint.amounts, lists, charges, pod.spec.overhead)


def pod_limits(
    pod: Pod, options: RequestOptions = DEFAULT_OPTIONS, charges: Sequence[ClaimCharge] | None = None
) -> dict[str, Quantity]:
    """The pod's limits. Claims raise limits that some container declares, and huge pages always."""
    charges = limited_charges(pod, _charges(pod, options, charges))
    amounts = limits_footprint(limits_asked(pod, options), charges)
    level = pod.spec.resources
    lists: list[Quantities] = [level.limits] if level else []
    lists += [container.resources.limits for container in _containers(pod)]
    return _as_quantities(amounts, lists, charges, pod.spec.overhead)


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.containers, *pod.spec.init_containers)


def _charges(pod: Pod, options: RequestOptions, given: Sequence[ClaimCharge] | None) -> Sequence[ClaimCharge]:
    if given is not None:
        return given
    return charges_in_status(pod.status.node_allocatable_resource_claim_statuses) if options.use_claim_status else ()


def limited_charges(pod: Pod, charges: Sequence[ClaimCharge]) -> tuple[ClaimCharge, ...]:
    """The claims' amounts of resources for which the pod has limits. Pools leave limits as they are."""
    declared = {name for container in _containers(pod) for name in container.resources.limits}

    def counts(resource: str) -> bool:
        return resource in declared or is_hugepages(resource)

    return tuple(
        msgspec.structs.replace(
            charge,
            mapped=tuple(
                amount
                for amount in charge.mapped
                if counts(amount.resource) and amount.policy is not Policy.CONSUME_FROM
            ),
            overhead=tuple(amount for amount in charge.overhead if counts(amount.resource)),
        )
        for charge in charges
    )


def _as_quantities(
    amounts: dict[str, int], lists: Iterable[Quantities], charges: Sequence[ClaimCharge], overhead: Quantities
) -> dict[str, Quantity]:
    """Each resource is written as in the first place that names an amount of it."""
    formats: dict[str, Format] = {}
    for quantities in (*lists, *_quantities_of(charges), overhead):
        for name, quantity in quantities.items():
            if quantity.nanos:
                formats.setdefault(name, quantity.format)
    return {name: Quantity(nanos, formats.get(name, "DecimalSI")) for name, nanos in amounts.items()}


def _quantities_of(charges: Sequence[ClaimCharge]) -> Iterator[Quantities]:
    for charge in charges:
        for amount in charge.mapped:
            yield {amount.resource: amount.quantity}
        for entry in charge.overhead:
            yield from ({entry.resource: part} for part in (entry.per_pod, entry.per_container) if part is not None)
