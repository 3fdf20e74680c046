"""The checks of a conformance run, in order: each builds on what the ones before have shown."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from dray.api.dra.pools import is_complete, newest_of_pool, slices_by_pool, wanted_slices
from dray.api.names import subdomain_problems
from dray.api.resource import ResourceSlice
from dray.client import CLAIMS, SLICES
from dray.kubelet.claims import CheckpointedDevice, PreparedClaim
from dray.kubelet.errors import DriverError
from dray.testing.driver_process import Target
from dray.testing.driver_test_rig import (
    NODE,
    CheckFailed,
    CheckVerdict,
    Rig,
    Skipped,
    make_class,
    rig_for,
)

CRASH_SHOWS_WITHIN_S = 0.5

Check = Callable[[Rig], Awaitable[None]]


async def registers(rig: Rig) -> None:
    endpoint = await rig.registered()
    rig.driver = endpoint.driver
    if subdomain_problems(endpoint.driver) or len(endpoint.driver) > 63:
        raise CheckFailed(f"its name {endpoint.driver!r} is no DNS subdomain of at most 63 characters")
    if endpoint.service != "v1.DRAPlugin":
        raise CheckFailed(f"it lists {endpoint.service} first; v1.DRAPlugin must come first, or shares lose their IDs")


async def publishes(rig: Rig) -> None:
    """Complete pools of this node, owned by it."""
    gaps: list[str] = []

    async def complete() -> bool:
        found = (await rig.client.list(SLICES, field_selector=f"spec.driver={rig.driver}")).items
        gaps[:] = _gaps(found) if found else ["no ResourceSlice with this driver's name is there"]
        return not gaps

    what = "ResourceSlices that make complete pools with at least one device"
    await rig.until(complete, what, lambda: "; ".join(gaps))
    for each in (await rig.client.list(SLICES, field_selector=f"spec.driver={rig.driver}")).items:
        if each.spec.node_name == NODE and not any(
            o.kind == "Node" and o.name == NODE for o in each.metadata.owner_references
        ):
            raise CheckFailed(f"ResourceSlice {each.metadata.name} is not owned by its node, and would outlive it")
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
    claim = await rig.a_claim()
    devices = await rig.prepared(claim)
    if wrong := sorted({name for device in devices for name in device.requests} - {"device"}):
        raise CheckFailed(
            f"devices are said to be for request {', '.join(wrong)}; the claim's only request is named device"
        )
    rig.resolve(devices)
    await give_back(rig, claim)


async def prepares_again(rig: Rig) -> None:
    claim = await rig.a_claim()
    first, second = await rig.prepared(claim), await rig.prepared(claim)
    if first != second:
        raise CheckFailed(f"the second answer differs: {_shown(second)} instead of {_shown(first)}")
    await give_back(rig, claim)


async def remembers(rig: Rig) -> None:
    claim = await rig.a_claim()
    first = await rig.prepared(claim)
    await rig.restart()
    second = await rig.prepared(claim)
    if first != second:
        raise CheckFailed(f"after a restart the answer differs: {_shown(second)} instead of {_shown(first)}")
    rig.resolve(second)
    await rig.restart()
    await give_back(rig, claim)


async def survives_reboot(rig: Rig) -> None:
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.process.kill()
    for path in rig.cdi_dir.glob("*"):
        path.unlink()
    await rig.restart()
    rig.resolve(await rig.prepared(claim))
    await give_back(rig, claim)


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
    await give_back(rig, claim)


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
        raise CheckFailed(f"{what} was prepared: {_shown(answer)}")


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
        await rig.drop(claim.name)


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
    await _refused(rig, claim, "a claim with a device that the driver does not publish")
    await give_back(rig, claim)


async def refuses_taken(rig: Rig) -> None:
    """The last line of defence: whatever the API says, a device is not given away while another claim holds it."""
    first = await rig.a_claim()
    held = await rig.prepared(first)
    if any(device.share_id for device in held):
        raise Skipped("its devices are shared by claims")
    await rig.drop(first.name)
    second = await rig.a_claim()
    results = (await rig.client.get(CLAIMS, second.name, "default")).status.allocation
    wanted = {(each.pool, each.device) for each in results.devices.results} if results else set()
    if not wanted & {(device.pool, device.device) for device in held}:
        raise Skipped("the next claim was given another device")
    answer = (await rig.prepare(second)).get(second.uid)
    if isinstance(answer, list):
        device = ", ".join(sorted(f"{pool}/{name}" for pool, name in wanted))
        raise CheckFailed(f"device {device} was prepared for {second.name} while {first.name} still holds it")
    await rig.unprepare(first)
    await rig.prepared(second)
    await give_back(rig, second)


async def bad_parameters_fail_alone(rig: Rig) -> None:
    good = await rig.a_claim()
    bad = await rig.a_claim(
        {"apiVersion": "nonsense.example.com/v0", "kind": "Nonsense", "amount": [-1, {"deep": None}]}
    )
    answers = await rig.prepare(bad, good)
    if good.uid not in answers or isinstance(answers[good.uid], str):
        raise CheckFailed(
            f"a claim without parameters failed together with one whose parameters make no sense: {answers.get(good.uid)}"
        )
    if bad.uid not in answers:
        raise CheckFailed("the claim with senseless parameters has no answer")
    await give_back(rig, good)
    await give_back(rig, bad)


async def gives_back(rig: Rig) -> None:
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.unprepare(claim)
    if left := [name for name in rig.cdi_files() if claim.uid in name]:
        raise CheckFailed(f"CDI files stay behind: {left}")
    await rig.unprepare(claim)
    await rig.unprepare(PreparedClaim("default", "no-such-claim", "00000000-0000-0000-0000-000000000000"))
    await rig.drop(claim.name)


async def gives_back_without_claim(rig: Rig) -> None:
    """The claim object may be gone by then."""
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.drop(claim.name)
    await rig.unprepare(claim)


async def writes_little(rig: Rig) -> None:
    before = await rig.revisions()
    await rig.restart()
    await asyncio.sleep(1.0)
    after = await rig.revisions()
    if before != after:
        raise CheckFailed(
            f"a restart without changed devices rewrote slices: {sorted(set(after.items()) - set(before.items()))}"
        )


async def ends(rig: Rig) -> None:
    code = await rig.process.terminate(min(rig.timeout_s, 15.0))
    if code is None:
        raise CheckFailed("it does not end after SIGTERM")
    if code != 0:
        raise CheckFailed(f"it ends with exit code {code} after SIGTERM: {rig.process.last_words()}")
    if left := [path.name for path in (rig.root / "plugins_registry").glob("*.sock")]:
        raise CheckFailed(f"registration sockets stay behind: {left}")
    if not await rig.revisions():
        raise CheckFailed("it deleted its ResourceSlices; a driver that restarts must leave them to the kubelet")


async def give_back(rig: Rig, claim: PreparedClaim) -> None:
    await rig.unprepare(claim)
    await rig.drop(claim.name)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("registers with the kubelet", registers),
    ("publishes complete pools", publishes),
    ("prepares a claim, and containers can use the answer", prepares),
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
    ("writes no slice when nothing changed", writes_little),
    ("ends on SIGTERM and takes its sockets along", ends),
)


async def check_driver(target: Target, timeout_s: float) -> AsyncIterator[CheckVerdict]:
    """Every check in order; when the driver cannot even register or publish, the rest is left out."""
    async with rig_for(target, timeout_s) as rig:
        for name, check in CHECKS:
            verdict = await _verdict(rig, name, check)
            yield verdict
            if verdict.problem and check in (registers, publishes):
                return


async def _verdict(rig: Rig, name: str, check: Check) -> CheckVerdict:
    try:
        await check(rig)
    except (CheckFailed, DriverError) as error:
        return CheckVerdict(name, problem=await _with_end(rig, check, str(error)))
    except Skipped as reason:
        return CheckVerdict(name, skipped=str(reason))
    finally:
        await _clean_up(rig, check)
    return CheckVerdict(name)


async def _with_end(rig: Rig, check: Check, problem: str) -> str:
    """A driver that crashed has said why, or has at least an exit code."""
    if check is ends or not await rig.process.ends_within(CRASH_SHOWS_WITHIN_S):
        return problem
    return problem if rig.end() in problem else f"{problem}; {rig.end()}"


async def _clean_up(rig: Rig, check: Check) -> None:
    """What one check brought about, the end of the driver included, must not fail the next."""
    if rig.process.has_ended and check not in (registers, ends):
        with contextlib.suppress(CheckFailed, DriverError):
            await rig.restart()
    await rig.clear()
