"""The status of workloads: which pods count as available, and writing only the fields that changed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.times import parse_time
from dray.client import ApiError, Client, Kind


@dataclass(frozen=True, slots=True)
class Availability:
    """`next_s` is when the next ready pod becomes available, if one is still waited for."""

    ready: int
    available: int
    next_s: float | None


def availability(pods: Iterable[Pod], min_ready_s: int, now: datetime) -> Availability:
    waits = [wait for wait in (_wait_s(pod, min_ready_s, now) for pod in pods) if wait is not None]
    ahead = [wait for wait in waits if wait > 0]
    return Availability(
        len(waits), len(waits) - len(ahead), min((wait for wait in ahead if wait < math.inf), default=None)
    )


def _wait_s(pod: Pod, min_ready_s: int, now: datetime) -> float | None:
    """How long until the pod is available; None if it is not even ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            if not min_ready_s:
                return 0.0
            since = condition.last_transition_time
            # Without a time there is nothing to count from, and nothing to wait for.
            return max(0.0, min_ready_s - (now - parse_time(since)).total_seconds()) if since else math.inf
    return None


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
