"""Writes src/dray/api/schemas/schemas.json: field names, types, list types and merge keys of the kinds we know.

The names and types are read from the official Kubernetes Python client (a development dependency); what that client
does not carry (which strings are quantities, integer widths, list types, merge keys, the KEPs' own fields) is the tables below.
Run it again after raising the client's version: `.venv/bin/python scripts/generate_schemas.py`.
"""

import json
import types
import typing
from datetime import datetime
from pathlib import Path

import kubernetes.client as client
from pydantic import BaseModel

TARGET = Path(__file__).parent.parent / "src" / "dray" / "api" / "schemas" / "schemas.json"

# apiVersion/kind to the client's class. Core comes first: a type belongs to the group that reaches it first.
KINDS = {
    "v1": [
        "Pod",
        "Node",
        "Namespace",
        "CoreV1Event",
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "ResourceQuota",
        "LimitRange",
        "Binding",
        "PodTemplate",
        "Service",
    ],
    "apps/v1": ["ReplicaSet", "DaemonSet", "Deployment", "StatefulSet"],
    "batch/v1": ["Job", "CronJob"],
    "coordination.k8s.io/v1": ["Lease"],
    "events.k8s.io/v1": ["EventsV1Event"],
    "rbac.authorization.k8s.io/v1": ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
    "scheduling.k8s.io/v1": ["PriorityClass"],
    "scheduling.k8s.io/v1beta1": ["PodGroup", "Workload"],
    "policy/v1": ["Eviction", "PodDisruptionBudget"],
    "node.k8s.io/v1": ["RuntimeClass"],
    "admissionregistration.k8s.io/v1": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
    "authentication.k8s.io/v1": ["TokenReview", "AuthenticationV1TokenRequest", "SelfSubjectReview"],
    "authorization.k8s.io/v1": [
        "SubjectAccessReview",
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
    ],
    "resource.k8s.io/v1": [
        "ResourceV1ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "DeviceClass",
        "DeviceTaintRule",
    ],
    "resource.k8s.io/v1beta2": [
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "DeviceClass",
        "DeviceTaintRule",
    ],
    "resource.k8s.io/v1beta1": ["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"],
    "resource.k8s.io/v1alpha3": ["DeviceTaintRule", "ResourcePoolStatusRequest"],
}

META = {
    "Condition",
    "DeleteOptions",
    "FieldSelectorRequirement",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ListMeta",
    "ManagedFieldsEntry",
    "ObjectMeta",
    "OwnerReference",
    "Preconditions",
    "Status",
    "StatusCause",
    "StatusDetails",
}

# Strings that are quantities, by type and field (the map's values where the field is a map).
QUANTITIES = {
    "CapacityRequestPolicy": ("default", "validValues"),
    "CapacityRequestPolicyRange": ("min", "max", "step"),
    "CapacityRequirements": ("requests",),
    "ContainerStatus": ("allocatedResources",),
    "Counter": ("value",),
    "DeviceCapacity": ("value",),
    "DeviceRequestAllocationResult": ("consumedCapacity",),
    "EmptyDirVolumeSource": ("sizeLimit",),
    "LimitRangeItem": ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min"),
    "NodeAllocatableMappedResources": ("quantity",),
    "NodeAllocatableMapping": ("capacityMultiplier", "deviceMultiplier"),
    "NodeAllocatableOverhead": ("perPod", "perContainer"),
    "NodeAllocatableOverheadResources": ("perPod", "perContainer"),
    "NodeStatus": ("allocatable", "capacity"),
    "Overhead": ("podFixed",),
    "PersistentVolumeClaimStatus": ("allocatedResources", "capacity"),
    "PodSpec": ("overhead",),
    "PodStatus": ("allocatedResources",),
    "ResourceFieldSelector": ("divisor",),
    "ResourceQuotaSpec": ("hard",),
    "ResourceQuotaStatus": ("hard", "used"),
    "ResourceRequirements": ("limits", "requests"),
    "ShareableCapacityStatus": ("available", "consumed", "total"),
    "VolumeResourceRequirements": ("limits", "requests"),
}

