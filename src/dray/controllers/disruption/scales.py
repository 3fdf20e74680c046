"""How many pods the owner of a pod wants: from its own object where we watch it, else from its scale subresource."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.meta import OwnerReference
from dray.api.names import subdomain_problems
from dray.api.projections import DiscoveredResourceList
from dray.api.safe_get import mapping, text
from dray.client import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ApiError,
    Client,
    Informer,
)
from dray.controllers.context import ControllerContext
from dray.controllers.disruption.numbers import NotCountable

OWN_GROUPS = ("apps", "extensions")
# How long an answer about what the server serves is used.
REMEMBERED_S, MOST_REMEMBERED = 60.0, 100


@dataclass(frozen=True, slots=True)
class Scale:
    """`uid` is the object whose replicas these are: ReplicaSets of one Deployment have the same."""

    uid: str
    replicas: int


class OwnerScales:
    def __init__(self, context: ControllerContext, client: Client) -> None:
        self._client = client
        self._clock = context.clock
        informers = context.informers
        self.replica_sets = informers.of(REPLICA_SETS)
        self.deployments = informers.of(DEPLOYMENTS)
        self.stateful_sets = informers.of(STATEFUL_SETS)
        self.replication_controllers = informers.of(REPLICATION_CONTROLLERS)
        self._resources: OrderedDict[str, tuple[float, dict[str, list[str]]]] = OrderedDict()

    async def of(self, owner: OwnerReference, namespace: str) -> Scale | None:
        """None for an owner that is gone; raises `NotCountable` for one that has no scale."""
        return self._watched(owner, namespace) or await self._by_subresource(owner, namespace)

    def _watched(self, owner: OwnerReference, namespace: str) -> Scale | None:
        group = owner.api_version.rpartition("/")[0]
        if owner.kind == "ReplicationController" and not group:
            return _scale(self.replication_controllers, owner, namespace)
        if owner.kind == "StatefulSet" and group == "apps":
            return _scale(self.stateful_sets, owner, namespace)
        if owner.kind == "ReplicaSet" and group in OWN_GROUPS:
            return self._of_replica_set(owner, namespace)
        if owner.kind == "Deployment" and group == "apps":
            # No pod is a Deployment's own, but any pod may say so: thousands of them cost no request each.
            return _scale(self.deployments, owner, namespace)
        return None

    def _of_replica_set(self, owner: OwnerReference, namespace: str) -> Scale | None:
        found = self.replica_sets.get(f"{namespace}/{owner.name}")
        if found is None or found.metadata.uid != owner.uid:
            return None
        above = next((each for each in found.metadata.owner_references if each.controller), None)
        if above is None or above.kind != "Deployment":
            return _scale(self.replica_sets, owner, namespace)
        if above.api_version.rpartition("/")[0] not in OWN_GROUPS:
            return None
        return _scale(self.deployments, above, namespace)

    async def _by_subresource(self, owner: OwnerReference, namespace: str) -> Scale | None:
        group = owner.api_version.rpartition("/")[0]
        served = await self._served(owner.api_version)
        plural = next((name for name in served.get(owner.kind, ()) if "/" not in name), None)
        if plural is None:
            raise NotCountable(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
        if f"{plural}/scale" not in served.get("Scale", ()):
            qualified = f"{plural}.{group}" if group else plural
            raise NotCountable(f"{qualified} does not implement the scale subresource")
        if subdomain_problems(owner.name):
            return None
        path = f"{_path(owner.api_version)}/namespaces/{namespace}/{plural}/{owner.name}/scale"
        try:
            scale: Any = msgspec.json.decode((await self._client.raw("GET", path)).body)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        replicas = mapping(scale, "spec").get("replicas")
        if text(mapping(scale, "metadata"), "uid") != owner.uid:
            return None
        return Scale(owner.uid, replicas if isinstance(replicas, int) else 0)

    async def _served(self, api_version: str) -> dict[str, list[str]]:
        """The resources of a group and version by kind; those of `Scale` are subresources."""
        now = self._clock.monotonic()
        at, known = self._resources.get(api_version, (now, None))
        if known is not None and now - at < REMEMBERED_S:
            return known
        found: dict[str, list[str]] = {}
        if not any(map(subdomain_problems, api_version.split("/"))) and api_version.count("/") <= 1:
            try:
                answer = await self._client.raw("GET", _path(api_version))
            except ApiError as error:
                if not error.is_not_found:
                    raise
            else:
                for each in msgspec.json.decode(answer.body, type=DiscoveredResourceList).resources or ():
                    found.setdefault(each.kind, []).append(each.name)
        self._resources[api_version] = (now, found)
        self._resources.move_to_end(api_version)
        if len(self._resources) > MOST_REMEMBERED:
            self._resources.popitem(last=False)
        return found


def _path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _scale(informer: Informer[Any], owner: OwnerReference, namespace: str) -> Scale | None:
    found = informer.get(f"{namespace}/{owner.name}")
    if found is None or found.metadata.uid != owner.uid:
        return None
    replicas = found.spec.replicas
    return Scale(owner.uid, 1 if replicas is None else replicas)
