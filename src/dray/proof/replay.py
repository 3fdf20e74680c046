"""Rebuilds the cluster revision by revision; every rule looks at every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from dray.api import codec
from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.client import CLAIMS, NODES, PODS, SLICES
from dray.proof.history import History, Listed, ObjectKey, SeenEvent, key_of, revision_of
from dray.proof.violation import Violation

Object = Pod | Node | ResourceClaim | ResourceSlice
TYPES: dict[str, type[Pod] | type[Node] | type[ResourceClaim] | type[ResourceSlice]] = {
    PODS.plural: Pod,
    NODES.plural: Node,
    CLAIMS.plural: ResourceClaim,
    SLICES.plural: ResourceSlice,
}


class ProofRule(Protocol):
    """One promise. `world` is the state after the change from `old` to `new`."""

    def changed(
        self, world: ReplayedCluster, revision: int, key: ObjectKey, old: Object | None, new: Object | None
    ) -> Iterator[Violation]: ...


class ReplayedCluster:
    """Objects by `namespace/name` (or name), and the links between pods and claims."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.nodes: dict[str, Node] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.pods_by_uid: dict[str, Pod] = {}

    def put(self, key: ObjectKey, new: Object | None) -> Object | None:
        """Enters or removes an object and returns the one before."""
        name = f"{key.namespace}/{key.name}" if key.namespace else key.name
        objects = self._objects(key.resource)
        old = objects.pop(name, None)
        if new is not None:
            objects[name] = new
        if isinstance(old, Pod) and self.pods_by_uid.get(old.metadata.uid) is old:
            del self.pods_by_uid[old.metadata.uid]
        if isinstance(new, Pod):
            self.pods_by_uid[new.metadata.uid] = new
        return old

    def keys(self, resource: str) -> list[str]:
        return list(self._objects(resource))

    def _objects(self, resource: str) -> dict[str, Object]:
        by_resource: dict[str, dict[str, Object]] = {
            PODS.plural: self.pods,  # type: ignore[dict-item]
            CLAIMS.plural: self.claims,  # type: ignore[dict-item]
            NODES.plural: self.nodes,  # type: ignore[dict-item]
            SLICES.plural: self.slices,  # type: ignore[dict-item]
        }
        return by_resource[resource]


class Replay:
    """Takes changes in the order of their revisions and collects violations."""

    def __init__(self, rules: list[ProofRule]) -> None:
        self.world = ReplayedCluster()
        self.changes = 0
        self._rules = rules

    def apply(self, event: SeenEvent) -> list[Violation]:
        kind = TYPES.get(event.key.resource)
        if kind is None or event.type == "BOOKMARK":
            return []
        new = None if event.type == "DELETED" else codec.to_object(event.document, kind)
        return self._change(event.revision, event.key, new)

    def start_from(self, listed: Listed) -> list[Violation]:
        """Applies a list: objects that are not in it are gone.

        Lists of two kinds have different revisions, so a pod may be newer than its claim: call `examine` later.
        """
        kind = TYPES.get(listed.resource)
        if kind is None:
            return []
        found = {key_of(listed.resource, each): each for each in listed.documents}
        violations: list[Violation] = []
        for name in self.world.keys(listed.resource):
            key = ObjectKey.at(listed.resource, name)
            if key not in found:
                violations += self._change(listed.revision, key, None)
        for key, document in found.items():
            violations += self._change(revision_of(document), key, codec.to_object(document, kind))
        return without_use(violations)

    def _change(self, revision: int, key: ObjectKey, new: Object | None) -> list[Violation]:
        self.changes += 1
        old = self.world.put(key, new)
        return [violation for rule in self._rules for violation in rule.changed(self.world, revision, key, old, new)]


def without_use(violations: list[Violation]) -> list[Violation]:
    """While pods and claims are not in step, a pod may be newer than its claim."""
    return [each for each in violations if each.rule != "running-without-claim"]


def in_order(history: History) -> Iterator[Listed | SeenEvent]:
    """Merges all streams: the first list of each kind, then every change once, by revision."""
    first: dict[str, Listed] = {}
    events: dict[tuple[int, ObjectKey], SeenEvent] = {}
    for record in history.records:
        if isinstance(record, Listed) and record.resource in TYPES:
            first.setdefault(record.resource, record)
        elif isinstance(record, SeenEvent) and record.type != "BOOKMARK" and record.key.resource in TYPES:
            events.setdefault((record.revision, record.key), record)
    # Kinds that others refer to come first.
    for resource in (SLICES.plural, NODES.plural, CLAIMS.plural, PODS.plural):
        if resource in first:
            yield first[resource]
    for (revision, key), event in sorted(events.items()):
        if key.resource not in first or revision > first[key.resource].revision:
            yield event
