"""Fields of features that are switched off: dropped on create, and on update unless the old object uses the feature.

Documents are in the storage version. Nothing is refused here; what follows from a missing field is up to validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dray.features import FeatureGates

Document = dict[str, Any]
Holders = Callable[[Document], Iterator[Document]]


@dataclass(frozen=True, slots=True)
class Feature:
    """Some gates, all of which must be on, and the fields they guard: (where, names)."""

    gates: tuple[str, ...]
    fields: tuple[tuple[Holders, tuple[str, ...]], ...]

    def is_used_by(self, document: Document) -> bool:
        return any(
            _is_said(holder.get(name))
            for holders, names in self.fields
            for holder in holders(document)
            for name in names
        )

    def used_names(self, document: Document) -> tuple[str, ...]:
        return tuple(
            name
            for holders, names in self.fields
            for name in names
            if any(_is_said(holder.get(name)) for holder in holders(document))
        )

    def drop_from(self, document: Document) -> None:
        for holders, names in self.fields:
            for holder in holders(document):
                for name in names:
                    holder.pop(name, None)


def drop_disabled_fields(new: Document, old: Document | None, gates: FeatureGates) -> Document:
    """`new` without the fields of disabled features; the same object if nothing was removed."""
    features = _switched_off(str(new.get("kind")), gates)
    doomed = [f for f in features if f.is_used_by(new) and not (old is not None and f.is_used_by(old))]
    if not doomed:
        return new
    made: Document = _copy(new)
    for feature in doomed:
        feature.drop_from(made)
    return made


@lru_cache(maxsize=256)
def _switched_off(kind: str, gates: FeatureGates) -> tuple[Feature, ...]:
    return tuple(feature for feature in _FEATURES.get(kind, ()) if not gates.all_enabled(feature.gates))


def dropped_features(document: Document, gates: FeatureGates) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The fields that a new object would lose, by the disabled gate that guards them."""
    return [
        (tuple(name for name in feature.gates if not gates.enabled(name)), feature.used_names(document))
        for feature in _FEATURES.get(str(document.get("kind")), ())
        if not gates.all_enabled(feature.gates) and feature.is_used_by(document)
    ]


def _is_said(value: Any) -> bool:
    return value is not None and value != [] and value != {} and value != ""


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) if key not in ("parameters", "data") else inner for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


# --- where fields are ------------------------------------------------------------------------------------------------


def _dict(holder: Any, key: str) -> Iterator[Document]:
    value = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(value, dict):
        yield value


def _items(holder: Any, key: str) -> Iterator[Document]:
    value = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _values(holder: Document, key: str) -> Iterator[Document]:
    for inner in _dict(holder, key):
        yield from (value for value in inner.values() if isinstance(value, dict))


def _spec(document: Document) -> Iterator[Document]:
    yield from _dict(document, "spec")


def _status(document: Document) -> Iterator[Document]:
    yield from _dict(document, "status")


def _devices(document: Document) -> Iterator[Document]:
    for spec in _spec(document):
        yield from _items(spec, "devices")


def _group_templates(document: Document) -> Iterator[Document]:
    for spec in _spec(document):
        yield from _items(spec, "podGroupTemplates")


def _attributes(document: Document) -> Iterator[Document]:
    for device in _devices(document):
        yield from _values(device, "attributes")


def _capacities(document: Document) -> Iterator[Document]:
    for device in _devices(document):
        yield from _values(device, "capacity")


def _consumptions(document: Document) -> Iterator[Document]:
    for device in _devices(document):
        yield from _items(device, "consumesCounters")


def _claim_devices(document: Document) -> Iterator[Document]:
    for spec in _spec(document):
        inner = next(_dict(spec, "spec"), spec) if document.get("kind") == "ResourceClaimTemplate" else spec
        yield from _dict(inner, "devices")


def _requests(document: Document) -> Iterator[Document]:
    for devices in _claim_devices(document):
        yield from _items(devices, "requests")


def _exact_requests(document: Document) -> Iterator[Document]:
    for request in _requests(document):
        yield from _dict(request, "exactly")


def _all_requests(document: Document) -> Iterator[Document]:
    for request in _requests(document):
        yield from _dict(request, "exactly")
        yield from _items(request, "firstAvailable")


def _constraints(document: Document) -> Iterator[Document]:
    for devices in _claim_devices(document):
        yield from _items(devices, "constraints")


def _results(document: Document) -> Iterator[Document]:
    for status in _status(document):
        for allocation in _dict(status, "allocation"):
            for devices in _dict(allocation, "devices"):
                yield from _items(devices, "results")


def _device_statuses(document: Document) -> Iterator[Document]:
    for status in _status(document):
        yield from _items(status, "devices")


