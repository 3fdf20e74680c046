"""A container's part of claims that it may share with others."""

from collections.abc import Sequence

from dray.accounting.budget import raised_to
from dray.accounting.charges import ClaimCharge, Policy
from dray.accounting.resources import ledger_amount
from dray.api.quantity import NANOS


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
