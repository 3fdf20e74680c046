"""Lists what the tools that look at a cluster read: `dray explain`, `doctor`, `devices`, `simulate` and `dray.testing`."""

from __future__ import annotations

from collections.abc import Collection
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


async def list_cluster(client: Client, *, with_events: bool = False, kinds: Collection[str] = ()) -> list[Any]:
    """The objects of a live cluster, one kind after the other; with quotas and events, which may be many, on demand.

    With `kinds` (such as `ResourceSlice`), only objects of these.
    """
    found: list[Any] = []
    for kind in (*_NEEDED, *_OPTIONAL, *((QUOTAS, EVENTS) if with_events else ())):
        if kinds and kind.name not in kinds:
            continue
        try:
            found += (await client.list(kind)).items
        except ApiError as problem:
            _pass_over(kind, problem)
    return found


async def list_cluster_documents(client: Client) -> tuple[list[dict[str, Any]], list[str]]:
    """The same with quotas, events and every field; and what is missing, since this user may not list it."""
    found: list[dict[str, Any]] = []
    missing: list[str] = []
    for kind in (*_NEEDED, *_OPTIONAL, QUOTAS, EVENTS):
        said = {"apiVersion": kind.api_version, "kind": kind.name}
        try:
            found += ({**said, **item} for item in await client.list_documents(kind))
        except ApiError as problem:
            _pass_over(kind, problem)
            missing.append(f"{kind.plural}: {problem}")
    return found, missing


def _pass_over(kind: Kind[Any], problem: ApiError) -> None:
    """Raises the problem unless the cluster can be looked at without that kind."""
    if kind in _NEEDED or not (problem.is_not_found or problem.code == 403):
        raise problem
