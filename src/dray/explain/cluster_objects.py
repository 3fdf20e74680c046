"""The objects of a cluster at one moment, by kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dray.api.core import Event, Namespace, Node, Pod, PriorityClass, ResourceQuota
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice


@dataclass(frozen=True)
class ClusterObjects:
    """In the order in which they were found. Kinds that nobody handed in are empty."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    taint_rules: tuple[DeviceTaintRule, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    events: tuple[Event, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[Any]) -> ClusterObjects:
        """Ignores objects of other kinds."""
        by_field: dict[str, list[Any]] = {}
        for obj in objects:
            name = _FIELDS.get(type(obj))
            if name is not None:
                by_field.setdefault(name, []).append(obj)
        return cls(**{name: tuple(found) for name, found in by_field.items()})

    def objects(self) -> Iterable[Any]:
        for field in fields(self):
            yield from getattr(self, field.name)

    @cached_property
    def pods_by_name(self) -> dict[tuple[str, str], Pod]:
        return {(pod.metadata.namespace, pod.metadata.name): pod for pod in self.pods}

    @cached_property
    def claims_by_name(self) -> dict[tuple[str, str], ResourceClaim]:
        return {(claim.metadata.namespace, claim.metadata.name): claim for claim in self.claims}

    @cached_property
    def templates_by_name(self) -> dict[tuple[str, str], ResourceClaimTemplate]:
        return {(each.metadata.namespace, each.metadata.name): each for each in self.templates}

    @cached_property
    def events_by_object(self) -> dict[tuple[str, str, str], list[Event]]:
        """By kind, namespace and name of what they are about."""
        found: dict[tuple[str, str, str], list[Event]] = {}
        for event in self.events:
            about = event.involved_object
            found.setdefault((about.kind, about.namespace, about.name), []).append(event)
        return found

    @cached_property
    def nodes_by_name(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.nodes}


_FIELDS: dict[type, str] = {
    Node: "nodes",
    Pod: "pods",
    ResourceClaim: "claims",
    ResourceClaimTemplate: "templates",
    ResourceSlice: "slices",
    DeviceClass: "classes",
    DeviceTaintRule: "taint_rules",
    Namespace: "namespaces",
    PriorityClass: "priority_classes",
    ResourceQuota: "quotas",
    Event: "events",
}
