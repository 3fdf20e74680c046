"""The checks of a conformance run, in order: each builds on what the ones before have shown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from dray.api.names import subdomain_problems
from dray.client import SLICES
from dray.kubelet.claims import ClaimState
from dray.kubelet.errors import DriverError
from dray.testing.driver_check import NODE, Failed, Rig, Skipped, Verdict, make_class, rig_for
from dray.testing.driver_process import Target

Check = Callable[[Rig], Awaitable[None]]


async def registers(rig: Rig) -> None:
    endpoint = await rig.registered()
    rig.driver = endpoint.driver
    if subdomain_problems(endpoint.driver) or len(endpoint.driver) > 63:
        raise Failed(f"its name {endpoint.driver!r} is no DNS subdomain of at most 63 characters")
    if endpoint.service != "v1.DRAPlugin":
        raise Failed(f"it lists {endpoint.service} first; v1.DRAPlugin must come first, or shares lose their IDs")


async def publishes(rig: Rig) -> None:
    """Complete pools of this node, owned by it."""

    async def complete() -> bool:
        found = (await rig.client.list(SLICES, field_selector=f"spec.driver={rig.driver}")).items
        pools = {each.spec.pool.name for each in found}
        newest = {
            name: max(each.spec.pool.generation for each in found if each.spec.pool.name == name) for name in pools
        }
        current = [each for each in found if each.spec.pool.generation == newest[each.spec.pool.name]]
        counts = [
            each.spec.pool.resource_slice_count == sum(o.spec.pool.name == each.spec.pool.name for o in current)
            for each in current
        ]
        return bool(found) and all(counts) and any(each.spec.devices for each in current)

    await rig.until(complete, "ResourceSlices that make complete pools with at least one device")
    for each in (await rig.client.list(SLICES, field_selector=f"spec.driver={rig.driver}")).items:
        if each.spec.node_name == NODE and not any(
            o.kind == "Node" and o.name == NODE for o in each.metadata.owner_references
        ):
            raise Failed(f"ResourceSlice {each.metadata.name} is not owned by its node, and would outlive it")
    await make_class(rig)


async def prepares(rig: Rig) -> None:
    claim = await rig.a_claim()
    devices = await rig.prepared(claim)
    if any(device.requests and device.requests != ("device",) for device in devices):
        raise Failed(f"devices are for requests {[device.requests for device in devices]}, the claim has only device")
    rig.resolve(devices)
    await give_back(rig, claim)


async def prepares_again(rig: Rig) -> None:
    claim = await rig.a_claim()
    first, second = await rig.prepared(claim), await rig.prepared(claim)
    if first != second:
        raise Failed(f"the second answer differs: {second} instead of {first}")
    await give_back(rig, claim)


async def remembers(rig: Rig) -> None:
    claim = await rig.a_claim()
    first = await rig.prepared(claim)
    await rig.restart()
    second = await rig.prepared(claim)
    if first != second:
        raise Failed(f"after a restart the answer differs: {second} instead of {first}")
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
    ghost = ClaimState("default", "no-such-claim", "00000000-0000-0000-0000-000000000000")
    await _refused(rig, ghost, "a claim that does not exist")
    if rig.cdi_files() != before:
        raise Failed("a CDI file was written for a claim that does not exist")


async def refuses_replaced(rig: Rig) -> None:
    claim = await rig.a_claim()
    await _refused(rig, replace(claim, uid="00000000-0000-0000-0000-000000000000"), "a claim whose UID is another")
    await give_back(rig, claim)


async def _refused(rig: Rig, claim: ClaimState, what: str) -> None:
    try:
        answer = (await rig.prepare(claim)).get(claim.uid)
    except DriverError:
        return
    if not isinstance(answer, str):
        raise Failed(f"{what} was prepared: {answer}")


async def serves_many(rig: Rig) -> None:
    claims = await _claims(rig, 3)
    together = await rig.prepare(*claims)
    alone = await asyncio.gather(*(rig.prepared(claim) for claim in claims for _ in range(3)))
    for i, claim in enumerate(claims):
        if any(answer != together.get(claim.uid) for answer in alone[3 * i : 3 * i + 3]):
            raise Failed(f"claim {claim.name}: answers to calls at the same time differ from those to one call")
    names = [
        name
        for answer in together.values()
        if not isinstance(answer, str)
        for each in answer
        for name in each.cdi_device_ids
    ]
    if len(claims) > 1 and len(names) != len(set(names)):
        raise Failed(f"two claims were given the same CDI devices: {sorted(names)}")
    await asyncio.gather(*(rig.unprepare(claim) for claim in claims for _ in range(2)))
    for claim in claims:
        await rig.drop(claim.name)


async def _claims(rig: Rig, most: int) -> list[ClaimState]:
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


async def bad_parameters_fail_alone(rig: Rig) -> None:
    good = await rig.a_claim()
    bad = await rig.a_claim(
        {"apiVersion": "nonsense.example.com/v0", "kind": "Nonsense", "amount": [-1, {"deep": None}]}
    )
    answers = await rig.prepare(bad, good)
    if good.uid not in answers or isinstance(answers[good.uid], str):
        raise Failed(
            f"a claim without parameters failed together with one whose parameters make no sense: {answers.get(good.uid)}"
        )
    if bad.uid not in answers:
        raise Failed("the claim with senseless parameters has no answer")
    await give_back(rig, good)
    await give_back(rig, bad)


async def gives_back(rig: Rig) -> None:
    claim = await rig.a_claim()
    await rig.prepared(claim)
    await rig.unprepare(claim)
    if left := [name for name in rig.cdi_files() if claim.uid in name]:
        raise Failed(f"CDI files stay behind: {left}")
    await rig.unprepare(claim)
    await rig.unprepare(ClaimState("default", "no-such-claim", "00000000-0000-0000-0000-000000000000"))
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
        raise Failed(
            f"a restart without changed devices rewrote slices: {sorted(set(after.items()) - set(before.items()))}"
        )


async def ends(rig: Rig) -> None:
    code = await rig.process.terminate(min(rig.timeout_s, 15.0))
    if code is None:
        raise Failed("it does not end after SIGTERM")
    if code != 0:
        raise Failed(f"it ends with exit code {code} after SIGTERM: {rig.process.last_words()}")
    if left := [path.name for path in (rig.root / "plugins_registry").glob("*.sock")]:
        raise Failed(f"registration sockets stay behind: {left}")
    if not await rig.revisions():
        raise Failed("it deleted its ResourceSlices; a driver that restarts must leave them to the kubelet")


async def give_back(rig: Rig, claim: ClaimState) -> None:
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
    ("serves several claims, in one call and at the same time", serves_many),
    ("lets senseless parameters fail alone", bad_parameters_fail_alone),
    ("gives a claim back, also twice, also an unknown one", gives_back),
    ("gives a claim back whose object is gone", gives_back_without_claim),
    ("writes no slice when nothing changed", writes_little),
    ("ends on SIGTERM and takes its sockets along", ends),
)


async def check_driver(target: Target, timeout_s: float) -> AsyncIterator[Verdict]:
    """Every check in order; when the driver cannot even register or publish, the rest is left out."""
    async with rig_for(target, timeout_s) as rig:
        for name, check in CHECKS:
            verdict = await _verdict(rig, name, check)
            yield verdict
            if verdict.problem and check in (registers, publishes):
                return


async def _verdict(rig: Rig, name: str, check: Check) -> Verdict:
    try:
        await check(rig)
    except (Failed, DriverError) as error:
        return Verdict(name, problem=str(error))
    except Skipped as reason:
        return Verdict(name, skipped=str(reason))
    finally:
        await rig.clear()
    return Verdict(name)
