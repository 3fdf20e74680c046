"""Writing a workload's status: only what changed, and zeros said out loud."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from dray.api.meta import ObjectMeta
from dray.client import ApiError, Client, Kind


class HasStatus(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Any: ...


T = TypeVar("T", bound=HasStatus)


async def write_status(client: Client, kind: Kind[T], obj: T, status: msgspec.Struct) -> None:
    """A merge patch of the fields that differ; a field back at its default is removed. Gone meanwhile is fine."""
    old, new = msgspec.to_builtins(obj.status), msgspec.to_builtins(status)
    patch = {field: new.get(field) for field in old.keys() | new.keys() if old.get(field) != new.get(field)}
    if "replicas" in patch and patch["replicas"] is None:
        patch["replicas"] = 0
    if not patch:
        return
    try:
        await client.patch(
            *(kind, obj.metadata.name, {"status": patch}, obj.metadata.namespace),
            subresource="status",
            uid=obj.metadata.uid,
        )
    except ApiError as error:
        if not error.is_not_found:
            raise
