# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.
"""Structs with only the fields that one reader needs, for decoding many objects fast.

The API server reads stored objects with them, and clients read the server's discovery documents. Lists and maps may be null.
"""

from __future__ import annotations

from typing import Any

import msgspec

# --- the labels of a stored object -----------------------------------------------------------------------------------


class LabelledMeta(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None


class LabelledObject(msgspec.Struct, frozen=True, rename="camel"):
    metadata: LabelledMeta = msgspec.field(default_factory=LabelledMeta)


# --- the node of a pod -----------------------------------------------------------------------------------------------


class PlacedPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class PlacedPod(msgspec.Struct, frozen=True, rename="camel"):
    spec: PlacedPodSpec = msgspec.field(default_factory=PlacedPodSpec)


# --- the objects that a pod refers to, and those that belong to one node ---------------------------------------------


class ReferencedName(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""


class ReferencedClaim(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_name: str | None = None


class ReferencingEnvVarSource(msgspec.Struct, frozen=True, rename="camel"):
    config_map_key_ref: ReferencedName | None = None
    secret_key_ref: ReferencedName | None = None


class ReferencingEnvVar(msgspec.Struct, frozen=True, rename="camel"):
    value_from: ReferencingEnvVarSource | None = None


class ReferencingEnvFromSource(msgspec.Struct, frozen=True, rename="camel"):
    config_map_ref: ReferencedName | None = None
    secret_ref: ReferencedName | None = None


class ReferencingContainer(msgspec.Struct, frozen=True, rename="camel"):
    env: list[ReferencingEnvVar] | None = None
    env_from: list[ReferencingEnvFromSource] | None = None


class ReferencedSecretVolume(msgspec.Struct, frozen=True, rename="camel"):
    secret_name: str = ""


class ReferencingVolumeProjection(msgspec.Struct, frozen=True, rename="camel"):
    secret: ReferencedName | None = None
    config_map: ReferencedName | None = None


class ReferencingProjectedVolume(msgspec.Struct, frozen=True, rename="camel"):
    sources: list[ReferencingVolumeProjection] | None = None


class ReferencedVolumeClaim(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class ReferencingAzureFile(msgspec.Struct, frozen=True, rename="camel"):
    secret_name: str = ""


class ReferencingCsi(msgspec.Struct, frozen=True, rename="camel"):
    node_publish_secret_ref: ReferencedName | None = None


class ReferencingCephFs(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingCinder(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingFlexVolume(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingIscsi(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingRbd(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingScaleIo(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingStorageOs(msgspec.Struct, frozen=True, rename="camel"):
    secret_ref: ReferencedName | None = None


class ReferencingVolume(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_claim: ReferencedVolumeClaim | None = None
    secret: ReferencedSecretVolume | None = None
    config_map: ReferencedName | None = None
    projected: ReferencingProjectedVolume | None = None
    azure_file: ReferencingAzureFile | None = None
    cephfs: ReferencingCephFs | None = None
    cinder: ReferencingCinder | None = None
    csi: ReferencingCsi | None = None
    flex_volume: ReferencingFlexVolume | None = None
    iscsi: ReferencingIscsi | None = None
    rbd: ReferencingRbd | None = None
    scale_io: ReferencingScaleIo | None = msgspec.field(default=None, name="scaleIO")
    storageos: ReferencingStorageOs | None = None


class ReferencingPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    service_account_name: str = ""
    resource_claims: list[ReferencedClaim] | None = None
    containers: list[ReferencingContainer] | None = None
    init_containers: list[ReferencingContainer] | None = None
    ephemeral_containers: list[ReferencingContainer] | None = None
    image_pull_secrets: list[ReferencedName] | None = None
    volumes: list[ReferencingVolume] | None = None


class ReferencingPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    resource_claim_statuses: list[ReferencedClaim] | None = None
    extended_resource_claim_status: ReferencedClaim | None = None


class ReferencingPod(msgspec.Struct, frozen=True, rename="camel"):
    spec: ReferencingPodSpec = msgspec.field(default_factory=ReferencingPodSpec)
    status: ReferencingPodStatus | None = None


class VolumeClaimReference(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""


class ClaimedVolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    claim_ref: VolumeClaimReference | None = None


class ClaimedVolume(msgspec.Struct, frozen=True, rename="camel"):
    spec: ClaimedVolumeSpec | None = None


class OneNodesSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class OneNodesObject(msgspec.Struct, frozen=True, rename="camel"):
    """A slice, volume attachment or certificate request of a pod: they name the node they belong to."""

    spec: OneNodesSpec = msgspec.field(default_factory=OneNodesSpec)


# --- roles and their bindings; rules and selectors are read by their own classes -------------------------------------


class RbacMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class RbacAggregationRule(msgspec.Struct, frozen=True, rename="camel"):
    cluster_role_selectors: Any = None


class RbacRole(msgspec.Struct, frozen=True, rename="camel"):
    metadata: RbacMeta = msgspec.field(default_factory=RbacMeta)
    rules: msgspec.Raw = msgspec.Raw(b"null")
    aggregation_rule: RbacAggregationRule | None = None


class RbacRoleRef(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""


class RbacSubject(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RbacBinding(msgspec.Struct, frozen=True, rename="camel"):
    metadata: RbacMeta = msgspec.field(default_factory=RbacMeta)
    role_ref: RbacRoleRef = msgspec.field(default_factory=RbacRoleRef)
    subjects: list[RbacSubject] | None = None


# --- devices and counters that slices publish ------------------------------------------------------------------------


class PublishedAmount(msgspec.Struct, frozen=True, rename="camel"):
    value: Any = None


class PublishedConsumption(msgspec.Struct, frozen=True, rename="camel"):
    counter_set: str = ""
    counters: dict[str, PublishedAmount] | None = None


class PublishedPolicy(msgspec.Struct, frozen=True, rename="camel"):
    strategy: str = ""


class PublishedCapacity(msgspec.Struct, frozen=True, rename="camel"):
    value: Any = None
    request_policy: PublishedPolicy | None = None


class PublishedDevice(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    allow_multiple_allocations: bool | None = None
    capacity: dict[str, PublishedCapacity] | None = None
    consumes_counters: list[PublishedConsumption] | None = None


class PublishedCounterSet(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    counters: dict[str, PublishedAmount] | None = None


class PublishedPool(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0


class PublishedSliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: PublishedPool = msgspec.field(default_factory=PublishedPool)
    devices: msgspec.Raw = msgspec.Raw(b"null")
    shared_counters: msgspec.Raw = msgspec.Raw(b"null")


class PublishedSlice(msgspec.Struct, frozen=True, rename="camel"):
    spec: PublishedSliceSpec = msgspec.field(default_factory=PublishedSliceSpec)


# --- the opaque values of device classes, claims and templates -------------------------------------------------------


class OpaqueParameters(msgspec.Struct, frozen=True, rename="camel"):
    parameters: msgspec.Raw = msgspec.Raw()


class OpaqueConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    opaque: OpaqueParameters | None = None


class OpaqueConfigurations(msgspec.Struct, frozen=True, rename="camel"):
    config: list[OpaqueConfiguration] | None = None


class OpaqueSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Of a class (`config`), a claim (`devices`) or a template (`spec`)."""

    config: list[OpaqueConfiguration] | None = None
    devices: OpaqueConfigurations | None = None
    spec: OpaqueSpec | None = None


class OpaqueAllocation(msgspec.Struct, frozen=True, rename="camel"):
    devices: OpaqueConfigurations | None = None


class OpaqueDeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    data: msgspec.Raw = msgspec.Raw()


class OpaqueStatus(msgspec.Struct, frozen=True, rename="camel"):
    allocation: OpaqueAllocation | None = None
    devices: list[OpaqueDeviceStatus] | None = None


class OpaqueObject(msgspec.Struct, frozen=True, rename="camel"):
    spec: OpaqueSpec | None = None
    status: OpaqueStatus | None = None


# --- discovery documents ---------------------------------------------------------------------------------------------


class DiscoveredResource(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] | None = None


class DiscoveredResourceList(msgspec.Struct, frozen=True, rename="camel"):
    resources: list[DiscoveredResource] | None = None


class DiscoveredVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""
    version: str = ""


class DiscoveredGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    preferred_version: DiscoveredVersion = msgspec.field(default_factory=DiscoveredVersion)
    versions: list[DiscoveredVersion] | None = None


class DiscoveredGroupList(msgspec.Struct, frozen=True, rename="camel"):
    groups: list[DiscoveredGroup] | None = None
