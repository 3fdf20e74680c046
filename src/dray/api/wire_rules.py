"""Where the wire form departs from "what is empty is left out".

The schema table knows names and types, not how Kubernetes writes a field that holds nothing. Three things need saying: a
scalar whose zero is a value of its own (`KEPT_ZERO`), a plain scalar of a core type whose zero is left out (`DROPPED_ZERO`),
and a field that is written even when it holds nothing (`ALWAYS`). Types go by their short name, in all versions.
"""

# Core types: a written false or 0 is kept unless it is here. (`""` is left out unless it is in KEPT_ZERO.)
DROPPED_ZERO = frozenset(
    {
        ("PodSpec", "hostNetwork"), ("PodSpec", "hostPID"), ("PodSpec", "hostIPC"),
        ("Container", "stdin"), ("Container", "stdinOnce"), ("Container", "tty"),
        ("EphemeralContainer", "stdin"), ("EphemeralContainer", "stdinOnce"), ("EphemeralContainer", "tty"),
        ("ContainerPort", "hostPort"), ("VolumeMount", "readOnly"),
        ("Probe", "initialDelaySeconds"), ("Probe", "timeoutSeconds"), ("Probe", "periodSeconds"),
        ("Probe", "successThreshold"), ("Probe", "failureThreshold"),
        ("NodeSpec", "unschedulable"), ("ObjectMeta", "generation"), ("Condition", "observedGeneration"),
        ("PodCondition", "observedGeneration"), ("PodStatus", "observedGeneration"),
        ("PersistentVolumeClaimVolumeSource", "readOnly"), ("PriorityClass", "globalDefault"), ("Event", "count"),
        ("Event", "deprecatedCount"), ("DeploymentStatus", "replicas"), ("DeploymentStatus", "readyReplicas"),
        ("DeploymentStatus", "updatedReplicas"), ("DeploymentStatus", "availableReplicas"),
        ("DeploymentStatus", "unavailableReplicas"), ("DeploymentStatus", "observedGeneration"),
        ("DeploymentSpec", "minReadySeconds"), ("DeploymentSpec", "paused"), ("ReplicaSetSpec", "minReadySeconds"),
        ("ReplicaSetStatus", "readyReplicas"), ("ReplicaSetStatus", "availableReplicas"),
        ("ReplicaSetStatus", "fullyLabeledReplicas"), ("ReplicaSetStatus", "observedGeneration"),
        ("DaemonSetSpec", "minReadySeconds"), ("DaemonSetStatus", "updatedNumberScheduled"),
        ("DaemonSetStatus", "numberAvailable"), ("DaemonSetStatus", "numberUnavailable"),
        ("DaemonSetStatus", "observedGeneration"), ("JobStatus", "active"), ("JobStatus", "succeeded"),
        ("JobStatus", "failed"), ("SubjectAccessReviewStatus", "denied"), ("TokenReviewStatus", "authenticated"),
        ("ServicePort", "nodePort"), ("ServiceSpec", "healthCheckNodePort"), ("ServiceSpec", "publishNotReadyAddresses"),
        ("ContainerImage", "sizeBytes"), ("ContainerStateTerminated", "signal"), ("EventSeries", "count"),
        ("VolumeMountStatus", "readOnly"), ("PodDisruptionBudgetStatus", "observedGeneration"),
        ("ValidatingAdmissionPolicyStatus", "observedGeneration"), ("StatefulSetSpec", "minReadySeconds"),
        ("AWSElasticBlockStoreVolumeSource", "partition"), ("GCEPersistentDiskVolumeSource", "partition"),
        ("ISCSIVolumeSource", "chapAuthDiscovery"), ("ISCSIVolumeSource", "chapAuthSession"),
        ("ScaleIOVolumeSource", "sslEnabled"),
        *((f"{name}VolumeSource", "readOnly") for name in (
            "AWSElasticBlockStore", "AzureFile", "CephFS", "Cinder", "FC", "Flex", "GCEPersistentDisk", "Glusterfs", "ISCSI",
            "NFS", "Portworx", "Quobyte", "RBD", "ScaleIO", "StorageOS")),
    }
)  # fmt: skip

