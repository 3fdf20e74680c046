"""What was probably meant by the name of a claim or of a claim template that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dray.api.core import Pod
from dray.explain.cluster_objects import ClusterObjects

_CLAIM, _TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"
_KINDS = {_CLAIM: "claim", _TEMPLATE: "claim template"}


@dataclass(frozen=True, slots=True)
class Meant:
    """`hint` goes on from the sentence that names what is missing; `fix` is what to do. Both are empty where nothing is known."""

    hint: str = ""
    fix: str = ""


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


def similar_name(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


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