# Where a kind that makes pods keeps the template of their spec.
_POD_TEMPLATES = {
    **dict.fromkeys(
        ("ReplicaSet", "DaemonSet", "Deployment", "StatefulSet", "ReplicationController", "Job"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}


def _pod_spec(document: Document) -> Iterator[Document]:
    """The spec of a pod, or of the pods that the object makes."""
    holder: Document | None = document
    for key in _POD_TEMPLATES.get(str(document.get("kind")), ()):
        holder = next(_dict(holder, key), None)
    yield from _dict(holder, "spec")


def _containers(document: Document) -> Iterator[Document]:
    for spec in _pod_spec(document):
        for key in ("initContainers", "containers"):
            yield from _items(spec, key)


def _container_resources(document: Document) -> Iterator[Document]:
    for container in _containers(document):
        yield from _dict(container, "resources")


def _container_statuses(document: Document) -> Iterator[Document]:
    for status in _status(document):
        for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
            yield from _items(status, key)


def _health(document: Document) -> Iterator[Document]:
    for status in _container_statuses(document):
        for resource in _items(status, "allocatedResourcesStatus"):
            yield from _items(resource, "resources")


def _request_policies(document: Document) -> Iterator[Document]:
    for capacity in _capacities(document):
        yield from _dict(capacity, "requestPolicy")


def _capacity_requests(document: Document) -> Iterator[Document]:
    for request in _all_requests(document):
        yield from _dict(request, "capacity")


# --- the table -------------------------------------------------------------------------------------------------------

_BINDING = ("bindsToNode", "bindingConditions", "bindingFailureConditions")
_LISTS = ("ints", "bools", "strings", "versions")
_PER_DEVICE_NODES = ("nodeName", "nodeSelector", "allNodes")

_CLAIM_FEATURES = (
    Feature(("DRADeviceTaints",), ((_all_requests, ("tolerations",)),)),
    Feature(("DRAPrioritizedList",), ((_requests, ("firstAvailable",)),)),
    Feature(("DRADerivedAttributes",), ((_all_requests, ("derivedAttributes",)),)),
    Feature(("DRACapacityStrategies",), ((_capacity_requests, ("limits",)),)),
)

_POD_SPEC_FEATURES = (
    Feature(("GenericWorkload",), ((_pod_spec, ("schedulingGroup",)),)),
    Feature(
        ("DynamicResourceAllocation",),
        (
            (_pod_spec, ("resourceClaims",)),
            (_container_resources, ("claims",)),
            (_status, ("resourceClaimStatuses",)),
        ),
    ),
    Feature(("PodLevelResources",), ((_pod_spec, ("resources",)),)),
)

_FEATURES: dict[str, tuple[Feature, ...]] = {
    **dict.fromkeys(_POD_TEMPLATES, _POD_SPEC_FEATURES),
    "ResourceSlice": (
        Feature(("DRADeviceTaints",), ((_devices, ("taints",)),)),
        Feature(
            ("DRAPartitionableDevices",),
            (
                (_spec, ("sharedCounters", "perDeviceNodeSelection")),
                (_devices, ("consumesCounters", *_PER_DEVICE_NODES)),
            ),
        ),
        Feature(("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"), ((_devices, _BINDING),)),
        Feature(
            ("DRAConsumableCapacity",),
            ((_devices, ("allowMultipleAllocations",)), (_capacities, ("requestPolicy",))),
        ),
        Feature(("DRACapacityStrategies",), ((_request_policies, ("strategy", "zeroConsumption")),)),
        Feature(("DRADeviceCompatibilityGroups",), ((_consumptions, ("compatibilityGroups",)),)),
        Feature(
            ("DRANodeAllocatableResources",),
            ((_devices, ("nodeAllocatableResources", "nodeAllocatableResourceMappings")),),
        ),
        Feature(("DRAListTypeAttributes",), ((_attributes, _LISTS),)),
        Feature(("DRAPartitionableDevicesType",), ((_spec, ("partitionTypeAttribute",)),)),
        Feature(("DRAOptionalNodeOperations",), ((_spec, ("skipNodeOperations",)),)),
    ),
    "ResourceClaim": (
        *_CLAIM_FEATURES,
        Feature(("DRAAdminAccess",), ((_exact_requests, ("adminAccess",)), (_results, ("adminAccess",)))),
        Feature(
            ("DRAConsumableCapacity",),
            (
                (_all_requests, ("capacity",)),
                (_constraints, ("distinctAttribute",)),
                (_results, ("shareID", "consumedCapacity")),
                (_device_statuses, ("shareID",)),
            ),
        ),
        Feature(
            ("DRADeviceBindingConditions",),
            ((_results, ("bindingConditions", "bindingFailureConditions")),),
        ),
        Feature(("DRAOptionalNodeOperations",), ((_results, ("skipNodeOperations",)),)),
        Feature(("DRAResourceClaimDeviceStatus",), ((_status, ("devices",)),)),
    ),
    "ResourceClaimTemplate": (
        *_CLAIM_FEATURES,
        Feature(("DRAAdminAccess",), ((_exact_requests, ("adminAccess",)),)),
        Feature(("DRAConsumableCapacity",), ((_all_requests, ("capacity",)), (_constraints, ("distinctAttribute",)))),
    ),
    "DeviceClass": (
        Feature(("DRAExtendedResource",), ((_spec, ("extendedResourceName",)),)),
        Feature(
            ("DRANodeAllocatableResources",),
            ((_spec, ("managesNodeAllocatableResources", "nodeAllocatableResourceAccountingPolicies")),),
        ),
    ),
    "ResourcePoolStatusRequest": (
        Feature(("DRAPartitionableDevicesType",), ((_spec, ("defaultPartitionTypeAttribute",)),)),
    ),
    "PodGroup": (
        Feature(("DRAWorkloadResourceClaims",), ((_spec, ("resourceClaims",)), (_status, ("resourceClaimStatuses",)))),
    ),
    "Workload": (Feature(("DRAWorkloadResourceClaims",), ((_group_templates, ("resourceClaims",)),)),),
    "Pod": (
        *_POD_SPEC_FEATURES,
        Feature(("DRAExtendedResource",), ((_status, ("extendedResourceClaimStatus",)),)),
        Feature(("DRANodeAllocatableResources",), ((_status, ("nodeAllocatableResourceClaimStatuses",)),)),
        Feature(("ResourceHealthStatus",), ((_container_statuses, ("allocatedResourcesStatus",)),)),
        Feature(("ResourceHealthStatusMessage",), ((_health, ("message",)),)),
    ),
}
