"""Checks of claims: who owns them, who uses them, what they hold."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from dray.api.dra.consumption import allocation_results
from dray.api.dra.pod_phase import is_finished
from dray.api.dra.pools import device_id, published_devices
from dray.api.resource import CLAIM_FINALIZER, DeviceRequest, ResourceClaim
from dray.explain.doctor.finding import (
    CheckedCluster,
    DoctorFinding,
    error,
    kubectl_name,
    named,
    warning,
)

# Classes that are named where another does not exist.
MOST_NAMED = 5


def stuck_finalizers(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Being deleted, used by nobody, and still there."""
    for claim in e.world.claims:
        metadata = claim.metadata
        if metadata.deletion_timestamp is None or not metadata.finalizers:
            continue
        # Who is no pod may be alive as well: it is not for us to say.
        alive = [user for user in claim.status.reserved_for if user.resource != "pods" or user.uid in e.pods_by_uid]
        if alive:
            continue
        foreign = [name for name in metadata.finalizers if name != CLAIM_FINALIZER]
        held_by = ", ".join(metadata.finalizers)
        if foreign:
            fix = f"ask the owner of {', '.join(foreign)}; if it is gone: kubectl patch {kubectl_name(claim)}"
            fix += ' --type=merge -p \'{"metadata":{"finalizers":null}}\''
        else:
            fix = "see that the claim controller runs; it removes its own finalizer once nothing uses the claim"
        yield error("stuck-finalizer", named(claim), f"is being deleted, but {held_by} keeps it", fix)


def orphan_claims(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for claim in e.world.claims:
        for owner in claim.metadata.owner_references:
            if owner.kind != "Pod" or not owner.controller or owner.uid in e.pods_by_uid:
                continue
            if claim.metadata.deletion_timestamp is None:
                message = f"was made for pod {owner.name}, which is gone"
                yield error("orphan-claim", named(claim), message, f"kubectl delete {kubectl_name(claim)}")


def stale_reservations(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for claim in e.world.claims:
        stale = list(_stale_users(e, claim))
        if stale:
            more = f", and for {len(stale) - 1} more that are gone or have ended" if len(stale) > 1 else ""
            yield error(
                "stale-reservation",
                named(claim),
                f"is reserved for {stale[0]}{more}",
                "see that the claim controller runs; it removes such entries from status.reservedFor",
            )


def _stale_users(e: CheckedCluster, claim: ResourceClaim) -> Iterator[str]:
    for user in claim.status.reserved_for:
        pod = e.pods_by_uid.get(user.uid)
        if user.resource == "pods" and pod is None:
            yield f"pod {user.name} ({user.uid}), which is gone"
        elif user.resource == "pods" and pod is not None and is_finished(pod):
            yield f"pod {user.name}, which has ended ({pod.status.phase})"


def idle_allocations(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for claim in e.world.claims:
        if claim.status.allocation is None or claim.status.reserved_for or claim.metadata.deletion_timestamp:
            continue
        if not e.users_of(claim):
            count = len(claim.status.allocation.devices.results)
            yield warning(
                "idle-allocation",
                named(claim),
                f"holds {count} device{'s' if count != 1 else ''}, but no pod uses it",
                f"delete it if nobody needs it: kubectl delete {kubectl_name(claim)}",
            )


def double_allocations(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for device in e.holders.devices():
        whole = [holder for holder in e.holders.of(device) if not holder.is_share]
        if len(whole) > 1:
            yield error(
                "double-allocation",
                f"device {device}",
                f"is held by {' and by '.join(holder.claim for holder in whole)}",
                "delete the pods of all but one of these claims; look for a second scheduler or a manual status change",
            )


def gone_devices(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """A claim whose device is published no more: its pods cannot be prepared again."""
    published = {device for device, _ in published_devices(e.world.slices)}
    if not e.world.slices:
        return
    for claim in e.world.claims:
        for row in allocation_results(claim):
            if device_id(row) not in published:
                yield warning(
                    "gone-device",
                    named(claim),
                    f"holds {device_id(row)}, which no slice has any more",
                    "see whether the driver still runs there; restart the pods that use the claim",
                )


def unready_devices(e: CheckedCluster) -> Iterator[DoctorFinding]:
    for claim in e.world.claims:
        for device in claim.status.devices:
            for condition in device.conditions:
                if condition.type == "Ready" and condition.status == "False":
                    said = condition.message or condition.reason or "no reason given"
                    yield warning(
                        "device-not-ready",
                        named(claim),
                        f"device {device.driver}/{device.pool}/{device.device} is not ready: {said}",
                        f"see the log of driver {device.driver}",
                    )


def missing_classes(e: CheckedCluster) -> Iterator[DoctorFinding]:
    known = {each.metadata.name for each in e.world.classes}
    for claim in e.world.claims:
        if claim.status.allocation is None:
            yield from _missing(claim, claim.spec.devices.requests, known)
    for template in e.world.templates:
        yield from _missing(template, template.spec.spec.devices.requests, known)


def _missing(holder: object, requests: tuple[DeviceRequest, ...], known: set[str]) -> Iterator[DoctorFinding]:
    for request in requests:
        wanted = [request.exactly.device_class_name] if request.exactly is not None else []
        wanted += [each.device_class_name for each in request.first_available]
        for name in wanted:
            if name not in known:
                yield error(
                    "missing-class",
                    named(holder),
                    f"request {request.name} names class {name}, which does not exist",
                    f"create the class, or use one of: {_most_alike(name, known)}",
                )


def _most_alike(name: str, known: set[str]) -> str:
    """Some of the known names, those first that are spelled most like this one."""
    named = difflib.get_close_matches(name, sorted(known), n=MOST_NAMED, cutoff=0.0) if known else ["none"]
    more = len(known) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def lost_cdi_files(e: CheckedCluster) -> Iterator[DoctorFinding]:
    """Only where the caller has looked into a node's CDI directory."""
    if e.cdi_names is None:
        return
    for claim in e.world.claims:
        users = [pod for pod in e.users_of(claim) if pod.status.phase == "Running"]
        if e.cdi_node:
            users = [pod for pod in users if pod.spec.node_name == e.cdi_node]
        for driver in _drivers(claim) if users else ():
            name = f"{driver}-{claim.metadata.uid}.json"
            if name not in e.cdi_names:
                yield error(
                    "lost-cdi-file",
                    named(claim),
                    f"pod {users[0].metadata.name} runs with it, but {name} is not in the CDI directory",
                    f"restart driver {driver}; it writes the files of prepared claims again",
                )
    uids = {claim.metadata.uid for claim in e.world.claims}
    drivers = {each.spec.driver for each in e.world.slices}
    for name in sorted(e.cdi_names):
        owner = next((driver for driver in drivers if name.startswith(f"{driver}-")), "")
        uid = name.removeprefix(f"{owner}-").removesuffix(".json")
        if owner and uid not in uids:
            yield warning("stale-cdi-file", f"file {name}", "belongs to no claim any more", "remove the file")


def _drivers(claim: ResourceClaim) -> list[str]:
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    return list(dict.fromkeys(row.driver for row in results))


CLAIM_CHECKS = (
    stuck_finalizers,
    orphan_claims,
    stale_reservations,
    idle_allocations,
    double_allocations,
    gone_devices,
    unready_devices,
    missing_classes,
    lost_cdi_files,
)
