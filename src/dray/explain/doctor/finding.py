"""One finding of the doctor, and the cluster with the indexes that its checks use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dray.allocator import Features, Inventory
from dray.api.core import Node, Pod
from dray.api.dra.pod_claims import claim_names
from dray.api.dra.pod_phase import is_finished
from dray.api.resource import ResourceClaim
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.device_holders import DeviceHolders
from dray.features import FeatureGates


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`code` is stable; `fix` is what to do about it. `cause` is the reason code of `dray explain`, where there is a closer one."""

    severity: str
    code: str
    subject: str
    message: str
    fix: str
    cause: str = ""

    def document(self) -> dict[str, str]:
        return {
            "severity": self.severity,
            "code": self.code,
            "subject": self.subject,
            "message": self.message,
            "fix": self.fix,
        }


def error(code: str, subject: str, message: str, fix: str, cause: str = "") -> DoctorFinding:
    return DoctorFinding("error", code, subject, message, fix, cause)


def warning(code: str, subject: str, message: str, fix: str, cause: str = "") -> DoctorFinding:
    return DoctorFinding("warning", code, subject, message, fix, cause)


class CheckedCluster:
    def __init__(self, world: ClusterObjects, gates: FeatureGates) -> None:
        self.world = world
        self.gates = gates
        self.cdi_names: frozenset[str] | None = None
        self.cdi_node = ""

    @cached_property
    def pods_by_uid(self) -> dict[str, Pod]:
        return {pod.metadata.uid: pod for pod in self.world.pods}

    @cached_property
    def holders(self) -> DeviceHolders:
        return DeviceHolders(self.world.claims)

    @cached_property
    def inventory(self) -> Inventory:
        inventory = Inventory(Features.from_gates(self.gates))
        for each in self.world.slices:
            inventory.apply_slice(each)
        for rule in self.world.taint_rules:
            inventory.apply_taint_rule(rule)
        return inventory

    def drivers_on(self, node: str) -> set[str]:
        """Drivers that publish something for the node, or for many nodes."""
        return self._drivers_by_node.get(node, set()) | self._drivers_by_node.get("", set())

    @cached_property
    def _drivers_by_node(self) -> dict[str, set[str]]:
        drivers: dict[str, set[str]] = {}
        for each in self.world.slices:
            drivers.setdefault(each.spec.node_name or "", set()).add(each.spec.driver)
        return drivers

    @cached_property
    def users_of_claim(self) -> dict[tuple[str, str], list[Pod]]:
        """Pods that name a claim in spec or status and are not over."""
        users: dict[tuple[str, str], list[Pod]] = {}
        for pod in self.world.pods:
            if not is_finished(pod):
                for name in claim_names(pod):
                    users.setdefault((pod.metadata.namespace, name), []).append(pod)
        return users

    def users_of(self, claim: ResourceClaim) -> list[Pod]:
        return self.users_of_claim.get((claim.metadata.namespace, claim.metadata.name), [])


def named(obj: Any) -> str:
    """`claim ml/train`, `slice node-1-gpu`: how a finding calls an object."""
    kind = type(obj).__name__.removeprefix("Resource").removeprefix("Device").lower()
    kind = {"claimtemplate": "template", "taintrule": "taint rule"}.get(kind, kind)
    place = f"{obj.metadata.namespace}/" if obj.metadata.namespace else ""
    return f"{kind} {place}{obj.metadata.name}"


def kubectl_name(obj: Any) -> str:
    """`resourceclaim/train -n ml`, to be pasted after a kubectl verb."""
    place = f" -n {obj.metadata.namespace}" if obj.metadata.namespace else ""
    return f"{type(obj).__name__.lower()}/{obj.metadata.name}{place}"


def is_down(node: Node) -> bool:
    return any(row.type == "Ready" and row.status != "True" for row in node.status.conditions)
