"""Worlds for the accounting tests: manifests as users write them, and short forms for what a case is not about."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from tests.builders.manifests import a_claim, a_container, a_pod, a_result

from dray.accounting import AllocatedClaim, ClaimCharge, DeviceIndex, DeviceLookup, claim_charges
from dray.api.codec import to_object
from dray.api.core import Node, Pod
from dray.api.kep_field_names import canonical_spelling
from dray.api.manifests import read_manifests
from dray.api.quantity import Quantity
from dray.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice

KINDS: dict[str, type] = {
    "Pod": Pod,
    "Node": Node,
    "ResourceSlice": ResourceSlice,
    "ResourceClaim": ResourceClaim,
    "DeviceClass": DeviceClass,
}


def objects(text: str) -> list[Any]:
    """The objects of a YAML text, in their order, in whatever spelling."""
    found = read_manifests(textwrap.dedent(text).encode())
    return [to_object(canonical_spelling(manifest.document), KINDS[manifest.kind]) for manifest in found]


@dataclass
class World:
    """Slices, classes and allocated claims; pods ask what their claims take."""

    slices: list[ResourceSlice] = field(default_factory=list)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    allocations: dict[str, AllocationResult] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> World:
        world = cls()
        for obj in objects(text):
            name = obj.metadata.name
            match obj:
                case ResourceSlice():
                    world.slices.append(obj)
                case DeviceClass():
                    world.classes[name] = obj
                case ResourceClaim():
                    world.claims[name] = obj
                case Pod():
                    world.pods[name] = obj
        return world

    def allocate(self, claim: str, *results: dict[str, Any]) -> World:
        """What the allocator chose for a claim; results as in a claim's status."""
        document = {"devices": {"results": list(results)}}
        self.allocations[claim] = to_object(document, AllocationResult)
        return self

    @property
    def inventory(self) -> DeviceLookup:
        return DeviceLookup(DeviceIndex(self.slices), self.classes)

    def charges(self, pod_name: str) -> tuple[ClaimCharge, ...]:
        pod = self.pods[pod_name]
        allocated = {}
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or entry.name
            claim = self.claims.get(name) or claim_named(name)
            allocated[entry.name] = AllocatedClaim(claim, self.allocations[name])
        return claim_charges(pod, allocated, self.inventory)


def claim_named(name: str) -> ResourceClaim:
    return to_object(a_claim(name, namespace=""), ResourceClaim)


def demanding_pod(
    name: str = "p",
    *,
    containers: dict[str, dict[str, Any]] | None = None,
    init: dict[str, dict[str, Any]] | None = None,
    claims: dict[str, str] | None = None,
    status: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> Pod:
    """Containers by name with their `resources`; an init container with `"sidecar": True` is one."""

    def container(key: str, resources: dict[str, Any]) -> dict[str, Any]:
        resources = dict(resources)
        sidecar = {"restartPolicy": "Always"} if resources.pop("sidecar", False) else {}
        return a_container(key, uses=resources.pop("claims", []), resources=resources, **sidecar)

    document = a_pod(
        name,
        *(container(*each) for each in (containers or {"c": {}}).items()),
        uid=f"uid-{name}",
        claims=claims,
        initContainers=[container(*each) for each in (init or {}).items()],
        status={"nodeAllocatableResourceClaimStatuses": status or []},
        **spec,
    )
    return to_object(document, Pod)


def quantities(**amounts: str) -> dict[str, Quantity]:
    """`quantities(cpu="1", hugepages_2Mi="64Mi")`."""
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in amounts.items()}


def allocated_device(
    device: str, driver: str = "dra.example.com", pool: str = "node-pool", **more: Any
) -> dict[str, Any]:
    return a_result(device, "req", driver, pool, **more)
