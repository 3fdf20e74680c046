"""The checks of a conformance run, in order: each builds on what the ones before have shown."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from dray.api.dra.pools import is_complete, newest_of_pool, slices_by_pool, wanted_slices
from dray.api.names import subdomain_problems
from dray.api.resource import ResourceSlice
from dray.kubelet.claims import CheckpointedDevice, PreparedClaim
from dray.kubelet.errors import DriverError
from dray.testing.driver_feature_checks import features_of
from dray.testing.driver_process import Target
from dray.testing.driver_test_rig import (
    NODE,
    CheckFailed,
    CheckVerdict,
    NotCalled,
    Rig,
    Skipped,
    WantedDevices,
    make_class,
    rig_for,
)
from dray.testing.logged_exceptions import LoggedException

CRASH_SHOWS_WITHIN_S = 0.5

Check = Callable[[Rig], Awaitable[None]]


async def registers(rig: Rig) -> None:
    endpoint = await rig.registered()
    rig.driver = endpoint.driver
    if subdomain_problems(endpoint.driver) or len(endpoint.driver) > 63:
        raise CheckFailed(f"its name {endpoint.driver!r} is no DNS subdomain of at most 63 characters")
    if endpoint.service != "v1.DRAPlugin":
        rig.warn(f"it lists {endpoint.service} first; a kubelet calls that one, and shares lose their IDs")


async def publishes(rig: Rig) -> None:
    """Complete pools of this node, owned by it."""
    gaps: list[str] = []

    async def complete() -> bool:
        if rig.refusals.texts:
            raise CheckFailed(f"the API server refuses its slices: {'; '.join(rig.refusals.texts)}")
        rig.slices = await rig.published()
        gaps[:] = _gaps(rig.slices) if rig.slices else ["no ResourceSlice with this driver's name is there"]
        return not gaps

    what = "ResourceSlices that make complete pools with at least one device"
    await rig.until(complete, what, lambda: "; ".join(gaps))
    for each in rig.slices:
        if each.spec.node_name == NODE and not any(
            o.kind == "Node" and o.name == NODE for o in each.metadata.owner_references
        ):
            rig.warn(f"ResourceSlice {each.metadata.name} is not owned by its node, and would outlive it")
    await make_class(rig)


def _gaps(slices: Sequence[ResourceSlice]) -> list[str]:
    """What keeps the pools from being whole."""
    gaps = []
    devices = 0
    for (_, name), of_pool in sorted(slices_by_pool(slices).items()):
        current = newest_of_pool(of_pool)
        devices += sum(len(each.spec.devices) for each in current)
        if not is_complete(current):
            have, generation = f"{len(current)} of {wanted_slices(current)}", current[0].spec.pool.generation
            gaps.append(f"pool {name}: {have} slices of generation {generation} are there")
    return gaps if devices else [*gaps, "no slice has a device"]


async def prepares(rig: Rig) -> None:
    try:
        claim = await rig.a_claim()
    except NotCalled:
        raise
    except Skipped as reason:
        raise CheckFailed(str(reason)) from reason
    await rig.usable(claim)
    await rig.give_back(claim)


async def prepares_all_devices(rig: Rig) -> None:
    claim = await rig.a_claim(WantedDevices(requests=2))
    await rig.usable(claim)
    await rig.give_back(claim)


async def prepares_alternatives(rig: Rig) -> None:
    """In the allocation the request has its alternative's name behind it."""
    claim = await rig.a_claim(WantedDevices(is_prioritized=True))
    await rig.usable(claim)
    await rig.give_back(claim)


async def prepares_again(rig: Rig) -> None:
    claim = await rig.a_claim()
    first, second = await rig.prepared(claim), await rig.prepared(claim)
    if first != second:
        raise CheckFailed(f"the second answer differs: {_shown(second)} instead of {_shown(first)}")
    await rig.give_back(claim)


async def remembers(rig: Rig) -> None:
    claim = await rig.a_claim()
    first = await rig.prepared(claim)
    await rig.restart()
    second = await rig.prepared(claim)
    if first != second:
        raise CheckFailed(f"after a restart the answer differs: {_shown(second)} instead of {_shown(first)}")
    rig.resolve(second)
    await rig.restart()
    await rig.give_back(claim)


async def survives_reboot(rig: Rig) -> None:
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.process.kill()
    for path in rig.cdi_dir.glob("*"):
        path.unlink()
    await rig.restart()
    rig.resolve(await rig.prepared(claim))
    await rig.give_back(claim)


async def refuses_unknown(rig: Rig) -> None:
    before = rig.cdi_files()
    ghost = PreparedClaim("default", "no-such-claim", "00000000-0000-0000-0000-000000000000")
    await _refused(rig, ghost, "a claim that does not exist")
    if rig.cdi_files() != before:
        raise CheckFailed("a CDI file was written for a claim that does not exist")


async def refuses_replaced(rig: Rig) -> None:
    claim = await rig.a_claim()
    other = replace(claim, uid="00000000-0000-0000-0000-000000000000")
    try:
        await _refused(rig, other, "a claim whose UID is another")
    finally:
        await rig.unprepare(other)
    await rig.give_back(claim)


