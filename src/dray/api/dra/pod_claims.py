"""Which ResourceClaims a pod or a pod group names, and what these claims are called. Pure.

An entry of `spec.resourceClaims` names a claim or a template. The claim controller makes a claim from the template and
records its generated name in `status.resourceClaimStatuses`; a record without a name says that no claim is needed.
The scheduler records the claim for extended resources in `status.extendedResourceClaimStatus`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from dray.api.core import Container, Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, ResourceClaim, ResourceClaimTemplate
from dray.api.workloads import PodGroup

Document = dict[str, Any]

ClaimOwner = Pod | PodGroup
"""Both list claims in the same shape and have claims of their own made from templates."""

# The server appends five random characters and cuts the whole at 63; one more stays for a hyphen of its own.
_MAX_GENERATED_BASE = 57


def owner_kind(owner: ClaimOwner) -> str:
    return "Pod" if isinstance(owner, Pod) else "PodGroup"


class ClaimSource(StrEnum):
    """Where the name of a claim comes from. UNKNOWN: the entry names neither a claim nor a template."""

    NAMED = "named"
    TEMPLATE = "template"
    EXTENDED_RESOURCE = "extended resource"
    UNKNOWN = "unknown"


class PodClaim(msgspec.Struct, frozen=True):
    """One claim of a pod or a pod group.

    `entry` is its name in `spec.resourceClaims`, empty for the extended-resource claim. `claim_name` is empty while
    the claim is not recorded, and also where a record says that none is needed (`is_recorded`).
    """

    entry: str
    claim_name: str
    source: ClaimSource
    is_recorded: bool = True

    @property
    def is_generated(self) -> bool:
        """Whether the claim was made for this very pod or its group, which then owns it."""
        return self.source in (ClaimSource.TEMPLATE, ClaimSource.EXTENDED_RESOURCE)


def claim_of_entry(owner: ClaimOwner, entry: PodResourceClaim) -> PodClaim:
    if entry.resource_claim_name:
        return PodClaim(entry.name, entry.resource_claim_name, ClaimSource.NAMED)
    if not entry.resource_claim_template_name:
        return PodClaim(entry.name, "", ClaimSource.UNKNOWN)
    for status in owner.status.resource_claim_statuses:
        if status.name == entry.name:
            return PodClaim(entry.name, status.resource_claim_name or "", ClaimSource.TEMPLATE)
    return PodClaim(entry.name, "", ClaimSource.TEMPLATE, is_recorded=False)


def claims_of_entries(owner: ClaimOwner) -> Iterator[PodClaim]:
    """The claims of `spec.resourceClaims`, in that order."""
    return (claim_of_entry(owner, entry) for entry in owner.spec.resource_claims)


def extended_resource_claim(pod: Pod) -> PodClaim | None:
    """The claim that the scheduler made for the pod's extended resources."""
    status = pod.status.extended_resource_claim_status
    if status is None or not status.resource_claim_name:
        return None
    return PodClaim("", status.resource_claim_name, ClaimSource.EXTENDED_RESOURCE)


def claims_of_pod(pod: Pod) -> list[PodClaim]:
    """In the order of the spec, the extended-resource claim last."""
    claims = list(claims_of_entries(pod))
    extended = extended_resource_claim(pod)
    return claims if extended is None else [*claims, extended]


def uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def claim_names_of_entries(owner: ClaimOwner) -> list[str]:
    """Names of the claims of `spec.resourceClaims`, as far as they are known by now."""
    return [claim.claim_name for claim in claims_of_entries(owner) if claim.claim_name]


def claim_names(pod: Pod) -> list[str]:
    """Names of all claims of the pod, as far as they are known by now; the extended-resource claim last."""
    return [claim.claim_name for claim in claims_of_pod(pod) if claim.claim_name]


def claim_names_by_entry(pod: Pod) -> dict[str, str]:
    """The pod's own names for its claims to the names of the claims, as far as known.

    The extended-resource claim, for which the pod has no name, stands under `/` and the name of the claim.
    """
    return {claim.entry or f"/{claim.claim_name}": claim.claim_name for claim in claims_of_pod(pod) if claim.claim_name}


def entries_without_claim(owner: ClaimOwner) -> list[PodResourceClaim]:
    """Entries with a template for which the status does not record a claim yet."""
    return [entry for entry in owner.spec.resource_claims if not claim_of_entry(owner, entry).is_recorded]


# --- containers ------------------------------------------------------------------------------------------------------


def containers_by_entry(pod: Pod) -> dict[str, list[str]]:
    """Init containers, then containers, by the pod's name for the claim that they use (`claim_names_by_entry`)."""
    users: dict[str, list[str]] = {}
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for container in containers:
        for use in container.resources.claims:
            users.setdefault(use.name, []).append(container.name)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        served = {mapping.container_name for mapping in extended.request_mappings}
        names = [container.name for container in containers if container.name in served]
        users.setdefault(f"/{extended.resource_claim_name}", []).extend(names)
    return users


