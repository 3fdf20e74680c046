"""Asks the server which kinds of objects it can list and delete, for garbage collection and namespace deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from dray.api import scheme
from dray.api.projections import DiscoveredGroupList, DiscoveredResource, DiscoveredResourceList
from dray.client import (
    CLAIMS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICE_ACCOUNTS,
    SLICES,
    STATEFUL_SETS,
    TEMPLATES,
    ApiError,
    Client,
    Kind,
    metadata_of,
)

# Kinds that other controllers watch whole anyway: one copy serves both.
_TYPED: tuple[Kind[Any], ...] = (
    *(CLAIMS, DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS),
    *(REPLICATION_CONTROLLERS, SERVICE_ACCOUNTS, SLICES, STATEFUL_SETS, TEMPLATES, DISRUPTION_BUDGETS),
)
_NEEDED_VERBS = {"delete", "list", "watch"}
# Events come and go by the thousand, own nothing, and expire by themselves.
_IGNORED = {("", "events"), ("events.k8s.io", "events")}


async def discover(client: Client) -> list[Kind[Any]]:
    """The kinds this server serves, each once, in its preferred version. Ask again to learn of new ones."""
    answer = await client.raw("GET", "/apis")
    groups = msgspec.json.decode(answer.body, type=DiscoveredGroupList).groups or []
    # A kind may be served in another than the group's preferred version only: look at all, the preferred one first.
    paths = [("", "v1", "/api/v1")]
    for group in groups:
        preferred = group.preferred_version.version
        for version in sorted(group.versions or (), key=lambda item: item.version != preferred):
            paths.append((group.name, version.version, f"/apis/{version.group_version}"))
    lists = await asyncio.gather(*(_resources(client, path) for _, _, path in paths))
    found: dict[tuple[str, str], Kind[Any]] = {}
    for (group_name, version_name, _), resources in zip(paths, lists, strict=True):
        for resource in resources:
            key = (group_name, resource.name)
            if key not in found and key not in _IGNORED:
                found[key] = _kind(group_name, version_name, resource)
    return list(found.values())


async def _resources(client: Client, path: str) -> Iterable[DiscoveredResource]:
    try:
        answer = await client.raw("GET", path)
    except ApiError:
        return ()  # An aggregated API whose server is away: its objects are left alone.
    resources = msgspec.json.decode(answer.body, type=DiscoveredResourceList).resources or []
    return [item for item in resources if "/" not in item.name and set(item.verbs or ()) >= _NEEDED_VERBS]


def _kind(group: str, version: str, resource: DiscoveredResource) -> Kind[Any]:
    for kind in _TYPED:
        if (kind.row.group, kind.row.plural, kind.version) == (group, resource.name, version):
            return kind
    row = scheme.Resource(group, resource.kind, resource.name, resource.namespaced, (scheme.Version(version),))
    return metadata_of(row)
