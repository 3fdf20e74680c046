"""Pods that got their node without a scheduler may use claims that are already allocated."""

from __future__ import annotations

import msgspec

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.api.workloads import PodGroup
from dray.client import CLAIMS, ApiError, Client, MutationCache
from dray.controllers.claims.pods import ClaimOwner, claim_name, consumer, is_reserved_for, is_shared


class ClaimNotReserved(Exception):
    """The claim could not be reserved now; the key is tried again."""


class ClaimReserver:
    def __init__(self, client: Client, claims: MutationCache[ResourceClaim]) -> None:
        self._client = client
        self._claims = claims

    async def reserve(self, pod: Pod, group: PodGroup | None, new_names: dict[str, str]) -> None:
        """`new_names` are those that the pod's status does not show yet. A claim of the group is the group's."""
        for entry in pod.spec.resource_claims:
            name = new_names.get(entry.name) or claim_name(pod, entry).name
            if name is None:
                continue
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                return
            user = group if group is not None and is_shared(entry, group) else pod
            if claim.status.allocation is not None and not is_reserved_for(claim, user):
                await self._add_consumer(claim, user)

    async def _add_consumer(self, claim: ResourceClaim, user: ClaimOwner) -> None:
        reserved_for = (*claim.status.reserved_for, consumer(user))
        status = msgspec.structs.replace(claim.status, reserved_for=reserved_for)
        try:
            updated = await self._client.update_status(CLAIMS, msgspec.structs.replace(claim, status=status))
        except ApiError as error:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise ClaimNotReserved(f"reserve claim {where}: {error}") from error
        self._claims.remember(updated)
