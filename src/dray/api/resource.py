# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.
"""The resource.k8s.io kinds, in the shape of v1: complete, so that an object written back loses nothing.

KEP-5517 appears under its two served spellings, `nodeAllocatableResourceMappings` (the KEP's, canonical) and
`nodeAllocatableResources` (Kubernetes 1.37's). The oldest spelling is turned into the canonical one by `dray.api.versions`.
"""

import msgspec

from dray.api.base import ApiStruct
from dray.api.core import NodeSelector
from dray.api.meta import Condition, ObjectMeta
from dray.api.quantity import Quantity

GROUP = "resource.k8s.io"
API_VERSION = "resource.k8s.io/v1"

CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"

MAX_ALLOCATION_RESULTS = 32

# --- ResourceSlice ---------------------------------------------------------------------------------------------------


class ResourcePool(ApiStruct, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class Counter(ApiStruct, frozen=True):
    value: Quantity = Quantity.ZERO


class CounterSet(ApiStruct, frozen=True):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceAttribute(ApiStruct, frozen=True):
    """Exactly one is set; an explicit false, 0 or "" is a value, so absent is None."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(ApiStruct, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None
    strategy: str = ""
    zero_consumption: bool | None = None


class DeviceCapacity(ApiStruct, frozen=True):
    value: Quantity = Quantity.ZERO
    request_policy: CapacityRequestPolicy | None = None


class DeviceCounterConsumption(ApiStruct, frozen=True):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(ApiStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeAllocatableMapping(ApiStruct, frozen=True):
    """Kubernetes 1.37: the amount a device takes from the node, from a capacity or per device."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(ApiStruct, frozen=True):
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(ApiStruct, frozen=True):
    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class NodeAllocatableResourceMapping(ApiStruct, frozen=True):
    """The KEP's spelling: without a capacity key the multiplier counts devices."""

    capacity_key: str | None = None
    allocation_multiplier: Quantity | None = None
    accounting_policy: str | None = None


class Device(ApiStruct, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}


class ResourceSliceSpec(ApiStruct, frozen=True):
    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(ApiStruct, frozen=True, tag_field="kind", tag="ResourceSlice"):
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


# --- ResourceClaim ---------------------------------------------------------------------------------------------------


class CELDeviceSelector(ApiStruct, frozen=True):
    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True):
    cel: CELDeviceSelector | None = None


class DeviceToleration(ApiStruct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(ApiStruct, frozen=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class DerivedAttribute(ApiStruct, frozen=True):
    name: str = ""
    expression: str = ""


class ExactDeviceRequest(ApiStruct, frozen=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(ApiStruct, frozen=True):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(ApiStruct, frozen=True):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(ApiStruct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw()


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True):
    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(ApiStruct, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(ApiStruct, frozen=True):
    devices: DeviceAllocationResult = msgspec.field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(ApiStruct, frozen=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: msgspec.Raw = msgspec.Raw()
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(ApiStruct, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(ApiStruct, frozen=True, tag_field="kind", tag="ResourceClaim"):
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


# --- ResourceClaimTemplate, DeviceClass, DeviceTaintRule, ResourcePoolStatusRequest ----------------------------------


class ResourceClaimTemplateSpec(ApiStruct, frozen=True):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(ApiStruct, frozen=True, tag_field="kind", tag="ResourceClaimTemplate"):
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)


class DeviceClassConfiguration(ApiStruct, frozen=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    manages_node_allocatable_resources: bool | None = None
    node_allocatable_resource_accounting_policies: dict[str, str] = {}


class DeviceClass(ApiStruct, frozen=True, tag_field="kind", tag="DeviceClass"):
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class DeviceTaintSelector(ApiStruct, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = msgspec.field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(ApiStruct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(ApiStruct, frozen=True, tag_field="kind", tag="DeviceTaintRule"):
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceTaintRuleSpec = msgspec.field(default_factory=DeviceTaintRuleSpec)
    status: DeviceTaintRuleStatus = msgspec.field(default_factory=DeviceTaintRuleStatus)


class PartitionSummary(ApiStruct, frozen=True):
    attribute: str = ""
    type: str = ""
    total: int | None = None
    allocatable: int | None = None


class ShareableCapacity(ApiStruct, frozen=True):
    name: str = ""
    total: Quantity | None = None
    consumed: Quantity | None = None
    available: Quantity | None = None


class ShareableSummary(ApiStruct, frozen=True):
    fully_available_devices: int | None = None
    partially_available_devices: int | None = None
    capacity: tuple[ShareableCapacity, ...] = ()


class PoolStatus(ApiStruct, frozen=True):
    driver: str = ""
    pool_name: str = ""
    generation: int = 0
    resource_slice_count: int | None = None
    total_devices: int | None = None
    allocated_devices: int | None = None
    available_devices: int | None = None
    unavailable_devices: int | None = None
    node_name: str | None = None
    validation_error: str | None = None
    partition_summary: tuple[PartitionSummary, ...] = ()
    shareable_summary: ShareableSummary | None = None


class ResourcePoolStatusRequestSpec(ApiStruct, frozen=True):
    driver: str = ""
    pool_name: str | None = None
    limit: int | None = None
    default_partition_type_attribute: str | None = None


class ResourcePoolStatusRequestStatus(ApiStruct, frozen=True):
    pool_count: int | None = None
    pools: tuple[PoolStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(ApiStruct, frozen=True, tag_field="kind", tag="ResourcePoolStatusRequest"):
    api_version: str = msgspec.field(default_factory=lambda: "resource.k8s.io/v1alpha3")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourcePoolStatusRequestSpec = msgspec.field(default_factory=ResourcePoolStatusRequestSpec)
    status: ResourcePoolStatusRequestStatus | None = None