# Integers are 32 bits wide unless their field is here.
INT64 = {
    "activeDeadlineSeconds",
    "count@ExactDeviceRequest",
    "count@DeviceSubRequest",
    "count@DeviceRequest",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "expirationSeconds",
    "fsGroup",
    "generation",
    "gracePeriodSeconds",
    "int",
    "ints",
    "observedGeneration",
    "remainingItemCount",
    "resourceSliceCount@ResourcePool",
    "runAsGroup",
    "runAsUser",
    "seconds",
    "sizeBytes",
    "startingDeadlineSeconds",
    "supplementalGroups",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "uid@ContainerUser",
    "uid@LinuxContainerUser",
    "gid@LinuxContainerUser",
}

MICRO_TIMES = {"eventTime", "acquireTime", "renewTime", "lastObservedTime"}

# Fields that hold any JSON value.
ANY = {"parameters@OpaqueDeviceConfiguration", "data@AllocatedDeviceStatus", "fieldsV1"}

# type.field to list type; `map:` names the keys. A list without an entry is atomic.
LISTS = {
    "AllocatedDeviceStatus.conditions": "map:type",
    "ContainerStatus.allocatedResourcesStatus": "map:name",
    "ContainerStatus.volumeMounts": "map:mountPath",
    "Container.env": "map:name",
    "Container.ports": "map:containerPort,protocol",
    "Container.volumeDevices": "map:devicePath",
    "Container.volumeMounts": "map:mountPath",
    "DaemonSetStatus.conditions": "map:type",
    "DeploymentStatus.conditions": "map:type",
    "DeviceTaintRuleStatus.conditions": "map:type",
    "EphemeralContainer.env": "map:name",
    "EphemeralContainer.ports": "map:containerPort,protocol",
    "EphemeralContainer.volumeDevices": "map:devicePath",
    "EphemeralContainer.volumeMounts": "map:mountPath",
    "NamespaceStatus.conditions": "map:type",
    "NodeAllocatableResourceClaimStatus.containers": "set",
    "NodeAllocatableResourceClaimStatus.mapping": "map:name",
    "NodeAllocatableResourceClaimStatus.overhead": "map:name",
    "NodeSpec.podCIDRs": "set",
    "NodeStatus.addresses": "map:type",
    "NodeStatus.conditions": "map:type",
    "ObjectMeta.finalizers": "set",
    "ObjectMeta.ownerReferences": "map:uid",
    "PodDisruptionBudgetStatus.conditions": "map:type",
    "PodGroupSpec.resourceClaims": "map:name",
    "PodGroupStatus.conditions": "map:type",
    "PodGroupStatus.resourceClaimStatuses": "map:name",
    "PodGroupTemplate.resourceClaims": "map:name",
    "PodSecurityContext.supplementalGroups": "atomic",
    "PodSpec.containers": "map:name",
    "PodSpec.ephemeralContainers": "map:name",
    "PodSpec.hostAliases": "map:ip",
    "PodSpec.imagePullSecrets": "map:name",
    "PodSpec.initContainers": "map:name",
    "PodSpec.nodeSelector": "atomic",
    "PodSpec.resourceClaims": "map:name",
    "PodSpec.schedulingGates": "map:name",
    "PodSpec.topologySpreadConstraints": "map:topologyKey,whenUnsatisfiable",
    "PodSpec.volumes": "map:name",
    "PodStatus.conditions": "map:type",
    "PodStatus.hostIPs": "atomic",
    "PodStatus.nodeAllocatableResourceClaimStatuses": "map:resourceClaimName",
    "PodStatus.podIPs": "map:ip",
    "PodStatus.resourceClaimStatuses": "map:name",
    "ReplicaSetStatus.conditions": "map:type",
    "ResourceClaimStatus.devices": "map:driver,device,pool,shareID",
    "ResourceClaimStatus.reservedFor": "map:uid",
    "ResourcePoolStatusRequestStatus.conditions": "map:type",
    "ResourceRequirements.claims": "map:name",
    "ResourceSliceSpec.skipNodeOperations": "set",
    "DeviceRequestAllocationResult.skipNodeOperations": "set",
    "ResourceStatus.resources": "map:resourceID",
    "ServiceAccount.secrets": "map:name",
    "ServiceSpec.ports": "map:port,protocol",
    "ServiceSpec.selector": "atomic",
    "ServiceStatus.conditions": "map:type",
    "StatefulSetStatus.conditions": "map:type",
    "ValidatingAdmissionPolicySpec.matchConditions": "map:name",
    "ValidatingAdmissionPolicySpec.variables": "map:name",
    "ValidatingAdmissionPolicyStatus.conditions": "map:type",
    "CompositePodGroupTemplate.compositePodGroupTemplates": "map:name",
    "CompositePodGroupTemplate.podGroupTemplates": "map:name",
    "WorkloadSpec.compositePodGroupTemplates": "map:name",
    "WorkloadSpec.podGroupTemplates": "map:name",
}