class Prepared(CheckFailed):
    """A claim was prepared that should have been refused."""


async def _refused(rig: Rig, claim: PreparedClaim, what: str) -> None:
    try:
        answer = (await rig.prepare(claim)).get(claim.uid)
    except DriverError as error:
        if await rig.process.ends_within(CRASH_SHOWS_WITHIN_S):
            raise CheckFailed(f"{what} is no reason to crash: {error}") from error
        return
    if answer is None:
        raise CheckFailed(f"{what} has no entry in the answer; it must have one with an error")
    if not isinstance(answer, str):
        raise Prepared(f"{what} was prepared: {_shown(answer)}")


def _shown(devices: Iterable[CheckpointedDevice]) -> str:
    parts = (f"{each.pool}/{each.device} as {', '.join(each.cdi_device_ids) or 'no CDI device'}" for each in devices)
    return "; ".join(parts) or "no devices"


async def serves_many(rig: Rig) -> None:
    claims = await _claims(rig, 3)
    together = await rig.prepare(*claims)
    alone = await asyncio.gather(*(rig.prepared(claim) for claim in claims for _ in range(3)))
    for i, claim in enumerate(claims):
        if any(answer != together.get(claim.uid) for answer in alone[3 * i : 3 * i + 3]):
            raise CheckFailed(f"claim {claim.name}: answers to calls at the same time differ from those to one call")
    names = [
        name
        for answer in together.values()
        if not isinstance(answer, str)
        for each in answer
        for name in each.cdi_device_ids
    ]
    if len(claims) > 1 and len(names) != len(set(names)):
        raise CheckFailed(f"two claims were given the same CDI devices: {sorted(names)}")
    await asyncio.gather(*(rig.unprepare(claim) for claim in claims for _ in range(2)))
    for claim in claims:
        await rig.drop(claim)


async def _claims(rig: Rig, most: int) -> list[PreparedClaim]:
    """As many as the devices allow, at least one."""
    claims = [await rig.a_claim()]
    patience, rig.timeout_s = rig.timeout_s, min(rig.timeout_s, 2.0)
    try:
        while len(claims) < most:
            claims.append(await rig.a_claim())
    except Skipped:
        pass
    finally:
        rig.timeout_s = patience
    return claims


async def refuses_missing(rig: Rig) -> None:
    """An allocation may name a device that is not there any more, or never was."""
    claim = await rig.a_claim_for_missing_device()
    try:
        await _refused(rig, claim, "a claim with a device that the driver does not publish")
    except Prepared as error:
        rig.warn(f"{error}; Kubernetes leaves it to the driver")
    await rig.give_back(claim)


async def refuses_taken(rig: Rig) -> None:
    """The last line of defence: whatever the API says, a device is not given away while another claim holds it."""
    first = await rig.a_claim()
    held = await rig.prepared(first)
    if any(device.share_id for device in held):
        raise Skipped("its devices are shared by claims")
    await rig.drop(first)
    second = await rig.a_claim()
    wanted = {(each.pool, each.device) for each in rig.given(second)}
    if not wanted & {(device.pool, device.device) for device in held}:
        raise Skipped("the next claim was given another device")
    answer = (await rig.prepare(second)).get(second.uid)
    if isinstance(answer, list):
        device = ", ".join(sorted(f"{pool}/{name}" for pool, name in wanted))
        rig.warn(
            f"device {device} was prepared for {second.name} while {first.name} still holds it; Kubernetes leaves it to "
            "the driver"
        )
    await rig.unprepare(first)
    await rig.prepared(second)
    await rig.give_back(second)


async def bad_parameters_fail_alone(rig: Rig) -> None:
    good = await rig.a_claim()
    parameters = {"apiVersion": "nonsense.example.com/v0", "kind": "Nonsense", "amount": [-1, {"deep": None}]}
    bad = await rig.a_claim(WantedDevices(parameters=parameters))
    answers = await rig.prepare(bad, good)
    if good.uid not in answers or isinstance(answers[good.uid], str):
        raise CheckFailed(
            f"a claim without parameters failed together with one whose parameters make no sense: {answers.get(good.uid)}"
        )
    if bad.uid not in answers:
        raise CheckFailed("the claim with senseless parameters has no answer")
    await rig.give_back(good)
    await rig.give_back(bad)


async def gives_back(rig: Rig) -> None:
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.unprepare(claim)
    if left := [name for name in rig.cdi_files() if claim.uid in name]:
        raise CheckFailed(f"CDI files stay behind: {left}")
    await rig.unprepare(claim)
    await rig.unprepare(PreparedClaim("default", "no-such-claim", "00000000-0000-0000-0000-000000000000"))
    await rig.drop(claim)


async def gives_back_without_claim(rig: Rig) -> None:
    """The claim object may be gone by then."""
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.drop(claim)
    await rig.unprepare(claim)