def requests_of_container(pod: Pod, container: Container) -> list[tuple[str, str]]:
    """(claim name, request) pairs that the container uses; an empty request means the whole claim."""
    names = {claim.entry: claim.claim_name for claim in claims_of_entries(pod) if claim.claim_name}
    wanted = [(names[use.name], use.request) for use in container.resources.claims if use.name in names]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        wanted += [
            (extended.resource_claim_name, mapping.request_name)
            for mapping in extended.request_mappings
            if mapping.container_name == container.name and _asks_for(container, mapping.resource_name)
        ]
    return wanted


def _asks_for(container: Container, resource: str) -> bool:
    amount = container.resources.requests.get(resource) or container.resources.limits.get(resource)
    return amount is not None and amount.nanos != 0


# --- generated claims ------------------------------------------------------------------------------------------------


def generated_claim_prefix(pod_name: str, entry_name: str) -> str:
    """`<pod>-<claim>-`, with both parts shortened in proportion where the whole would be too long."""
    name = f"{pod_name}-{entry_name}-"
    if len(name) <= _MAX_GENERATED_BASE:
        return name
    # One letter of the pod's name stays even where its share would be none: a name cannot start with a hyphen.
    pod_part = pod_name[: max(1, len(pod_name) * _MAX_GENERATED_BASE // len(name))]
    entry_part = entry_name[: len(entry_name) * _MAX_GENERATED_BASE // len(name)]
    return f"{pod_part}-{entry_part}"


def claim_from_template(owner: ClaimOwner, entry_name: str, template: ResourceClaimTemplate) -> ResourceClaim:
    """The claim to create for an entry of a pod or a group, which owns it."""
    reference = OwnerReference(
        api_version=owner.api_version,
        kind=owner_kind(owner),
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        generate_name=generated_claim_prefix(owner.metadata.name, entry_name),
        namespace=owner.metadata.namespace,
        labels=dict(template.spec.metadata.labels),
        annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME_ANNOTATION: entry_name},
        owner_references=(reference,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def recorded_claims(owner: ClaimOwner) -> dict[str, str | None]:
    """What the status records, by entry; None where no claim is needed."""
    return {status.name: status.resource_claim_name or None for status in owner.status.resource_claim_statuses}


def with_recorded_claims(pod: Pod, names_by_entry: Mapping[str, str | None]) -> Pod:
    """The pod with these records in its status; the same object if nothing changes."""
    statuses = tuple(
        PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names_by_entry.items()
    )
    if statuses == pod.status.resource_claim_statuses:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=statuses))


def claim_records(names_by_entry: Mapping[str, str]) -> Document:
    """The part of a pod's or a group's status that records generated claims, in the order of the entries' names."""
    rows = [{"name": entry, "resourceClaimName": name} for entry, name in sorted(names_by_entry.items())]
    return {"resourceClaimStatuses": rows}


def extended_claim_record(claim_name: str, mappings: Iterable[Document]) -> Document:
    """The part of a pod's status that records the extended-resource claim and which request serves which container."""
    return {"extendedResourceClaimStatus": {"resourceClaimName": claim_name, "requestMappings": list(mappings)}}


# --- documents and projections ---------------------------------------------------------------------------------------


class NamesClaim(Protocol):
    """An entry of the spec, of the status, or the extended-resource status, as any decoder reads it."""

    @property
    def resource_claim_name(self) -> str | None: ...


class SpecWithClaims(Protocol):
    @property
    def resource_claims(self) -> Iterable[NamesClaim] | None: ...


class StatusWithClaims(Protocol):
    @property
    def resource_claim_statuses(self) -> Iterable[NamesClaim] | None: ...

    @property
    def extended_resource_claim_status(self) -> NamesClaim | None: ...


def mentioned_claim_names(spec: SpecWithClaims, status: StatusWithClaims) -> Iterator[str]:
    """Every claim name in spec or status, whether or not an entry of the spec stands behind the record.

    Serves the pod struct and the smaller structs that read only a part of a pod.
    """
    mentions = [*(spec.resource_claims or ()), *(status.resource_claim_statuses or ())]
    if status.extended_resource_claim_status is not None:
        mentions.append(status.extended_resource_claim_status)
    return (mention.resource_claim_name for mention in mentions if mention.resource_claim_name)


def extended_resource_claim_name(pod: Document) -> str | None:
    """The extended-resource claim that the status of a pod document names; None if it names none yet."""
    status = pod.get("status")
    recorded = status.get("extendedResourceClaimStatus") if isinstance(status, dict) else None
    name = recorded.get("resourceClaimName") if isinstance(recorded, dict) else None
    return name if isinstance(name, str) and name else None


def pending_with_same_claims(pod: Pod) -> PodStatus:
    """The status that the pod had before it was placed; the claims that were made for it stay its own."""
    return PodStatus(phase="Pending", resource_claim_statuses=pod.status.resource_claim_statuses)
