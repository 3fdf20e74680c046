"""Which claims are prepared on this node, for which pods, by which drivers. Pure: `prepare` calls drivers and `checkpoint` writes files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dray.api.core import Pod
from dray.api.dra.claim_users import group_name, may_use, was_made_for
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import ClaimSource, PodClaim, claims_of_pod
from dray.api.resource import ResourceClaim

PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"


class ClaimRefused(Exception):
    """A pod may not use a claim now; the text goes into the pod's event as it stands."""


@dataclass(frozen=True, slots=True)
class CheckpointedDevice:
    """What a driver answered for one device."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_device_ids: tuple[str, ...] = ()
    share_id: str | None = None

    def serves(self, request: str) -> bool:
        """Whether a container that asks for `request` (empty: all of the claim) gets this device."""
        return not request or not self.requests or request in self.requests


@dataclass(frozen=True, slots=True)
class DriverState:
    devices: tuple[CheckpointedDevice, ...] = ()
    skipped_operations: tuple[str, ...] = ()

    def skips(self, operation: str) -> bool:
        return operation in self.skipped_operations or "*" in self.skipped_operations


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """One claim on this node. The flags and the claim itself live in memory only: after a restart they are found again.

    `claim` is the object as it was when a pod first used it here. Its allocation does not change while a pod has it
    reserved, so containers that start later need no newer copy.
    """

    namespace: str
    name: str
    uid: str
    pod_uids: frozenset[str] = frozenset()
    drivers: Mapping[str, DriverState] = field(default_factory=dict)
    is_prepared: bool = False
    is_unpreparing: bool = False
    claim: ResourceClaim | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def drivers_to_call(self, operation: str) -> list[str]:
        return [driver for driver, state in self.drivers.items() if not state.skips(operation)]


def new_claim_state(claim: ResourceClaim) -> PreparedClaim:
    """The entry of an allocated claim, before anything was prepared."""
    skips: dict[str, set[str]] = {}
    for result in allocation_results(claim):
        operations = set(result.skip_node_operations)
        if "*" in operations:
            operations = {PREPARE, UNPREPARE, "*"}
        skips[result.driver] = skips[result.driver] & operations if result.driver in skips else operations
    drivers = {driver: DriverState(skipped_operations=tuple(sorted(skipped))) for driver, skipped in skips.items()}
    return PreparedClaim(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid, drivers=drivers)


# --- which claims a pod has ------------------------------------------------------------------------------------------


def created_claims(pod: Pod) -> list[PodClaim]:
    """The pod's claims that exist, the extended-resource claim last. ClaimRefused while one still has to be created."""
    claims = claims_of_pod(pod)
    for claim in claims:
        if claim.source is ClaimSource.UNKNOWN:
            raise ClaimRefused(
                f'pod "{_pod_key(pod)}", spec.resourceClaim "{claim.entry}": none of the supported fields are set'
            )
        if not claim.is_recorded:
            raise ClaimRefused(f'pod "{_pod_key(pod)}": ResourceClaim not created yet')
    return [claim for claim in claims if claim.claim_name]


def check_claim(pod: Pod, pod_claim: PodClaim, claim: ResourceClaim, *, may_skip_operations: bool) -> None:
    """Everything about the claim itself that must hold before a driver is called."""
    metadata = claim.metadata
    if pod_claim.is_generated and not was_made_for(claim, pod):
        group = group_name(pod)
        why = "Pod is not owner" if group is None else f"neither Pod nor PodGroup {group} is the owner"
        raise ClaimRefused(
            f"ResourceClaim {metadata.namespace}/{metadata.name} was not created for Pod {_pod_key(pod)} ({why})"
        )
    if not may_use(claim, pod):
        raise ClaimRefused(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {metadata.name} ({metadata.uid})"
        )
    if claim.status.allocation is None:
        raise ClaimRefused(f"ResourceClaim {metadata.name}: not allocated")
    if not may_skip_operations and any(result.skip_node_operations for result in allocation_results(claim)):
        raise ClaimRefused(
            f"ResourceClaim {metadata.name}: DRAOptionalNodeOperations feature gate is disabled on kubelet"
        )


def _pod_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# --- the cache -------------------------------------------------------------------------------------------------------


class ClaimCache:
    """All claims on this node. The caller writes the checkpoint after each change, before it calls a driver."""

    def __init__(self, states: Iterable[PreparedClaim] = ()) -> None:
        self._states = {state.key: state for state in states}

    def __iter__(self) -> Iterator[PreparedClaim]:
        return iter(self._states.values())

    def get(self, key: str) -> PreparedClaim | None:
        return self._states.get(key)

    def pod_uids(self) -> set[str]:
        return {uid for state in self._states.values() for uid in state.pod_uids}

    def of_pod(self, pod_uid: str) -> list[PreparedClaim]:
        return [state for state in self._states.values() if pod_uid in state.pod_uids]

    def enter(self, claim: ResourceClaim, pod_uid: str) -> PreparedClaim:
        """Note that the pod uses the claim, before any driver is called for it."""
        state = self._states.get(f"{claim.metadata.namespace}/{claim.metadata.name}") or new_claim_state(claim)
        if state.uid != claim.metadata.uid:
            raise ClaimRefused(
                f"old ResourceClaim with same name {state.name} and different UID {state.uid} still exists (previous pod force-deleted?!)"
            )
        if state.is_unpreparing:
            raise ClaimRefused(f"ResourceClaim {state.name} is being unprepared")
        return self._put(replace(state, pod_uids=state.pod_uids | {pod_uid}, claim=claim))

    def remember(self, claim: ResourceClaim) -> None:
        """Keep the object of a claim that is on record, for containers that start while the API server is away."""
        state = self._states.get(f"{claim.metadata.namespace}/{claim.metadata.name}")
        if state is not None and state.uid == claim.metadata.uid:
            self._put(replace(state, claim=claim))

    def store_devices(self, key: str, driver: str, devices: Iterable[CheckpointedDevice]) -> None:
        """A driver's answer replaces what it answered before."""
        state = self._states[key]
        drivers = {**state.drivers, driver: replace(state.drivers[driver], devices=tuple(devices))}
        self._put(replace(state, drivers=drivers))

    def set_prepared(self, key: str) -> None:
        self._put(replace(self._states[key], is_prepared=True))

    def leave(self, pod_uid: str) -> list[PreparedClaim]:
        """The pod ends: claims that nobody uses any more, now being unprepared and closed to new pods."""
        last: list[PreparedClaim] = []
        for state in self.of_pod(pod_uid):
            if state.pod_uids == {pod_uid}:
                last.append(self._put(replace(state, is_unpreparing=True)))
            else:
                self._put(replace(state, pod_uids=state.pod_uids - {pod_uid}))
        return last

    def remove(self, key: str) -> None:
        self._states.pop(key, None)

    def _put(self, state: PreparedClaim) -> PreparedClaim:
        self._states[state.key] = state
        return state