# type.field to strategic merge key ("" for lists of scalars); `+retainKeys` where the strategy says so.
MERGE = {
    "AllocatedDeviceStatus.conditions": "type",
    "Container.env": "name",
    "Container.ports": "containerPort",
    "Container.volumeDevices": "devicePath",
    "Container.volumeMounts": "mountPath",
    "ContainerStatus.allocatedResourcesStatus": "name",
    "ContainerStatus.volumeMounts": "mountPath",
    "DaemonSetStatus.conditions": "type",
    "DeploymentStatus.conditions": "type",
    "DeviceTaintRuleStatus.conditions": "type",
    "EphemeralContainer.env": "name",
    "EphemeralContainer.ports": "containerPort",
    "EphemeralContainer.volumeDevices": "devicePath",
    "EphemeralContainer.volumeMounts": "mountPath",
    "JobStatus.conditions": "type",
    "NamespaceStatus.conditions": "type",
    "NodeSpec.podCIDRs": "",
    "NodeStatus.addresses": "type",
    "NodeStatus.conditions": "type",
    "ObjectMeta.finalizers": "",
    "ObjectMeta.ownerReferences": "uid",
    "PodDisruptionBudgetStatus.conditions": "type",
    "PodGroupSpec.resourceClaims": "name+retainKeys",
    "PodGroupStatus.conditions": "type",
    "PodGroupStatus.resourceClaimStatuses": "name+retainKeys",
    "PodGroupTemplate.resourceClaims": "name+retainKeys",
    "PodSpec.containers": "name",
    "PodSpec.ephemeralContainers": "name",
    "PodSpec.hostAliases": "ip",
    "PodSpec.imagePullSecrets": "name",
    "PodSpec.initContainers": "name",
    "PodSpec.resourceClaims": "name+retainKeys",
    "PodSpec.schedulingGates": "name",
    "PodSpec.topologySpreadConstraints": "topologyKey",
    "PodSpec.volumes": "name+retainKeys",
    "PodStatus.conditions": "type",
    "PodStatus.hostIPs": "ip",
    "PodStatus.nodeAllocatableResourceClaimStatuses": "resourceClaimName",
    "PodStatus.podIPs": "ip",
    "PodStatus.resourceClaimStatuses": "name+retainKeys",
    "ReplicaSetStatus.conditions": "type",
    "ResourceClaimStatus.reservedFor": "uid",
    "ResourcePoolStatusRequestStatus.conditions": "type",
    "ServiceAccount.imagePullSecrets": "name",
    "ServiceAccount.secrets": "name",
    "ServiceSpec.ports": "port",
    "ServiceStatus.conditions": "type",
    "StatefulSetStatus.conditions": "type",
    "ValidatingAdmissionPolicySpec.matchConditions": "name",
    "ValidatingAdmissionPolicySpec.variables": "name",
}

