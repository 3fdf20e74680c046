"""Prepares pods as admission and controllers do before the scheduler sees them: priorities, names, claims from templates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from dray.api.core import Pod, PriorityClass
from dray.api.dra.claim_users import is_owned_by
from dray.api.dra.pod_claims import claim_from_template, claim_names, recorded_claims, with_recorded_claims
from dray.api.dra.pod_phase import is_finished
from dray.api.reasons import Reason
from dray.api.resource import POD_CLAIM_NAME_ANNOTATION, ResourceClaim
from dray.explain.cluster_objects import ClusterObjects
from dray.features import FeatureGates

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass
class PreparedPods:
    """`objects` are there already; `waiting` are pods without a node, oldest first, their claims among the objects.

    `problems` says, by pod UID, why a pod's claims could not be made.
    """

    objects: list[Any] = field(default_factory=list)
    waiting: list[Pod] = field(default_factory=list)
    problems: dict[str, Reason] = field(default_factory=dict)

    def in_queue_order(self) -> list[Pod]:
        return sorted(self.waiting, key=lambda pod: -(pod.spec.priority or 0))


def every_pod(pod: Pod) -> bool:
    return True


def prepare(world: ClusterObjects, gates: FeatureGates, serves: Callable[[Pod], bool] = every_pod) -> PreparedPods:
    """Pods that `serves` leaves out stay as they are, so that one can see what the controllers have left undone."""
    prepared = PreparedPods()
    prepared.objects += [
        *world.namespaces,
        *world.classes,
        *world.slices,
        *world.taint_rules,
        *world.nodes,
        *(replace(claim, metadata=_with_uid(claim.metadata, "claim")) for claim in world.claims),
    ]
    makers = _ClaimMaker(world, gates)
    makes_claims = gates.enabled("DynamicResourceAllocation")
    priorities = _Priorities(world.priority_classes)
    waiting = []
    for pod in world.pods:
        pod = replace(pod, metadata=_with_uid(pod.metadata, "pod"))
        if pod.spec.node_name or is_finished(pod):
            prepared.objects.append(pod)
        elif pod.metadata.deletion_timestamp is None:
            waiting.append(priorities.given_to(pod))
    # Equal times keep the order in which the pods were found.
    waiting.sort(key=lambda pod: pod.metadata.creation_timestamp or "")
    for pod in waiting:
        served, made, problem = makers.serve(pod) if makes_claims and serves(pod) else (pod, [], None)
        prepared.objects += made
        prepared.waiting.append(served)
        if problem:
            prepared.problems[pod.metadata.uid] = problem
    return prepared


def pods_with_claims(world: ClusterObjects, gates: FeatureGates) -> list[tuple[Pod, tuple[ResourceClaim, ...]]]:
    """All pods of the world, running and waiting, each with its claims: the mix that they make up."""
    prepared = prepare(world, gates)
    claims = {
        (each.metadata.namespace, each.metadata.name): each
        for each in prepared.objects
        if isinstance(each, ResourceClaim)
    }
    pods = [*[each for each in prepared.objects if isinstance(each, Pod)], *prepared.waiting]
    found = []
    for pod in pods:
        named = [claims.get((pod.metadata.namespace, name)) for name in claim_names(pod)]
        found.append((pod, tuple([claim for claim in named if claim is not None])))
    return found


def _with_uid(metadata: Any, kind: str) -> Any:
    return metadata if metadata.uid else replace(metadata, uid=f"{kind}-{metadata.namespace}-{metadata.name}")


class _Priorities:
    def __init__(self, classes: tuple[PriorityClass, ...]) -> None:
        self._by_name = {each.metadata.name: each for each in classes}
        self._default = max((each.value for each in classes if each.global_default), default=None)

    def given_to(self, pod: Pod) -> Pod:
        """What admission would have filled in; a pod from a live cluster has it already."""
        if pod.spec.priority is not None:
            return pod
        name = pod.spec.priority_class_name
        known = self._by_name.get(name)
        value = known.value if known is not None else SYSTEM_PRIORITIES.get(name)
        if not name:
            value = self._default
        if value is None:
            return pod
        policy = pod.spec.preemption_policy or (known.preemption_policy if known is not None else None)
        return replace(pod, spec=replace(pod.spec, priority=value, preemption_policy=policy))


class _ClaimMaker:
    """Claims as the claim controller would make them, with names that are the same every time."""

    def __init__(self, world: ClusterObjects, gates: FeatureGates) -> None:
        self._world = world
        self._gates = gates
        self._names = set(world.claims_by_name)
        self._made_for: dict[str, list[ResourceClaim]] = {}
        for claim in world.claims:
            for owner in claim.metadata.owner_references:
                if owner.controller:
                    self._made_for.setdefault(owner.uid, []).append(claim)

    def serve(self, pod: Pod) -> tuple[Pod, list[ResourceClaim], Reason | None]:
        """(the pod with its claims named, claims that are new, why a claim is missing)."""
        made: list[ResourceClaim] = []
        names = recorded_claims(pod)
        problem: Reason | None = None
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name or self._has_claim(pod, entry.name, names):
                continue
            claim = self._left_over(pod, entry.name)
            if claim is None:
                created = self._create(pod, entry.name, entry.resource_claim_template_name)
                if isinstance(created, Reason):
                    problem = problem or Reason(created.code, f"PodResourceClaim {entry.name}: {created.text}")
                    continue
                made.append(created)
                claim = created
            names[entry.name] = claim.metadata.name
        return with_recorded_claims(pod, names), made, problem

    def _has_claim(self, pod: Pod, entry: str, recorded: Mapping[str, str | None]) -> bool:
        """Whether the pod needs no new claim for this entry."""
        if entry not in recorded:
            return False
        name = recorded[entry]
        if name is None:
            return True
        claim = self._world.claims_by_name.get((pod.metadata.namespace, name))
        return claim is not None and is_owned_by(claim, pod)

    def _left_over(self, pod: Pod, entry: str) -> ResourceClaim | None:
        for claim in self._made_for.get(pod.metadata.uid, ()):
            alive = claim.metadata.deletion_timestamp is None
            if alive and claim.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION) == entry:
                return claim
        return None

    def _create(self, pod: Pod, entry: str, template_name: str) -> ResourceClaim | Reason:
        """The claim, or why the controller would not make it."""
        template = self._world.templates_by_name.get((pod.metadata.namespace, template_name))
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            return Reason("template-missing", f'resource claim template "{template_name}": {missing}')
        requests = template.spec.spec.devices.requests
        if not self._gates.enabled("DRAAdminAccess") and any(r.exactly and r.exactly.admin_access for r in requests):
            return Reason("feature-off", "admin access is requested, but the feature is disabled")
        if not self._gates.enabled("DRAPrioritizedList") and any(r.first_available for r in requests):
            return Reason(
                "feature-off", "template includes a prioritized list of subrequests, but the feature is disabled"
            )
        claim = claim_from_template(pod, entry, template)
        name = next(name for name in _names(claim, pod) if (pod.metadata.namespace, name) not in self._names)
        self._names.add((pod.metadata.namespace, name))
        metadata = replace(claim.metadata, name=name, uid=f"claim-{pod.metadata.namespace}-{name}")
        return replace(claim, metadata=metadata)


def _names(claim: ResourceClaim, pod: Pod) -> Iterator[str]:
    tries = 0
    while True:
        digest = hashlib.sha256(f"{pod.metadata.uid}/{claim.metadata.generate_name}/{tries}".encode()).digest()
        yield claim.metadata.generate_name + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
        tries += 1