# resource.k8s.io types leave out every zero but these; core types leave out "" but these.
KEPT_ZERO = frozenset(
    {
        ("ResourceSliceSpec", "nodeName"), ("ResourceSliceSpec", "allNodes"),
        ("ResourceSliceSpec", "perDeviceNodeSelection"), ("ResourceSliceSpec", "partitionTypeAttribute"),
        ("Device", "nodeName"), ("Device", "allNodes"), ("Device", "bindsToNode"), ("Device", "allowMultipleAllocations"),
        ("BasicDevice", "nodeName"), ("BasicDevice", "allNodes"), ("BasicDevice", "bindsToNode"),
        ("BasicDevice", "allowMultipleAllocations"),
        ("DeviceAttribute", "int"), ("DeviceAttribute", "bool"), ("DeviceAttribute", "string"),
        ("DeviceAttribute", "version"), ("DeviceClassSpec", "extendedResourceName"),
        ("ExactDeviceRequest", "adminAccess"), ("DeviceRequest", "adminAccess"),
        ("DeviceToleration", "tolerationSeconds"), ("DeviceConstraint", "matchAttribute"),
        ("DeviceConstraint", "distinctAttribute"), ("DeviceTaintSelector", "driver"), ("DeviceTaintSelector", "pool"),
        ("DeviceTaintSelector", "device"), ("DeviceRequestAllocationResult", "adminAccess"),
        ("DeviceRequestAllocationResult", "shareID"), ("AllocatedDeviceStatus", "shareID"),
        ("NodeAllocatableResourceMapping", "capacityKey"), ("DeviceNodeAllocatableResourceMapping", "capacityKey"),
        ("ResourcePoolStatusRequestSpec", "poolName"), ("ResourcePoolStatusRequestSpec", "limit"),
        ("ResourcePoolStatusRequestSpec", "defaultPartitionTypeAttribute"),
        ("ResourcePoolStatusRequestStatus", "poolCount"),
        ("PoolStatus", "totalDevices"), ("PoolStatus", "allocatedDevices"), ("PoolStatus", "availableDevices"),
        ("PoolStatus", "unavailableDevices"), ("PoolStatus", "resourceSliceCount"), ("PoolStatus", "nodeName"),
        ("PoolStatus", "validationError"), ("Condition", "message"), ("Condition", "reason"),
        ("PodResourceClaim", "resourceClaimName"), ("PodResourceClaim", "resourceClaimTemplateName"),
        ("PodResourceClaimStatus", "resourceClaimName"), ("PodSpec", "runtimeClassName"),
        ("PodGroupResourceClaim", "resourceClaimName"), ("PodGroupResourceClaim", "resourceClaimTemplateName"),
        ("PodGroupResourceClaimStatus", "resourceClaimName"),
        ("PodSpec", "preemptionPolicy"), ("LeaseSpec", "holderIdentity"), ("EnvVar", "name"),
        ("OwnerReference", "apiVersion"), ("OwnerReference", "kind"), ("OwnerReference", "name"),
        ("OwnerReference", "uid"), ("SubjectAccessReviewStatus", "allowed"), ("LeaseSpec", "preferredHolder"),
    }
)  # fmt: skip

# Lists whose emptiness says something while a request is handled: a pod's status clears rather than keeps them, validation
# counts them as set. `dray.api.shaping.as_written` takes out those that are left.
KEPT_EMPTY = frozenset(
    {
        ("PodStatus", "resourceClaimStatuses"), ("PodStatus", "nodeAllocatableResourceClaimStatuses"),
        ("ResourceSliceSpec", "devices"), ("ResourceSliceSpec", "sharedCounters"),
        ("DeviceAttribute", "ints"), ("DeviceAttribute", "bools"), ("DeviceAttribute", "strings"),
        ("DeviceAttribute", "versions"),
    }
)  # fmt: skip

