"""Which events may help a pod that was turned away for its devices."""

from collections.abc import Callable, Iterable

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.scheduler.assumed import AssumedClaims
from dray.scheduler.claim_users import ClaimUsers, named_claims
from dray.scheduler.framework.events import Action, Change, ClusterEvent, EventRegistration, Hint, Resource
from dray.scheduler.plugins.dynamic_resources.pod_claims import ClaimNotReady, claims_of, is_made_for
from dray.scheduler.pod_groups import PodGroups


def registrations(
    claims: AssumedClaims, groups: PodGroups, users: ClaimUsers, short_of_room: Callable[[], Iterable[str]]
) -> Iterable[EventRegistration]:
    """`short_of_room` gives the UIDs of pods whose devices would have taken more of a node than it had left."""
    hints = _Hints(claims, groups, users)
    node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_TAINT
    changed = Action.ADD | Action.UPDATE
    return [
        EventRegistration(ClusterEvent(Resource.NODE, node)),
        EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, changed)),
        EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, changed)),
        EventRegistration(ClusterEvent(Resource.POD_GROUP, changed)),
        EventRegistration(
            ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_CLAIMS), hints.pod_changed, hints.only_that_pod
        ),
        EventRegistration(
            ClusterEvent(Resource.RESOURCE_CLAIM, changed | Action.DELETE), hints.claim_changed, hints.users_of_claim
        ),
        # A pod whose devices bring along too much cpu waits for ordinary pods to leave, too.
        EventRegistration(
            ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), narrow=lambda change: list(short_of_room())
        ),
    ]


class _Hints:
    def __init__(self, claims: AssumedClaims, groups: PodGroups, users: ClaimUsers) -> None:
        self._claims = claims
        self._groups = groups
        self._users = users

    def only_that_pod(self, change: Change) -> Iterable[str]:
        return (change.new.metadata.uid,)

    def pod_changed(self, pod: Pod, change: Change) -> Hint:
        if change.new.metadata.uid != pod.metadata.uid:
            return Hint.SKIP
        return Hint.QUEUE if self._are_ready(change.new) else Hint.SKIP

    def _are_ready(self, pod: Pod) -> bool:
        try:
            claims_of(pod, self._claims, self._groups)
        except ClaimNotReady:
            return False
        return True

    def users_of_claim(self, change: Change) -> Iterable[str] | None:
        """Freed devices may help anybody; any other change only the claim's own pods."""
        if is_release(change) or change.final_state_unknown:
            return None
        return self._users.of(change.new if change.new is not None else change.old)

    def claim_changed(self, pod: Pod, change: Change) -> Hint:
        old: ResourceClaim | None = change.old
        new: ResourceClaim | None = change.new
        if new is None:
            return Hint.QUEUE if change.final_state_unknown or is_release(change) else Hint.SKIP
        if not self._are_ready(pod):
            return Hint.SKIP
        if is_release(change):
            return Hint.QUEUE
        if (new.metadata.namespace, new.metadata.name) not in named_claims(pod) and not is_made_for(
            new, pod.metadata.uid
        ):
            return Hint.SKIP
        if old is not None and old.status == new.status:
            return Hint.SKIP
        return Hint.QUEUE


def is_release(change: Change) -> bool:
    """Did this free devices?"""
    before = change.old.status.allocation if change.old is not None else None
    after = change.new.status.allocation if change.new is not None else None
    return before is not None and after is None
