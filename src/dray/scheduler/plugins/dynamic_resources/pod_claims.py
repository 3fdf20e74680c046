"""The pod's claims: which they are, whether they can be used yet (PreEnqueue), and which events may help a pod that waits for them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dray.api.core import Pod, PodResourceClaim
from dray.api.dra.claim_users import consumer_reference, is_owned_by
from dray.api.dra.pod_claims import ClaimSource, claim_of_entry
from dray.api.reasons import Reason
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference
from dray.api.workloads import PodGroup
from dray.scheduler.devices import AssumedClaims
from dray.scheduler.framework.events import Action, ClusterChange, ClusterEvent, EventRegistration, EventResource, Hint
from dray.scheduler.framework.status import PluginStatus, unresolvable
from dray.scheduler.pod_indexes import ClaimUsers, PodGroups, named_claims


@dataclass(frozen=True, slots=True)
class UsableClaim:
    """One entry of `spec.resourceClaims`, the claim behind it, and for whom it is reserved: the pod, or its group."""

    entry: str
    claim: ResourceClaim
    user: ResourceClaimConsumerReference


class ClaimNotReady(Exception):
    """Some claim of the pod is missing or unusable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)

    def status(self) -> PluginStatus:
        return unresolvable(self.reason)


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of the claim for an entry; None if it was deliberately not made."""
    claim = claim_of_entry(pod, entry)
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if claim.source is ClaimSource.UNKNOWN:
        text = f'pod "{where}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        raise ClaimNotReady("claim-source", text)
    if claim.is_generated and not claim.is_recorded:
        raise ClaimNotReady("claim-not-created", f'pod "{where}": ResourceClaim not created yet')
    return claim.claim_name or None


def _usable_claim(
    pod: Pod, entry: PodResourceClaim, name: str, claims: AssumedClaims, group: PodGroup | None
) -> ResourceClaim:
    namespace = pod.metadata.namespace
    claim = claims.get(namespace, name)
    if claim is None:
        raise ClaimNotReady("claim-missing", f'could not find ResourceClaim "{namespace}/{name}"')
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimNotReady("claim-being-deleted", f'resourceclaim "{name}" is being deleted')
    owner = pod if group is None else group
    if not entry.resource_claim_name and not is_owned_by(claim, owner):
        why = "Pod is not owner" if group is None else f"neither Pod nor PodGroup {group.metadata.name} is the owner"
        raise ClaimNotReady(
            "claim-not-owned",
            f"ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod.metadata.name} ({why})",
        )
    return claim


def claims_of(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> list[UsableClaim]:
    """All claims of the pod in the order of its spec. Raises `ClaimNotReady` at the first that cannot be used."""
    found = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is not None:
            group = groups.sharing(pod, entry)
            claim = _usable_claim(pod, entry, name, claims, group)
            found.append(UsableClaim(entry.name, claim, consumer_reference(pod if group is None else group)))
    return found


def pre_enqueue(pod: Pod, claims: AssumedClaims, groups: PodGroups) -> PluginStatus | None:
    if not pod.spec.resource_claims:
        return None
    try:
        claims_of(pod, claims, groups)
    except ClaimNotReady as problem:
        return problem.status()
    return None


def registrations(
    claims: AssumedClaims, groups: PodGroups, users: ClaimUsers, short_of_room: Callable[[], Iterable[str]]
) -> Iterable[EventRegistration]:
    """`short_of_room` gives the UIDs of pods whose devices would have taken more of a node than it had left."""
    hints = _Hints(claims, groups, users)
    node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_TAINT
    changed = Action.ADD | Action.UPDATE
    return [
        EventRegistration(ClusterEvent(EventResource.NODE, node)),
        EventRegistration(ClusterEvent(EventResource.RESOURCE_SLICE, changed)),
        EventRegistration(ClusterEvent(EventResource.DEVICE_CLASS, changed)),
        EventRegistration(ClusterEvent(EventResource.POD_GROUP, changed)),
        EventRegistration(
            ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_CLAIMS),
            hints.pod_changed,
            hints.only_that_pod,
        ),
        EventRegistration(
            ClusterEvent(EventResource.RESOURCE_CLAIM, changed | Action.DELETE),
            hints.claim_changed,
            hints.users_of_claim,
        ),
        # A pod whose devices bring along too much cpu waits for ordinary pods to leave, too.
        EventRegistration(
            ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
            narrow=lambda change: list(short_of_room()),
        ),
        EventRegistration(
            ClusterEvent(EventResource.UNSCHEDULED_POD, Action.UPDATE_POD_SCALE_DOWN), narrow=hints.only_that_pod
        ),
    ]


class _Hints:
    def __init__(self, claims: AssumedClaims, groups: PodGroups, users: ClaimUsers) -> None:
        self._claims = claims
        self._groups = groups
        self._users = users

    def only_that_pod(self, change: ClusterChange) -> Iterable[str]:
        return (change.new.metadata.uid,)

    def pod_changed(self, pod: Pod, change: ClusterChange) -> Hint:
        if change.new.metadata.uid != pod.metadata.uid:
            return Hint.SKIP
        return Hint.QUEUE if self._are_ready(change.new) else Hint.SKIP

    def _are_ready(self, pod: Pod) -> bool:
        try:
            claims_of(pod, self._claims, self._groups)
        except ClaimNotReady:
            return False
        return True

    def users_of_claim(self, change: ClusterChange) -> Iterable[str] | None:
        """Freed devices may help anybody; any other change only the claim's own pods."""
        if is_release(change) or change.final_state_unknown:
            return None
        return self._users.of(change.new if change.new is not None else change.old)

    def claim_changed(self, pod: Pod, change: ClusterChange) -> Hint:
        old: ResourceClaim | None = change.old
        new: ResourceClaim | None = change.new
        if new is None:
            return Hint.QUEUE if change.final_state_unknown or is_release(change) else Hint.SKIP
        if not self._are_ready(pod):
            return Hint.SKIP
        if is_release(change):
            return Hint.QUEUE
        if (new.metadata.namespace, new.metadata.name) not in named_claims(pod) and not is_owned_by(new, pod):
            return Hint.SKIP
        if old is not None and old.status == new.status:
            return Hint.SKIP
        return Hint.QUEUE


def is_release(change: ClusterChange) -> bool:
    """Did this free devices?"""
    before = change.old.status.allocation if change.old is not None else None
    after = change.new.status.allocation if change.new is not None else None
    return before is not None and after is None
