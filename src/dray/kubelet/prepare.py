"""Prepares the claims of a pod before its containers start, and gives them back when it has ended."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dray.api.core import Pod
from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_claims import PodClaim
from dray.api.resource import ResourceClaim
from dray.client.errors import ApiError, ServerUnreachable
from dray.client.kinds import CLAIMS
from dray.client.rest import Client
from dray.kubelet.checkpoint import CheckpointCorrupt, CheckpointFile
from dray.kubelet.claims import (
    PREPARE,
    UNPREPARE,
    CheckpointedDevice,
    ClaimCache,
    ClaimRefused,
    PreparedClaim,
    check_claim,
    created_claims,
)
from dray.kubelet.drivers import CALL_TIMEOUT_S, Drivers
from dray.kubelet.errors import DriverError

log = logging.getLogger(__name__)

CountSkip = Callable[[str, str], None]


class PodClaims:
    """The claims of this node: every change is on disk before a driver hears of it."""

    def __init__(
        self,
        client: Client,
        drivers: Drivers,
        checkpoint: CheckpointFile,
        *,
        is_enabled: bool = True,
        keeps_share_ids: bool = True,
        may_skip_operations: bool = True,
        call_timeout_s: float = CALL_TIMEOUT_S,
        count_skip: CountSkip = lambda driver, operation: None,
    ) -> None:
        self._client = client
        self._drivers = drivers
        self._checkpoint = checkpoint
        self._is_enabled = is_enabled
        self._keeps_share_ids = keeps_share_ids
        self._may_skip_operations = may_skip_operations
        self._call_timeout_s = call_timeout_s
        self._count_skip = count_skip
        self.cache = ClaimCache(_load(checkpoint))
        self.problem: str = ""
        self._saving = asyncio.Lock()

    # --- prepare

    async def prepare(self, pod: Pod) -> None:
        """Make every claim of the pod usable, or raise ClaimRefused or DriverError with the text for its event.

        Nothing is noted before all checks have passed, so a pod that fails them can be deleted without a trace. With
        DynamicResourceAllocation off nothing is prepared; claims that are on record are still given back.
        """
        if not self._is_enabled:
            return
        checked = await self._checked_claims(pod)
        if not checked:
            return
        batches: dict[str, list[PreparedClaim]] = {}
        for claim in checked:
            state = self.cache.enter(claim, pod.metadata.uid)
            if state.is_prepared:
                continue
            for driver in state.drivers:
                if state.drivers[driver].skips(PREPARE):
                    self._count_skip(driver, PREPARE)
                else:
                    batches.setdefault(driver, []).append(state)
        await self._save()
        for driver, states in batches.items():
            await self._prepare_batch(driver, states)
        for claim in checked:
            self.cache.set_prepared(f"{claim.metadata.namespace}/{claim.metadata.name}")
        await self._save()

    async def _checked_claims(self, pod: Pod) -> list[ResourceClaim]:
        checked: dict[str, ResourceClaim] = {}
        for pod_claim in created_claims(pod):
            claim = await self._fetch(pod, pod_claim)
            check_claim(pod, pod_claim, claim, may_skip_operations=self._may_skip_operations)
            self._check_drivers(claim)
            checked[claim.metadata.name] = claim
        return list(checked.values())

    async def _fetch(self, pod: Pod, pod_claim: PodClaim) -> ResourceClaim:
        try:
            return await self._client.get(CLAIMS, pod_claim.claim_name, pod.metadata.namespace)
        except (ApiError, ServerUnreachable) as error:
            raise ClaimRefused(f"fetch ResourceClaim {pod_claim.claim_name}: {error}") from error

    def _check_drivers(self, claim: ResourceClaim) -> None:
        for result in allocation_results(claim):
            if not {PREPARE, "*"}.intersection(result.skip_node_operations):
                self._drivers.endpoint(result.driver)

    async def _prepare_batch(self, driver: str, states: Sequence[PreparedClaim]) -> None:
        answers = await self._drivers.endpoint(driver).prepare(states, self._call_timeout_s)
        by_uid = {state.uid: state for state in states}
        failure = ""
        for uid, answer in answers.items():
            state = by_uid.get(uid)
            if state is None:
                failure = failure or f"{PREPARE} returned result for unknown claim UID {uid}"
            elif isinstance(answer, str):
                failure = failure or f"{PREPARE} failed for ResourceClaim {state.name}: {answer}"
            else:
                devices = answer if self._keeps_share_ids else [replace(each, share_id=None) for each in answer]
                self.cache.store_devices(state.key, driver, devices)
        missing = len(by_uid) - sum(uid in by_uid for uid in answers)
        if not failure and missing:
            failure = f"{PREPARE} skipped {missing} ResourceClaims"
        if failure:
            await self._save()
            raise DriverError(failure)

    # --- unprepare

    async def unprepare(self, pod_uid: str) -> None:
        """Give back what only this pod used. DriverError leaves those claims closed to new pods; try again later."""
        last = self.cache.leave(pod_uid)
        if not last:
            await self._save()
            return
        batches: dict[str, list[PreparedClaim]] = {}
        for state in last:
            for driver in state.drivers:
                if state.drivers[driver].skips(UNPREPARE):
                    self._count_skip(driver, UNPREPARE)
                else:
                    batches.setdefault(driver, []).append(state)
        for driver, states in batches.items():
            await self._unprepare_batch(driver, states)
        for state in last:
            self.cache.remove(state.key)
        await self._save()

    async def _unprepare_batch(self, driver: str, states: Sequence[PreparedClaim]) -> None:
        answers = await self._drivers.endpoint(driver).unprepare(states, self._call_timeout_s)
        names = {state.uid: state.name for state in states}
        for uid, error in answers.items():
            if uid not in names:
                raise DriverError(f"{UNPREPARE} returned result for unknown claim UID {uid}")
            if error:
                raise DriverError(f"{UNPREPARE} failed for ResourceClaim {names[uid]}: {error}")
        if len(answers) < len(states):
            raise DriverError(f"{UNPREPARE} skipped {len(states) - len(answers)} ResourceClaims")

    def knows_claims_of(self, pod: Pod) -> bool:
        """Whether every claim of the pod is on record for it, as it is once the pod was prepared."""
        if not self._is_enabled:
            return True
        try:
            keys = {f"{pod.metadata.namespace}/{each.claim_name}" for each in created_claims(pod)}
        except ClaimRefused:
            return False
        return keys <= {state.key for state in self.cache.of_pod(pod.metadata.uid)}

    def has_claims(self, pod_uid: str) -> bool:
        return bool(self.cache.of_pod(pod_uid))

    def claims_in_use(self) -> Mapping[str, int]:
        """Prepared claims by driver, and all of them under `<any>`."""
        counts: dict[str, int] = {"<any>": 0}
        for state in self.cache:
            if state.is_prepared:
                counts["<any>"] += 1
                for driver in state.drivers:
                    counts[driver] = counts.get(driver, 0) + 1
        return counts

    async def _save(self) -> None:
        try:
            async with self._saving:
                await asyncio.to_thread(self._checkpoint.write, list(self.cache))
            self.problem = ""
        except OSError as error:
            self.problem = f"checkpoint {self._checkpoint.path}: {error}"
            raise DriverError(self.problem) from error


def devices_of_container(
    cache: ClaimCache, namespace: str, wanted: Sequence[tuple[str, str]]
) -> list[tuple[PreparedClaim, str, CheckpointedDevice]]:
    """Devices for (claim name, request) pairs of one container, in order: claim, driver, device."""
    found: list[tuple[PreparedClaim, str, CheckpointedDevice]] = []
    for claim_name, request in wanted:
        state = cache.get(f"{namespace}/{claim_name}")
        if state is None:
            raise ClaimRefused(
                f"internal error: unable to get claim info for ResourceClaim {claim_name} in namespace {namespace}"
            )
        for driver, driver_state in state.drivers.items():
            found += [(state, driver, device) for device in driver_state.devices if device.serves(request)]
    return found


def _load(checkpoint: CheckpointFile) -> list[PreparedClaim]:
    try:
        return checkpoint.read()
    except CheckpointCorrupt as error:
        aside = checkpoint.set_aside()
        log.error(
            "%s; kept as %s. Claims of running pods are prepared again from the API and the drivers", error, aside
        )
        return []