EMPTY_STRUCT = "{}"
NULL = "null"
ZERO = "zero"
# Written in every object: as an empty object, as null, or as the zero of its type.
ALWAYS: dict[tuple[str, str], str] = {
    ("ResourceClaim", "metadata"): EMPTY_STRUCT, ("ResourceClaim", "spec"): EMPTY_STRUCT,
    ("ResourceClaim", "status"): EMPTY_STRUCT, ("ResourceClaimSpec", "devices"): EMPTY_STRUCT,
    ("DeviceClaim", "requests"): NULL, ("AllocationResult", "devices"): EMPTY_STRUCT,
    ("ResourceClaimTemplate", "spec"): EMPTY_STRUCT, ("ResourceClaimTemplateSpec", "metadata"): EMPTY_STRUCT,
    ("ResourceClaimTemplateSpec", "spec"): EMPTY_STRUCT,
    ("AllocatedDeviceStatus", "driver"): ZERO, ("AllocatedDeviceStatus", "pool"): ZERO,
    ("AllocatedDeviceStatus", "device"): ZERO, ("AllocatedDeviceStatus", "conditions"): NULL,
    ("DeviceRequestAllocationResult", "request"): ZERO, ("DeviceRequestAllocationResult", "driver"): ZERO,
    ("DeviceRequestAllocationResult", "pool"): ZERO, ("DeviceRequestAllocationResult", "device"): ZERO,
    ("ResourceClaimConsumerReference", "resource"): ZERO, ("ResourceClaimConsumerReference", "name"): ZERO,
    ("ResourceClaimConsumerReference", "uid"): ZERO,
    ("ResourceSlice", "spec"): EMPTY_STRUCT, ("ResourceSliceSpec", "driver"): ZERO,
    ("ResourceSliceSpec", "pool"): EMPTY_STRUCT, ("ResourcePool", "name"): ZERO,
    ("ResourcePool", "generation"): ZERO, ("ResourcePool", "resourceSliceCount"): ZERO,
    ("Device", "name"): ZERO, ("DeviceCapacity", "value"): ZERO, ("Counter", "value"): ZERO,
    ("CounterSet", "name"): ZERO, ("CounterSet", "counters"): NULL,
    ("DeviceCounterConsumption", "counterSet"): ZERO, ("DeviceCounterConsumption", "counters"): NULL,
    ("CapacityRequestPolicy", "default"): NULL, ("DeviceTaint", "key"): ZERO, ("DeviceTaint", "effect"): ZERO,
    ("DeviceRequest", "name"): ZERO, ("DeviceSubRequest", "name"): ZERO,
    ("DeviceSubRequest", "deviceClassName"): ZERO, ("ExactDeviceRequest", "deviceClassName"): ZERO,
    ("CELDeviceSelector", "expression"): ZERO, ("OpaqueDeviceConfiguration", "driver"): ZERO,
    ("DeviceAllocationConfiguration", "source"): ZERO,
    ("DeviceClass", "spec"): EMPTY_STRUCT, ("DeviceTaintRule", "spec"): EMPTY_STRUCT,
    ("DeviceTaintRule", "status"): EMPTY_STRUCT, ("DeviceTaintRuleSpec", "taint"): EMPTY_STRUCT,
    ("ResourcePoolStatusRequest", "spec"): EMPTY_STRUCT, ("ResourcePoolStatusRequestSpec", "driver"): ZERO,
    ("Pod", "spec"): EMPTY_STRUCT, ("Pod", "status"): EMPTY_STRUCT, ("PodSpec", "containers"): NULL,
    ("Container", "name"): ZERO, ("Container", "resources"): EMPTY_STRUCT, ("EnvVar", "name"): ZERO,
    ("ContainerStatus", "state"): EMPTY_STRUCT, ("ContainerStatus", "lastState"): EMPTY_STRUCT,
    ("ContainerStatus", "name"): ZERO, ("ContainerStatus", "ready"): ZERO, ("ContainerStatus", "restartCount"): ZERO,
    ("ContainerStatus", "image"): ZERO, ("ContainerStatus", "imageID"): ZERO,
    ("ContainerStateRunning", "startedAt"): NULL, ("ContainerStateTerminated", "exitCode"): ZERO,
    ("ContainerStateTerminated", "startedAt"): NULL, ("ContainerStateTerminated", "finishedAt"): NULL,
    ("PodCondition", "type"): ZERO, ("PodCondition", "status"): ZERO, ("PodCondition", "lastProbeTime"): NULL,
    ("PodCondition", "lastTransitionTime"): NULL,
    ("PodExtendedResourceClaimStatus", "requestMappings"): NULL,
    ("PodTemplateSpec", "metadata"): EMPTY_STRUCT, ("PodTemplateSpec", "spec"): EMPTY_STRUCT,
    ("Node", "spec"): EMPTY_STRUCT, ("Node", "status"): EMPTY_STRUCT, ("NodeStatus", "daemonEndpoints"): EMPTY_STRUCT,
    ("NodeDaemonEndpoints", "kubeletEndpoint"): EMPTY_STRUCT, ("DaemonEndpoint", "Port"): ZERO,
    ("NodeStatus", "nodeInfo"): EMPTY_STRUCT, ("NodeCondition", "lastHeartbeatTime"): NULL,
    ("NodeCondition", "lastTransitionTime"): NULL, ("Taint", "key"): ZERO, ("Taint", "effect"): ZERO,
    **{("NodeSystemInfo", name): ZERO for name in (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
        "kubeProxyVersion", "operatingSystem", "architecture")},
    ("NodeSelector", "nodeSelectorTerms"): NULL,
    ("Namespace", "spec"): EMPTY_STRUCT, ("Namespace", "status"): EMPTY_STRUCT,
    ("ResourceQuota", "spec"): EMPTY_STRUCT, ("ResourceQuota", "status"): EMPTY_STRUCT,
    ("Event", "metadata"): EMPTY_STRUCT, ("Event", "involvedObject"): EMPTY_STRUCT, ("Event", "source"): EMPTY_STRUCT,
    ("Event", "firstTimestamp"): NULL, ("Event", "lastTimestamp"): NULL, ("Event", "eventTime"): NULL,
    ("Event", "reportingComponent"): ZERO, ("Event", "reportingInstance"): ZERO,
    ("Event", "regarding"): EMPTY_STRUCT, ("Event", "deprecatedSource"): EMPTY_STRUCT,
    ("Event", "deprecatedFirstTimestamp"): NULL, ("Event", "deprecatedLastTimestamp"): NULL,
    ("Lease", "spec"): EMPTY_STRUCT, ("PriorityClass", "value"): ZERO,
    ("PodGroup", "spec"): EMPTY_STRUCT, ("PodGroup", "status"): EMPTY_STRUCT, ("Workload", "spec"): EMPTY_STRUCT,
    ("PodGroupSpec", "schedulingPolicy"): EMPTY_STRUCT, ("PodGroupTemplate", "schedulingPolicy"): EMPTY_STRUCT,
    ("Role", "rules"): NULL, ("ClusterRole", "rules"): NULL, ("PolicyRule", "verbs"): NULL,
    ("RoleBinding", "roleRef"): EMPTY_STRUCT, ("ClusterRoleBinding", "roleRef"): EMPTY_STRUCT,
    ("RoleRef", "apiGroup"): ZERO, ("RoleRef", "kind"): ZERO, ("RoleRef", "name"): ZERO,
    ("Subject", "kind"): ZERO, ("Subject", "name"): ZERO,
    ("Deployment", "spec"): EMPTY_STRUCT, ("Deployment", "status"): EMPTY_STRUCT, ("DeploymentSpec", "selector"): NULL,
    ("DeploymentSpec", "template"): EMPTY_STRUCT, ("DeploymentSpec", "strategy"): EMPTY_STRUCT,
    ("ReplicaSet", "spec"): EMPTY_STRUCT, ("ReplicaSet", "status"): EMPTY_STRUCT, ("ReplicaSetSpec", "selector"): NULL,
    ("ReplicaSetSpec", "template"): EMPTY_STRUCT, ("ReplicaSetStatus", "replicas"): ZERO,
    ("DaemonSet", "spec"): EMPTY_STRUCT, ("DaemonSet", "status"): EMPTY_STRUCT, ("DaemonSetSpec", "selector"): NULL,
    ("DaemonSetSpec", "template"): EMPTY_STRUCT, ("DaemonSetSpec", "updateStrategy"): EMPTY_STRUCT,
    ("DaemonSetStatus", "currentNumberScheduled"): ZERO, ("DaemonSetStatus", "numberMisscheduled"): ZERO,
    ("DaemonSetStatus", "desiredNumberScheduled"): ZERO, ("DaemonSetStatus", "numberReady"): ZERO,
    ("Service", "spec"): EMPTY_STRUCT, ("Service", "status"): EMPTY_STRUCT,
    ("ServiceStatus", "loadBalancer"): EMPTY_STRUCT, ("ServicePort", "port"): ZERO, ("ServicePort", "targetPort"): ZERO,
    ("Job", "spec"): EMPTY_STRUCT, ("Job", "status"): EMPTY_STRUCT, ("JobSpec", "template"): EMPTY_STRUCT,
    ("PodDisruptionBudget", "spec"): EMPTY_STRUCT, ("PodDisruptionBudget", "status"): EMPTY_STRUCT,
    ("PodDisruptionBudgetStatus", "disruptionsAllowed"): ZERO, ("PodDisruptionBudgetStatus", "currentHealthy"): ZERO,
    ("PodDisruptionBudgetStatus", "desiredHealthy"): ZERO, ("PodDisruptionBudgetStatus", "expectedPods"): ZERO,
    ("ValidatingAdmissionPolicy", "spec"): EMPTY_STRUCT, ("ValidatingAdmissionPolicy", "status"): EMPTY_STRUCT,
    ("ValidatingAdmissionPolicyBinding", "spec"): EMPTY_STRUCT, ("Validation", "expression"): ZERO,
    ("SelfSubjectReview", "status"): EMPTY_STRUCT, ("SelfSubjectReviewStatus", "userInfo"): EMPTY_STRUCT,
    ("TokenReview", "spec"): EMPTY_STRUCT, ("TokenReview", "status"): EMPTY_STRUCT,
    ("TokenReviewStatus", "user"): EMPTY_STRUCT, ("SubjectAccessReview", "spec"): EMPTY_STRUCT,
    ("SubjectAccessReview", "status"): EMPTY_STRUCT, ("SelfSubjectAccessReview", "spec"): EMPTY_STRUCT,
    ("SelfSubjectAccessReview", "status"): EMPTY_STRUCT, ("LocalSubjectAccessReview", "spec"): EMPTY_STRUCT,
    ("LocalSubjectAccessReview", "status"): EMPTY_STRUCT, ("SubjectAccessReviewStatus", "allowed"): ZERO,
}  # fmt: skip

# v1beta1 differs: a device's content is below `basic`, a request prints its class even when it has none, and the node
# of a slice is a plain text.
ALWAYS_V1BETA1: dict[tuple[str, str], str] = {
    ("Device", "basic"): EMPTY_STRUCT,
    ("DeviceRequest", "deviceClassName"): ZERO,
}
DROPPED_ZERO_V1BETA1 = frozenset({("ResourceSliceSpec", "nodeName"), ("ResourceSliceSpec", "allNodes")})
