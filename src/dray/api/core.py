# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.
"""Structs of Pod, Node, Namespace, Event, Lease, ResourceQuota and PriorityClass, with the fields that our code reads.

Pod and Node have more fields in Kubernetes. Documents keep all of them, so nothing is lost, and nobody writes a whole Pod or
Node back from a struct.
"""

from typing import Any

import msgspec

from dray.api.base import ApiStruct
from dray.api.meta import Condition, LabelSelector, ObjectMeta
from dray.api.quantity import Quantity

# --- node selection --------------------------------------------------------------------------------------------------


class NodeSelectorRequirement(ApiStruct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(ApiStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(ApiStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class Toleration(ApiStruct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(ApiStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


# --- Pod -------------------------------------------------------------------------------------------------------------


class ContainerResourceClaim(ApiStruct, frozen=True):
    """`resources.claims[]` of a container: a pod claim, or one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(ApiStruct, frozen=True):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    claims: tuple[ContainerResourceClaim, ...] = ()


class ObjectFieldSelector(ApiStruct, frozen=True):
    api_version: str = ""
    field_path: str = ""


class ResourceFieldSelector(ApiStruct, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class KeySelector(ApiStruct, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class ResourceSliceAttributeSelector(ApiStruct, frozen=True):
    """KEP-5304: an attribute of the devices that a claim's request was given."""

    claim_name: str = ""
    request_name: str = ""
    attribute: str = ""


class EnvVarSource(ApiStruct, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    resource_slice_attribute_ref: ResourceSliceAttributeSelector | None = None


class EnvVar(ApiStruct, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvFromSource(ApiStruct, frozen=True):
    prefix: str = ""
    config_map_ref: KeySelector | None = None
    secret_ref: KeySelector | None = None


class ContainerPort(ApiStruct, frozen=True):
    name: str = ""
    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class ExecAction(ApiStruct, frozen=True):
    command: tuple[str, ...] = ()


class HTTPHeader(ApiStruct, frozen=True):
    name: str = ""
    value: str = ""


class HTTPGetAction(ApiStruct, frozen=True):
    path: str = ""
    port: int | str = 0
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ApiStruct, frozen=True):
    port: int | str = 0
    host: str = ""


class GRPCAction(ApiStruct, frozen=True):
    port: int = 0
    service: str | None = None


class SleepAction(ApiStruct, frozen=True):
    seconds: int = 0


class Probe(ApiStruct, frozen=True):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None


class LifecycleHandler(ApiStruct, frozen=True):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(ApiStruct, frozen=True):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class Capabilities(ApiStruct, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SeccompProfile(ApiStruct, frozen=True):
    type: str = ""
    localhost_profile: str | None = None


class SecurityContext(ApiStruct, frozen=True):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None


class PodSecurityContext(ApiStruct, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[int, ...] = ()
    fs_group: int | None = None
    seccomp_profile: SeccompProfile | None = None


class VolumeMount(ApiStruct, frozen=True):
    name: str = ""
    read_only: bool = False
    mount_path: str = ""
    sub_path: str = ""


class Container(ApiStruct, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    restart_policy: str | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    image_pull_policy: str = ""
    termination_message_path: str = ""
    termination_message_policy: str = ""
    security_context: SecurityContext | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(ApiStruct, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""


class PodResourceClaim(ApiStruct, frozen=True):
    """`spec.resourceClaims[]`: a claim by name, or one made from a template for this pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class DownwardAPIVolumeFile(ApiStruct, frozen=True):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    resource_slice_attribute_ref: ResourceSliceAttributeSelector | None = None
    mode: int | None = None


class DownwardAPIVolumeSource(ApiStruct, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: int | None = None


class DownwardAPIProjection(ApiStruct, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()


class KeyToPath(ApiStruct, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class ObjectProjection(ApiStruct, frozen=True):
    """Keys of a ConfigMap or Secret as files."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ServiceAccountTokenProjection(ApiStruct, frozen=True):
    audience: str = ""
    expiration_seconds: int | None = None
    path: str = ""


class VolumeProjection(ApiStruct, frozen=True):
    downward_api: DownwardAPIProjection | None = msgspec.field(default=None, name="downwardAPI")
    config_map: ObjectProjection | None = None
    secret: ObjectProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None


class ConfigMapVolumeSource(ApiStruct, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class SecretVolumeSource(ApiStruct, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class EmptyDirVolumeSource(ApiStruct, frozen=True):
    medium: str = ""


class HostPathVolumeSource(ApiStruct, frozen=True):
    path: str = ""
    type: str | None = None


class ProjectedVolumeSource(ApiStruct, frozen=True):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class Volume(ApiStruct, frozen=True):
    """`spec.volumes[]`: only the types that the node agent serves."""

    name: str = ""
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolumeSource | None = None


class PodReadinessGate(ApiStruct, frozen=True):
    condition_type: str = ""


class PodSchedulingGate(ApiStruct, frozen=True):
    name: str = ""


class PodSchedulingGroup(ApiStruct, frozen=True):
    pod_group_name: str | None = None


class PodOS(ApiStruct, frozen=True):
    name: str = ""


class PodSpec(ApiStruct, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] = {}
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    security_context: PodSecurityContext | None = None
    service_account_name: str = ""
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_users: bool | None = None
    os: PodOS | None = None
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    overhead: dict[str, Quantity] = {}
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None


class PodCondition(ApiStruct, frozen=True):
    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class ContainerStateWaiting(ApiStruct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiStruct, frozen=True):
    started_at: str | None = None


class ContainerStateTerminated(ApiStruct, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(ApiStruct, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ResourceHealth(ApiStruct, frozen=True):
    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""
    message: str | None = None


class ResourceStatus(ApiStruct, frozen=True):
    """`allocatedResourcesStatus[]`: the health of the devices behind one claim of a container."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(ApiStruct, frozen=True):
    name: str = ""
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    started: bool | None = None
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodResourceClaimStatus(ApiStruct, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiStruct, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True):
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableMappedQuantity(ApiStruct, frozen=True):
    name: str = ""
    quantity: Quantity | None = None


class NodeAllocatableOverheadQuantity(ApiStruct, frozen=True):
    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableAccounting(ApiStruct, frozen=True):
    """How one mapped amount of a claim is counted, where that is not simply added once."""

    name: str = ""
    quantity: Quantity = Quantity.ZERO
    accounting_policy: str = ""


class NodeAllocatableResourceClaimStatus(ApiStruct, frozen=True):
    """What one claim adds to its pod: `resources` in the KEP's spelling, `mapping` and `overhead` in Kubernetes 1.37's.

    A resource named in `accounting` is counted as it says there, so that policies survive a scheduler's restart.
    """

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: dict[str, Quantity] = {}
    mapping: tuple[NodeAllocatableMappedQuantity, ...] = ()
    overhead: tuple[NodeAllocatableOverheadQuantity, ...] = ()
    accounting: tuple[NodeAllocatableAccounting, ...] = ()


class PodIP(ApiStruct, frozen=True):
    ip: str = ""


class PodStatus(ApiStruct, frozen=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    start_time: str | None = None
    qos_class: str = ""
    observed_generation: int = 0
    resize: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(ApiStruct, frozen=True, tag_field="kind", tag="Pod"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


# --- Node, Namespace -------------------------------------------------------------------------------------------------


class NodeSpec(ApiStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(ApiStruct, frozen=True):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(ApiStruct, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(ApiStruct, frozen=True):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: dict[str, Any] = {}
    declared_features: tuple[str, ...] = ()


class Node(ApiStruct, frozen=True, tag_field="kind", tag="Node"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NamespaceSpec(ApiStruct, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(ApiStruct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(ApiStruct, frozen=True, tag_field="kind", tag="Namespace"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NamespaceSpec = msgspec.field(default_factory=NamespaceSpec)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


# --- Event, Lease, ResourceQuota, PriorityClass ----------------------------------------------------------------------


class ObjectReference(ApiStruct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(ApiStruct, frozen=True):
    component: str = ""
    host: str = ""


class EventSeries(ApiStruct, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class Event(ApiStruct, frozen=True, tag_field="kind", tag="Event"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    source: EventSource = msgspec.field(default_factory=EventSource)
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int = 0
    type: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class LeaseSpec(ApiStruct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiStruct, frozen=True, tag_field="kind", tag="Lease"):
    api_version: str = msgspec.field(default_factory=lambda: "coordination.k8s.io/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ResourceQuotaSpec(ApiStruct, frozen=True):
    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()


class ResourceQuotaStatus(ApiStruct, frozen=True):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(ApiStruct, frozen=True, tag_field="kind", tag="ResourceQuota"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


class PriorityClass(ApiStruct, frozen=True, tag_field="kind", tag="PriorityClass"):
    api_version: str = msgspec.field(default_factory=lambda: "scheduling.k8s.io/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
