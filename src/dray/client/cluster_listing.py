"""Lists what the tools that look at a cluster read: `dray explain`, `doctor`, `devices`, `simulate` and `dray.testing`."""

from __future__ import annotations

from typing import Any

from dray.client.errors import ApiError
from dray.client.kinds import (
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Kind,
)
from dray.client.rest import Client

_NEEDED: tuple[Kind[Any], ...] = (NODES, PODS, CLAIMS, SLICES, DEVICE_CLASSES)
# A cluster may not serve these, or not to this user; most questions can be answered without them.
_OPTIONAL: tuple[Kind[Any], ...] = (TEMPLATES, TAINT_RULES, NAMESPACES, PRIORITY_CLASSES)


async def list_cluster(client: Client, *, with_events: bool = False) -> list[Any]:
    """The objects of a live cluster, one kind after the other; with quotas and events, which may be many, on demand."""
    found: list[Any] = []
    for kind in (*_NEEDED, *_OPTIONAL, *((QUOTAS, EVENTS) if with_events else ())):
        try:
            found += (await client.list(kind)).items
        except ApiError as problem:
            if kind in _NEEDED or not (problem.is_not_found or problem.code == 403):
                raise
    return found
