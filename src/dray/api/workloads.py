# Made by scripts/generate_api.py from scripts/api_structs.toml: change that file instead of this one.
"""Structs of Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, PodDisruptionBudget, PodGroup, ServiceAccount, ConfigMap, Service and
EndpointSlice, with the fields that our code reads.

A pod template stays a document, so that every field that a user writes in it reaches the pod.
"""

from typing import Any

import msgspec

from dray.api.base import ApiStruct
from dray.api.core import PodResourceClaim, PodResourceClaimStatus
from dray.api.meta import Condition, LabelSelector, ObjectMeta


class ServiceAccount(ApiStruct, frozen=True, tag_field="kind", tag="ServiceAccount"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ConfigMap(ApiStruct, frozen=True, tag_field="kind", tag="ConfigMap"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, str] = {}


class ServicePort(ApiStruct, frozen=True):
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    port: int = 0
    target_port: int | str = 0


class ServiceSpec(ApiStruct, frozen=True):
    type: str = ""
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    ip_families: tuple[str, ...] = ()
    publish_not_ready_addresses: bool = False


class Service(ApiStruct, frozen=True, tag_field="kind", tag="Service"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class EndpointSlice(ApiStruct, frozen=True, tag_field="kind", tag="EndpointSlice"):
    """Endpoints and ports stay documents: they are written and compared, not read."""

    api_version: str = msgspec.field(default_factory=lambda: "discovery.k8s.io/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    address_type: str = ""
    endpoints: tuple[dict[str, Any], ...] | None = None
    ports: tuple[dict[str, Any], ...] | None = None


class WorkloadCondition(ApiStruct, frozen=True):
    """A condition of a ReplicaSet, Deployment, DaemonSet or Job."""

    type: str = ""
    status: str = ""
    last_probe_time: str | None = None
    last_update_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class ReplicaSetSpec(ApiStruct, frozen=True):
    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    template: dict[str, Any] = {}


class ReplicaSetStatus(ApiStruct, frozen=True):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class ReplicaSet(ApiStruct, frozen=True, tag_field="kind", tag="ReplicaSet"):
    api_version: str = msgspec.field(default_factory=lambda: "apps/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ReplicaSetSpec = msgspec.field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class ReplicationControllerSpec(ApiStruct, frozen=True):
    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: dict[str, str] = {}
    template: dict[str, Any] = {}


class ReplicationController(ApiStruct, frozen=True, tag_field="kind", tag="ReplicationController"):
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: ReplicaSetStatus = msgspec.field(default_factory=ReplicaSetStatus)


class StatefulSetSpec(ApiStruct, frozen=True):
    replicas: int | None = None


class StatefulSet(ApiStruct, frozen=True, tag_field="kind", tag="StatefulSet"):
    api_version: str = msgspec.field(default_factory=lambda: "apps/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    min_available: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(ApiStruct, frozen=True, tag_field="kind", tag="PodDisruptionBudget"):
    api_version: str = msgspec.field(default_factory=lambda: "policy/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class RollingUpdate(ApiStruct, frozen=True):
    """Each a number of pods or a percentage."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class DeploymentStrategy(ApiStruct, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(ApiStruct, frozen=True):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] = {}
    strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(ApiStruct, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class Deployment(ApiStruct, frozen=True, tag_field="kind", tag="Deployment"):
    api_version: str = msgspec.field(default_factory=lambda: "apps/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class DaemonSetSpec(ApiStruct, frozen=True):
    selector: LabelSelector | None = None
    template: dict[str, Any] = {}
    update_strategy: DeploymentStrategy = msgspec.field(default_factory=DeploymentStrategy)
    min_ready_seconds: int = 0


class DaemonSetStatus(ApiStruct, frozen=True):
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0


class DaemonSet(ApiStruct, frozen=True, tag_field="kind", tag="DaemonSet"):
    api_version: str = msgspec.field(default_factory=lambda: "apps/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DaemonSetSpec = msgspec.field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = msgspec.field(default_factory=DaemonSetStatus)


class JobSpec(ApiStruct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] = {}


class JobStatus(ApiStruct, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: int | None = None
    completed_indexes: str = ""


class Job(ApiStruct, frozen=True, tag_field="kind", tag="Job"):
    api_version: str = msgspec.field(default_factory=lambda: "batch/v1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class PodGroupSpec(ApiStruct, frozen=True):
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodGroupStatus(ApiStruct, frozen=True):
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class PodGroup(ApiStruct, frozen=True, tag_field="kind", tag="PodGroup"):
    """Pods that are placed together. Its claims have the same shape as a pod's, and its pods may share them."""

    api_version: str = msgspec.field(default_factory=lambda: "scheduling.k8s.io/v1beta1")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)