# Objects that strategic merge and apply replace as a whole.
ATOMIC_STRUCTS = {
    "ConfigMapKeySelector",
    "FieldSelectorAttributes",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "ResourceSliceAttributeSelector",
    "RoleRef",
    "ScopeSelector",
    "SecretKeySelector",
    "Subject",
    "TypedLocalObjectReference",
}

# Fields of the KEPs that Kubernetes 1.37 does not have, for every version of the type.
KEP_FIELDS = {
    "DeviceClassSpec": {
        "managesNodeAllocatableResources": "bool",
        "nodeAllocatableResourceAccountingPolicies": "{}string",
    },
    "Device": {"nodeAllocatableResourceMappings": "{}@NodeAllocatableResourceMapping"},
    "BasicDevice": {"nodeAllocatableResourceMappings": "{}@NodeAllocatableResourceMapping"},
    "EnvVarSource": {"resourceSliceAttributeRef": "@ResourceSliceAttributeSelector"},
    "NodeAllocatableResourceClaimStatus": {
        "accounting": "[]@NodeAllocatableAccounting",
        "resources": "{}quantity",
    },
}
KEP_TYPES = {
    "NodeAllocatableAccounting": {"name": "string", "quantity": "quantity", "accountingPolicy": "string"},
    "NodeAllocatableResourceMapping": {
        "capacityKey": "string",
        "allocationMultiplier": "quantity",
        "accountingPolicy": "string",
    },
    "ResourceSliceAttributeSelector": {"claimName": "string", "requestName": "string", "attribute": "string"},
}


# Structs without fields, which the client has as maps: there is a difference between an empty one and none.
EMPTY_STRUCTS = {
    "CompositeDisruptionMode.all": "AllCompositeDisruptionMode",
    "CompositeDisruptionMode.single": "SingleCompositeDisruptionMode",
    "CompositePodGroupSchedulingPolicy.basic": "CompositeBasicSchedulingPolicy",
    "DisruptionMode.all": "AllDisruptionMode",
    "DisruptionMode.single": "SingleDisruptionMode",
    "PodGroupSchedulingPolicy.basic": "BasicSchedulingPolicy",
}


