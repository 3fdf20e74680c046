"""Security contexts of pods and containers, as CRI runtimes take them."""

from typing import Any, TypeVar

from dray.api.core import Pod, PodSecurityContext, SeccompProfile, SecurityContext
from dray.kubelet.errors import ContainerError
from dray.proto import cri_v1_pb2 as cri

T = TypeVar("T")

CONFIG_ERROR = "CreateContainerConfigError"
MASKED = (
    *("/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    "/sys/devices/virtual/powercap",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def sandbox_security(pod: Pod, namespaces: Any) -> Any:
    shared = pod.spec.security_context or PodSecurityContext()
    context = cri.LinuxSandboxSecurityContext(
        namespace_options=namespaces,
        privileged=any(_of_container(pod, each.name).privileged for each in pod.spec.containers),
        supplemental_groups=_groups(shared),
        seccomp=_seccomp(shared.seccomp_profile),
    )
    if shared.run_as_user is not None:
        context.run_as_user.value = shared.run_as_user
    if shared.run_as_group is not None:
        context.run_as_group.value = shared.run_as_group
    return context


def container_security(pod: Pod, name: str, namespaces: Any) -> Any:
    """What the container says counts before what its pod says."""
    own, shared = _of_container(pod, name), pod.spec.security_context or PodSecurityContext()
    is_privileged, is_unmasked = bool(own.privileged), own.proc_mount == "Unmasked"
    context = cri.LinuxContainerSecurityContext(
        namespace_options=namespaces,
        privileged=is_privileged,
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        supplemental_groups=_groups(shared),
        masked_paths=() if is_unmasked or is_privileged else MASKED,
        readonly_paths=() if is_unmasked or is_privileged else READ_ONLY,
        seccomp=_seccomp(None if is_privileged else own.seccomp_profile or shared.seccomp_profile),
    )
    if own.capabilities is not None:
        added, dropped = own.capabilities.add, own.capabilities.drop
        context.capabilities.CopyFrom(cri.Capability(add_capabilities=added, drop_capabilities=dropped))
    user, group = _user(own, shared), _first(own.run_as_group, shared.run_as_group)
    if user is not None:
        context.run_as_user.value = user
    if group is not None:
        context.run_as_group.value = group
    return context


def check_users_of_pod(pod: Pod) -> None:
    """Refuses a pod that wants users of its own, which this agent does not make: its root would be root of the node.

    Pod Security lets such a pod be root, and see all of /proc, because it counts on these users.
    """
    if pod.spec.host_users is False:
        text = "the pod has hostUsers: false, and this node agent makes no user namespaces with the cri runtime"
        raise ContainerError("CreatePodSandboxError", text)


def check_user(pod: Pod, name: str, image_user: int | None, image_user_name: str) -> None:
    """Refuses a container that must not run as root and would, or of which nobody can tell."""
    own, shared = _of_container(pod, name), pod.spec.security_context or PodSecurityContext()
    if not _first(own.run_as_non_root, shared.run_as_non_root):
        return
    user = _user(own, shared)
    if user == 0:
        raise ContainerError(CONFIG_ERROR, "container's runAsUser breaks non-root policy")
    if user is not None:
        return
    if image_user_name:
        text = f"container has runAsNonRoot and image has non-numeric user ({image_user_name}), cannot verify user is non-root"
        raise ContainerError(CONFIG_ERROR, text)
    if not image_user:
        raise ContainerError(CONFIG_ERROR, "container has runAsNonRoot and image will run as root")


def _of_container(pod: Pod, name: str) -> SecurityContext:
    spec = pod.spec
    for group in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for each in group:
            if each.name == name:
                return each.security_context or SecurityContext()
    return SecurityContext()


def _user(own: SecurityContext, shared: PodSecurityContext) -> int | None:
    return _first(own.run_as_user, shared.run_as_user)


def _first(*values: T | None) -> T | None:
    return next((value for value in values if value is not None), None)


def _groups(shared: PodSecurityContext) -> list[int]:
    return [*shared.supplemental_groups, *([shared.fs_group] if shared.fs_group is not None else [])]


def _seccomp(profile: SeccompProfile | None) -> Any:
    if profile is None or profile.type == "Unconfined":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined)
    if profile.type == "RuntimeDefault":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)
    path = f"/var/lib/kubelet/seccomp/{profile.localhost_profile}"
    return cri.SecurityProfile(profile_type=cri.SecurityProfile.Localhost, localhost_ref=path)
