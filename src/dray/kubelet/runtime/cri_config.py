"""Pods and containers in the words of CRI. Pure."""

from typing import Any

from dray.accounting import CgroupValues
from dray.api.core import Pod
from dray.kubelet.runtime.interface import ContainerSpec
from dray.proto import cri_v1_pb2 as cri

LABEL_UID = "io.kubernetes.pod.uid"
LABEL_NAME = "io.kubernetes.pod.name"
LABEL_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_CONTAINER = "io.kubernetes.container.name"
PERIOD_US = 100_000


def pod_labels(pod: Pod) -> dict[str, str]:
    metadata = pod.metadata
    return {LABEL_UID: metadata.uid, LABEL_NAME: metadata.name, LABEL_NAMESPACE: metadata.namespace}


def sandbox_config(pod: Pod, cgroup: CgroupValues | None, attempt: int = 0, log_directory: str = "") -> Any:
    """`attempt` tells a sandbox from the ones the same pod had before: runtimes take no name twice."""
    metadata = pod.metadata
    linux = cri.LinuxPodSandboxConfig(
        security_context=cri.LinuxSandboxSecurityContext(namespace_options=namespaces(pod))
    )
    if cgroup is not None:
        linux.resources.CopyFrom(resources(cgroup, None))
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=metadata.name, uid=metadata.uid, namespace=metadata.namespace, attempt=attempt
        ),
        # A pod in the node's network has the node's name, too.
        hostname="" if pod.spec.host_network else metadata.name[:63],
        log_directory=log_directory,
        labels={**metadata.labels, **pod_labels(pod)},
        linux=linux,
    )


def container_config(pod: Pod, spec: ContainerSpec) -> Any:
    """The edits of CDI are the runtime's to apply: it gets the names, and the environment without them."""
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in spec.env.items()],
        labels={**pod_labels(pod), LABEL_CONTAINER: spec.name},
        log_path=f"{spec.name}/{spec.attempt}.log",
        CDI_devices=[cri.CDIDevice(name=name) for name in spec.cdi_device_ids],
        linux=cri.LinuxContainerConfig(
            security_context=cri.LinuxContainerSecurityContext(namespace_options=namespaces(pod))
        ),
    )
    if spec.cgroup is not None:
        config.linux.resources.CopyFrom(resources(spec.cgroup, spec.oom_score_adj))
    return config


def namespaces(pod: Pod) -> Any:
    spec = pod.spec
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        pid=cri.NODE if spec.host_pid else cri.CONTAINER,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
    )


def resources(values: CgroupValues, oom_score_adj: int | None) -> Any:
    return cri.LinuxContainerResources(
        cpu_period=PERIOD_US,
        cpu_quota=values.cpu_quota_us,
        cpu_shares=values.cpu_shares,
        memory_limit_in_bytes=values.memory_max or 0,
        oom_score_adj=oom_score_adj or 0,
        hugepage_limits=[cri.HugepageLimit(page_size=size, limit=limit) for size, limit in values.hugetlb.items()],
    )