async def writes_little(rig: Rig) -> None:
    before = await rig.revisions()
    await rig.restart()
    await asyncio.sleep(1.0)
    after = await rig.revisions()
    if before != after:
        changed = sorted(name for name, revision in after.items() if before.get(name) != revision)
        rig.warn(f"a restart without changed devices rewrote slices: {', '.join(changed) or 'some are gone'}")


async def ends(rig: Rig) -> None:
    code = await rig.process.terminate(min(rig.timeout_s, 15.0))
    if code is None:
        raise CheckFailed("it does not end after SIGTERM")
    if code != 0:
        rig.warn(f"it ends with exit code {code} after SIGTERM: {rig.process.last_words()}")
    if left := [path.name for path in (rig.root / "plugins_registry").glob("*.sock")]:
        raise CheckFailed(f"registration sockets stay behind: {left}")
    if not await rig.revisions():
        rig.warn("it deletes its ResourceSlices when it ends; the kubelet does that if the driver stays away")


FIRST_CHECKS: tuple[tuple[str, Check], ...] = (
    ("registers with the kubelet", registers),
    ("publishes complete pools", publishes),
)
CHECKS: tuple[tuple[str, Check], ...] = (
    ("prepares a claim, and containers can use the answer", prepares),
    ("prepares every device of a claim", prepares_all_devices),
    ("prepares a claim with alternatives", prepares_alternatives),
    ("answers the same when asked again", prepares_again),
    ("answers the same after a crash, and gives back after another", remembers),
    ("restores CDI files after a reboot", survives_reboot),
    ("refuses a claim that does not exist", refuses_unknown),
    ("refuses a claim that was replaced", refuses_replaced),
    ("refuses a device that it does not publish", refuses_missing),
    ("refuses a device that another claim holds", refuses_taken),
    ("serves several claims, in one call and at the same time", serves_many),
    ("lets senseless parameters fail alone", bad_parameters_fail_alone),
    ("gives a claim back, also twice, also an unknown one", gives_back),
    ("gives a claim back whose object is gone", gives_back_without_claim),
)
LAST_CHECKS: tuple[tuple[str, Check], ...] = (
    ("writes no slice when nothing changed", writes_little),
    ("ends on SIGTERM and takes its sockets along", ends),
)


async def check_driver(target: Target, timeout_s: float, only: str = "") -> AsyncIterator[CheckVerdict]:
    """Every check in order; when the driver cannot even register or publish, the rest is left out.

    Between the checks that every driver must pass and its end come those of the features that its slices use. With `only`
    just those follow the first two whose names contain it.
    """
    async with rig_for(target, timeout_s) as rig:
        story = _Story(rig)
        for name, check in FIRST_CHECKS:
            verdict = await story.verdict(name, check)
            yield verdict
            if verdict.problem:
                return
        for name, check in (*CHECKS, *features_of(rig), *LAST_CHECKS):
            if only in name:
                yield await story.verdict(name, check)


class _Story:
    """Runs checks, and tells an exception of the driver in full only once."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._exceptions: list[LoggedException] = []
        self._refusals = 0

    async def verdict(self, name: str, check: Check) -> CheckVerdict:
        rig = self._rig
        rig.warnings.clear()
        problem = skipped = ""
        try:
            await check(rig)
        except (CheckFailed, DriverError) as error:
            problem = await self._with_end(check, str(error))
        except Skipped as reason:
            skipped = str(reason)
        problem = self._with_exceptions(problem)
        problem = self._with_refusals(problem)
        warning = "; ".join(rig.warnings)
        await self._clean_up(check)
        return CheckVerdict(name, problem, skipped, "" if problem else warning)

    async def _with_end(self, check: Check, problem: str) -> str:
        """A driver that crashed has said why, or has at least an exit code."""
        rig = self._rig
        if check is ends or not await rig.process.ends_within(CRASH_SHOWS_WITHIN_S):
            return problem
        return problem if rig.end() in problem else f"{problem}; {rig.end()}"

    def _with_exceptions(self, problem: str) -> str:
        """Adds where the exception was raised; one that did no harm to the check is a warning."""
        found = self._rig.process.exceptions()[len(self._exceptions) :]
        new = [each for each in found if not any(each.is_like(other) for other in self._exceptions)]
        self._exceptions += found
        if problem and found and not new:
            return f"the same exception as above: {found[0].text}"
        for each in dict.fromkeys(new):
            if not problem:
                self._rig.warn(f"the driver logged an exception: {each}")
            elif str(each) not in problem:
                problem = problem.replace(each.text, str(each), 1) if each.text in problem else f"{problem}; {each}"
        return problem

    def _with_refusals(self, problem: str) -> str:
        found = self._rig.refusals.texts[self._refusals :]
        self._refusals += len(found)
        if not found or found[0] in problem:
            return problem
        text = f"the API server refuses its slices: {'; '.join(found)}"
        return f"{problem}; {text}" if problem else text

    async def _clean_up(self, check: Check) -> None:
        """What one check brought about, the end of the driver included, must not fail the next."""
        rig = self._rig
        if rig.process.has_ended and check not in (registers, ends):
            with contextlib.suppress(CheckFailed, DriverError):
                await rig.restart()
        await rig.clear()
