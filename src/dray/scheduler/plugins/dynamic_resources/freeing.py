"""As if pods were gone: the devices that only they use count as free for a moment."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.scheduler.claim_users import named_claims
from dray.scheduler.devices import DeviceState


def freed_claims(pods: Iterable[Pod], devices: DeviceState) -> list[ResourceClaim]:
    """Claims whose every consumer is among `pods`."""
    pods = list(pods)
    leaving = {pod.metadata.uid for pod in pods}
    keys = set().union(*(named_claims(pod) for pod in pods)) if pods else set()
    found = []
    for namespace, name in sorted(keys):
        claim = devices.claims.get(namespace, name)
        if claim is None or claim.status.allocation is None or claim.metadata.uid in devices.in_flight:
            continue
        if claim.status.reserved_for and all(user.uid in leaving for user in claim.status.reserved_for):
            found.append(claim)
    return found


@contextmanager
def hypothetically_freed(pods: Iterable[Pod], devices: DeviceState) -> Iterator[bool]:
    """Gives whether any device became free. For questions only: nothing may be awaited inside."""
    claims = freed_claims(pods, devices)
    for claim in claims:
        devices.ledger.remove_claim(claim.metadata.namespace, claim.metadata.name)
        devices.touch(claim.status.allocation)
    try:
        yield bool(claims)
    finally:
        for claim in claims:
            devices.ledger.apply_claim(claim)
            devices.touch(claim.status.allocation)
