"""`resourceslices/NAME/status`: which devices of a slice are reserved, and by whom they are used. Computed when it is read; nobody writes it.

KEP-4381 sketches it as a later extension, so that conflicts and devices of deleted claims can be seen at the slice. The guard keeps the
holders of each device anyway; the claims say which pods use them.
"""

from __future__ import annotations

from typing import Any

from dray.api.dra.pools import DeviceID
from dray.api.quantity import Quantity
from dray.api.scheme import by_kind
from dray.apiserver.core import Core
from dray.apiserver.guard.device_records import ClaimHolder, device_key, device_record

Document = dict[str, Any]
CLAIMS = by_kind("ResourceClaim")


async def with_status(core: Core, published: Document) -> Document:
    """The slice with `status.devices`: those that somebody holds, in the slice's order."""
    spec = published["spec"]
    prefix = device_key(DeviceID(spec["driver"], spec["pool"]["name"], ""))
    entries = (await core.store.list(prefix)).entries
    held = {entry.key.removeprefix(prefix): device_record(entry.value).holders for entry in entries}
    devices = [
        {"name": device["name"], "claims": [_claim(core, holder) for holder in held[device["name"]]]}
        for device in spec.get("devices") or ()
        if held.get(device["name"])
    ]
    return {**published, "status": {"devices": devices}}


def _claim(core: Core, holder: ClaimHolder) -> Document:
    """Who holds a device; `inUseBy` are the users of the claim, and a claim that is gone has none."""
    found: Document = {"namespace": holder.namespace, "name": holder.name, "uid": holder.uid}
    if holder.share_id:
        found["shareID"] = holder.share_id
    if holder.capacity:
        found["consumedCapacity"] = {name: str(Quantity(amount)) for name, amount in holder.capacity.items()}
    stored = core.cache(CLAIMS).get(holder.namespace, holder.name)
    claim = stored.document() if stored is not None else {}
    if claim.get("metadata", {}).get("uid") == holder.uid:
        found["inUseBy"] = (claim.get("status") or {}).get("reservedFor") or []
    return found
