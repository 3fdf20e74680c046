"""The objects of a cluster at one moment, by kind."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
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


# --- what was probably meant by the name of a claim or of a claim template that does not exist

_CLAIM, _TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"
_KINDS = {_CLAIM: "claim", _TEMPLATE: "claim template"}


@dataclass(frozen=True, slots=True)
class Meant:
    """`hint` goes on from the sentence that names what is missing; `fix` is what to do. Both are empty where nothing is known."""

    hint: str = ""
    fix: str = ""


# How much of two names is the same at least, from 0 to 1, where one may be a misspelling of the other: with less, one is `none` and `lonely`.
ALIKE = 0.7


def meant_by_pod(world: ClusterObjects, pod: Pod) -> Meant:
    """Of the first claim that the pod names and that does not exist."""
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name
        if name and (pod.metadata.namespace, name) not in world.claims_by_name:
            return meant_by_claim(world, pod.metadata.namespace, name)
    return Meant()


def meant_by_claim(world: ClusterObjects, namespace: str, name: str) -> Meant:
    return _meant(_CLAIM, namespace, name, world.claims_by_name, world.templates_by_name)


def meant_by_template(world: ClusterObjects, namespace: str, name: str) -> Meant:
    return _meant(_TEMPLATE, namespace, name, world.templates_by_name, world.claims_by_name)


def similar_name(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant."""
    near = difflib.get_close_matches(name, sorted(each for each in known if each), n=3, cutoff=ALIKE)
    meant = next((each for each in near if _is_alike(name, each)), "")
    return f"; did you mean {meant}?" if meant else ""


def _is_alike(name: str, other: str) -> bool:
    """A domain that both have in common makes them no more alike."""
    domain, _, bare = name.rpartition("/")
    other_domain, _, other_bare = other.rpartition("/")
    if domain == other_domain:
        name, other = bare, other_bare
    return difflib.SequenceMatcher(None, name, other).ratio() >= ALIKE


def _meant(
    field: str,
    namespace: str,
    name: str,
    alike: Collection[tuple[str, str]],
    others: Collection[tuple[str, str]],
) -> Meant:
    """`alike` are the objects of the kind that the field names, `others` those of the other kind, by namespace and name."""
    other = _TEMPLATE if field == _CLAIM else _CLAIM
    if (namespace, name) in others:
        return Meant(
            f"; {name} is a {_KINDS[other]}",
            f"delete the pod, and create it again with {other}: {name} instead of {field}: {name}",
        )
    similar = similar_name(name, [found for place, found in alike if place == namespace])
    if similar:
        return Meant(similar)
    places = _namespaces_with(name, alike)
    if not places:
        return Meant()
    return Meant(
        f"; there is one in namespace {places[0]}, and a pod can use those of its own namespace only",
        f"create {_KINDS[field]} {name} in namespace {namespace}, or the pod in namespace {places[0]}",
    )


def _namespaces_with(name: str, objects: Iterable[tuple[str, str]]) -> list[str]:
    return sorted(namespace for namespace, found in objects if found == name)