class Generator:
    def __init__(self) -> None:
        self.types: dict[str, dict[str, object]] = {}
        self.names: dict[type, str] = {}

    def name_of(self, model: type[BaseModel], group: str, version: str) -> str:
        if model in self.names:
            return self.names[model]
        bare = bare_name(model.__name__)
        name = f"meta.v1.{bare}" if bare in META and model.__name__.startswith("V1") else f"{group}.{version}.{bare}"
        self.names[model] = name
        self.types[name] = {}
        self.types[name] = self.struct(model, bare, group, version)
        return name

    def struct(self, model: type[BaseModel], bare: str, group: str, version: str) -> dict[str, object]:
        fields: dict[str, str] = {}
        required = []
        for attribute, field in model.model_fields.items():
            wire = field.serialization_alias or field.alias or attribute
            fields[wire] = self.type_text(field.annotation, bare, wire, group, version)
            if field.is_required():
                required.append(wire)
        for wire, text in KEP_FIELDS.get(bare, {}).items():
            fields[wire] = self.kep_type(text, group, version)
        entry: dict[str, object] = {"fields": dict(sorted(fields.items()))}
        if required:
            entry["required"] = sorted(required)
        for label, table in (("lists", LISTS), ("merge", MERGE)):
            if found := {wire: table[f"{bare}.{wire}"] for wire in sorted(fields) if f"{bare}.{wire}" in table}:
                entry[label] = found
        if bare in ATOMIC_STRUCTS:
            entry["atomic"] = True
        return entry

    def kep_type(self, text: str, group: str, version: str) -> str:
        head, mark, bare = text.partition("@")
        if not mark:
            return text
        name = f"{group}.{version}.{bare}"
        self.types[name] = {"fields": dict(sorted(KEP_TYPES[bare].items()))}
        if bare in ATOMIC_STRUCTS:
            self.types[name]["atomic"] = True
        return head + name

    def type_text(self, annotation: object, bare: str, wire: str, group: str, version: str) -> str:
        if wire in ANY or f"{wire}@{bare}" in ANY:
            return "any"
        if empty := EMPTY_STRUCTS.get(f"{bare}.{wire}"):
            self.types[f"{group}.{version}.{empty}"] = {"fields": {}}
            return f"{group}.{version}.{empty}"
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.type_text(arguments[0], bare, wire, group, version)
        if origin is list:
            return "[]" + self.type_text(arguments[0], bare, wire, group, version)
        if origin is dict:
            return "{}" + self.type_text(arguments[1], bare, wire, group, version)
        if origin in (typing.Union, types.UnionType):
            return self.union_text([a for a in arguments if a is not type(None)], bare, wire, group, version)
        return self.scalar_text(annotation, bare, wire, group, version)

    def union_text(self, members: list[object], bare: str, wire: str, group: str, version: str) -> str:
        if len(members) == 1:
            return self.type_text(members[0], bare, wire, group, version)
        texts = {self.type_text(member, bare, wire, group, version) for member in members}
        if "bytes" in texts:
            return "bytes"
        assert any(text.startswith("int") for text in texts), (bare, wire, texts)
        return "intOrString"

    def scalar_text(self, annotation: object, bare: str, wire: str, group: str, version: str) -> str:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.name_of(annotation, group, version)
        if annotation is datetime:
            return "microTime" if wire in MICRO_TIMES else "time"
        if annotation is str:
            return "quantity" if wire in QUANTITIES.get(bare, ()) else "string"
        if annotation is bool:
            return "bool"
        if annotation is int:
            return "int64" if wire in INT64 or f"{wire}@{bare}" in INT64 else "int32"
        if annotation is bytes:
            return "bytes"
        if annotation is float:
            return "float"
        if annotation is typing.Any or annotation is object:
            return "any"
        raise TypeError(f"{bare}.{wire}: {annotation!r}")


def bare_name(class_name: str) -> str:
    """`V1beta1PodSpec` to `PodSpec`, and `CoreV1ResourceClaim` to `ResourceClaim`."""
    for prefix in ("CoreV1", "EventsV1", "ResourceV1", "AuthenticationV1", "RbacV1", "FlowcontrolV1", "StorageV1"):
        if class_name.startswith(prefix):
            return class_name.removeprefix(prefix)
    for prefix in ("V1alpha3", "V1alpha2", "V1alpha1", "V1beta2", "V1beta1", "V1", "V2"):
        if class_name.startswith(prefix):
            return class_name.removeprefix(prefix)
    return class_name


def model_of(api_version: str, entry: str) -> type[BaseModel]:
    version = api_version.rpartition("/")[2]
    for candidate in (entry, f"{version.capitalize()}{entry}"):
        if hasattr(client, candidate):
            return getattr(client, candidate)
    raise LookupError(f"{api_version} {entry}")


def main() -> None:
    generator = Generator()
    kinds = {}
    for api_version, entries in KINDS.items():
        group, _, version = api_version.rpartition("/")
        for entry in entries:
            model = model_of(api_version, entry)
            kinds[f"{api_version}/{bare_name(model.__name__)}"] = generator.name_of(
                model, group.partition(".")[0] or "core", version
            )
    for entry in ("DeleteOptions", "Status"):
        kinds[f"v1/{entry}"] = generator.name_of(model_of("v1", entry), "meta", "v1")
    table = {"kinds": dict(sorted(kinds.items())), "types": dict(sorted(generator.types.items()))}
    TARGET.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(kinds)} kinds, {len(generator.types)} types, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
