"""The rule that a running pod has its claims allocated and reserved, and that a claim in use is not taken away."""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client import CLAIMS, PODS
from dray.proof.history import ObjectKey
from dray.proof.replay import (
    Object,
    ReplayedCluster,
)
from dray.proof.rules.node_ledger import FINISHED
from dray.proof.violation import Violation


def examine(world: ReplayedCluster, revision: int) -> Iterator[Violation]:
    """Checks every running pod against the present state."""
    for pod in world.pods.values():
        if runs(pod):
            yield from _missing(world, revision, pod)


def _missing(world: ReplayedCluster, revision: int, pod: Pod) -> Iterator[Violation]:
    for label in _never_made(pod):
        yield Violation("running-without-claim", revision, _name(pod), f"claim {label} was never made", (_key(pod),))
    for label, name in claim_keys(pod).items():
        if missing := lacks(world.claims.get(name), pod):
            message = f"claim {label} ({name}) {missing}"
            yield Violation("running-without-claim", revision, _name(pod), message, _keys(pod, name))


class UseRule:
    def __init__(self) -> None:
        # claim -> pods that run with it
        self._running_with: dict[str, set[str]] = {}

    def changed(
        self, world: ReplayedCluster, revision: int, key: ObjectKey, old: Object | None, new: Object | None
    ) -> Iterator[Violation]:
        if isinstance(new or old, Pod):
            yield from self._pod_changed(world, revision, _as_pod(old), _as_pod(new))
        elif isinstance(new or old, ResourceClaim):
            yield from self._claim_changed(world, revision, key, _as_claim(old), _as_claim(new))

    def _pod_changed(
        self, world: ReplayedCluster, revision: int, old: Pod | None, new: Pod | None
    ) -> Iterator[Violation]:
        if old is not None and runs(old):
            for name in claim_keys(old).values():
                self._running_with.get(name, set()).discard(old.metadata.uid)
        if new is None or not runs(new):
            return
        was_running = old is not None and runs(old) and old.metadata.uid == new.metadata.uid
        for name in claim_keys(new).values():
            self._running_with.setdefault(name, set()).add(new.metadata.uid)
        if not was_running:
            yield from _missing(world, revision, new)

    def _claim_changed(
        self,
        world: ReplayedCluster,
        revision: int,
        key: ObjectKey,
        old: ResourceClaim | None,
        new: ResourceClaim | None,
    ) -> Iterator[Violation]:
        name = f"{key.namespace}/{key.name}"
        is_same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
        for uid in sorted(self._running_with.get(name, ())):
            pod = world.pods_by_uid.get(uid)
            if pod is not None and not lacks(old, pod) and (missing := lacks(new, pod)):
                message = f"claim {name} {missing}"
                yield Violation("running-without-claim", revision, _name(pod), message, _keys(pod, name))
        if old is None or old.status.allocation is None:
            return
        if is_same and new is not None and _devices(new) == _devices(old):
            return
        for user in old.status.reserved_for:
            pod = world.pods_by_uid.get(user.uid) if user.resource == "pods" else None
            if pod is not None and pod.spec.node_name and pod.status.phase not in FINISHED:
                word = "was deleted" if not is_same else "lost its allocation" if not _devices(new) else "got others"
                message = f"{word} while {_name(pod)} has it"
                yield Violation("deallocated-in-use", revision, f"claim {name}", message, _keys(pod, name))


def runs(pod: Pod) -> bool:
    return pod.status.phase == "Running"


def claim_keys(pod: Pod) -> dict[str, str]:
    """The pod's claims: by their name in the pod, where they are. Claims that are not made yet are left out."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    found: dict[str, str] = {}
    for each in pod.spec.resource_claims:
        name = each.resource_claim_name or made.get(each.name)
        if name:
            found[each.name] = f"{pod.metadata.namespace}/{name}"
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        found["extended resources"] = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
    return found


def _never_made(pod: Pod) -> list[str]:
    """Claims from a template of which the pod's status says nothing. One with an entry that names no claim needs none."""
    known = {each.name for each in pod.status.resource_claim_statuses}
    return [each.name for each in pod.spec.resource_claims if not each.resource_claim_name and each.name not in known]


def lacks(claim: ResourceClaim | None, pod: Pod) -> str:
    """The reason why the pod may not use this claim; empty if it may."""
    if claim is None:
        return "does not exist"
    if claim.status.allocation is None:
        return "is not allocated"
    if not _is_reserved_for(claim, pod):
        return "is not reserved for it"
    return ""


def _is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """By the pod's UID, or by the name of its group: a pod does not say the UID of its group."""
    group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None
    return any(
        user.uid == pod.metadata.uid
        or (
            bool(group) and user.api_group == "scheduling.k8s.io" and (user.resource, user.name) == ("podgroups", group)
        )
        for user in claim.status.reserved_for
    )


def _devices(claim: ResourceClaim | None) -> list[tuple[str, str, str, str | None]]:
    allocation = claim.status.allocation if claim is not None else None
    results = allocation.devices.results if allocation is not None else ()
    return [(each.driver, each.pool, each.device, each.share_id) for each in results]


def _keys(pod: Pod, claim: str) -> tuple[ObjectKey, ...]:
    return _key(pod), ObjectKey.at(CLAIMS.plural, claim)


def _key(pod: Pod) -> ObjectKey:
    return ObjectKey(PODS.plural, pod.metadata.namespace or "", pod.metadata.name)


def _name(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _as_pod(value: Object | None) -> Pod | None:
    return value if isinstance(value, Pod) else None


def _as_claim(value: Object | None) -> ResourceClaim | None:
    return value if isinstance(value, ResourceClaim) else None
