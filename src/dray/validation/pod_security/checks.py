"""The rules of Pod Security: each looks at one part of a pod and says in words what breaks it.

A rule returns what it found as a `ForbiddenSetting`, or None. Where a release of Kubernetes changed a rule, both forms are in the table, since a namespace may
ask for the rules of an older release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from dray.api.jsontext import go_json
from dray.api.safe_get import Document, mapping, mappings, part, text, texts
from dray.validation.pod_security.levels import BASELINE, RESTRICTED


@dataclass(frozen=True, slots=True)
class ForbiddenSetting:
    """Why a rule is broken: in general, and by what in this pod."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class CheckedPod:
    """A pod, or the template of one, with the containers of all three lists."""

    spec: Document
    annotations: Mapping[str, str]
    containers: tuple[Document, ...]

    @classmethod
    def of(cls, document: Document) -> CheckedPod:
        spec = mapping(document, "spec")
        fields = ("initContainers", "containers", "ephemeralContainers")
        containers = tuple(container for field in fields for container in mappings(spec, field))
        return cls(spec, texts(document, "metadata", "annotations"), containers)

    @property
    def context(self) -> Document:
        return mapping(self.spec, "securityContext")

    @property
    def contexts(self) -> Iterator[Document]:
        """The security contexts of the pod and of its containers."""
        yield self.context
        yield from (mapping(container, "securityContext") for container in self.containers)

    @property
    def is_for_windows(self) -> bool:
        return text(self.spec, "os", "name") == "windows"

    @property
    def has_own_users(self) -> bool:
        """Root of the pod is nobody on the node."""
        return self.spec.get("hostUsers") is False

    def names(self, is_bad: Callable[[Document], bool]) -> list[str]:
        """The containers that break a rule."""
        return [text(container, "name") for container in self.containers if is_bad(container)]

    def setters(self, is_bad: Callable[[Document], bool]) -> str:
        """Those with a security context that breaks a rule, in words: `pod and container "a"`."""
        found = ["pod"] if is_bad(self.context) else []
        names = self.names(lambda container: is_bad(mapping(container, "securityContext")))
        if names:
            found.append(_containers(names))
        return " and ".join(found)


CheckPod = Callable[[CheckedPod], ForbiddenSetting | None]


# --- words ------------------------------------------------------------------------------------------------------------


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _containers(names: list[str]) -> str:
    return f"{_plural('container', len(names))} {_quoted(names)}"


def _use(names: list[str]) -> str:
    return "uses" if len(names) == 1 else "use"


# --- baseline ---------------------------------------------------------------------------------------------------------

_APP_ARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = ("RuntimeDefault", "Localhost")


def _has_other_profile(field: str, context: Document) -> bool:
    profile = context.get(field)
    return isinstance(profile, dict) and text(profile, "type") not in _PROFILES


def _other_profiles(pod: CheckedPod, field: str) -> list[str]:
    return sorted({text(context, field, "type") for context in pod.contexts if _has_other_profile(field, context)})


def app_armor_profile(pod: CheckedPod) -> ForbiddenSetting | None:
    setters = pod.setters(partial(_has_other_profile, "appArmorProfile"))
    values = _other_profiles(pod, "appArmorProfile")
    annotations = [
        f"{key}={go_json(value)}"
        for key, value in sorted(pod.annotations.items())
        if key.startswith(_APP_ARMOR_PREFIX) and value not in ("", "runtime/default") and not _is_local(value)
    ]
    if annotations:
        values += annotations
        words = _plural("annotation", len(annotations))
        setters = f"{setters} and {words}" if setters else words
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", len(values))
    return ForbiddenSetting(reason, f"{setters} must not set AppArmor profile type to {_quoted(values)}")


def _is_local(profile: str) -> bool:
    return profile.startswith("localhost/")


_USUAL_CAPABILITIES = frozenset(
    [
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ]
)


def _added(container: Document, allowed: Iterable[str]) -> set[str]:
    added = part(container, "securityContext", "capabilities", "add")
    return set(added).difference(allowed) if isinstance(added, list) else set()


def _forbidden_additions(pod: CheckedPod, allowed: Iterable[str]) -> str:
    names = pod.names(lambda container: bool(_added(container, allowed)))
    if not names:
        return ""
    found = set[str]().union(*(_added(container, allowed) for container in pod.containers))
    return f"{_containers(names)} must not include {_quoted(sorted(found))} in securityContext.capabilities.add"


def usual_capabilities(pod: CheckedPod) -> ForbiddenSetting | None:
    detail = _forbidden_additions(pod, _USUAL_CAPABILITIES)
    return ForbiddenSetting("non-default capabilities", detail) if detail else None


def host_namespaces(pod: CheckedPod) -> ForbiddenSetting | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field)]
    return ForbiddenSetting("host namespaces", ", ".join(found)) if found else None


def host_path_volumes(pod: CheckedPod) -> ForbiddenSetting | None:
    found = [text(volume, "name") for volume in mappings(pod.spec, "volumes") if volume.get("hostPath") is not None]
    return ForbiddenSetting("hostPath volumes", f"{_plural('volume', len(found))} {_quoted(found)}") if found else None


def _host_ports(container: Document) -> set[str]:
    return {str(port["hostPort"]) for port in mappings(container, "ports") if port.get("hostPort")}


def host_ports(pod: CheckedPod) -> ForbiddenSetting | None:
    names = pod.names(lambda container: bool(_host_ports(container)))
    if not names:
        return None
    ports = sorted(set[str]().union(*map(_host_ports, pod.containers)))
    words = f"{_containers(names)} {_use(names)} {_plural('hostPort', len(ports))} {', '.join(ports)}"
    return ForbiddenSetting("hostPort", words)


_HANDLERS = (
    *(("livenessProbe",), ("readinessProbe",), ("startupProbe",)),
    *(("lifecycle", "postStart"), ("lifecycle", "preStop")),
)


def _probed_hosts(container: Document) -> set[str]:
    found = {text(container, *path, way, "host") for path in _HANDLERS for way in ("httpGet", "tcpSocket")}
    return found - {""}


def probed_hosts(pod: CheckedPod) -> ForbiddenSetting | None:
    names = sorted(set(pod.names(lambda container: bool(_probed_hosts(container)))))
    if not names:
        return None
    hosts = sorted(set[str]().union(*map(_probed_hosts, pod.containers)))
    reason = "probe or lifecycle host"
    return ForbiddenSetting(
        reason, f"{_containers(names)} {_use(names)} {_plural(reason, len(hosts))} {_quoted(hosts)}"
    )


def privileged(pod: CheckedPod) -> ForbiddenSetting | None:
    names = pod.names(lambda container: part(container, "securityContext", "privileged") is True)
    detail = f"{_containers(names)} must not set securityContext.privileged=true"
    return ForbiddenSetting("privileged", detail) if names else None


def _proc_mount(container: Document) -> str:
    found = part(container, "securityContext", "procMount")
    return found if isinstance(found, str) else "Default"


def proc_mount(pod: CheckedPod) -> ForbiddenSetting | None:
    names = pod.names(lambda container: _proc_mount(container) != "Default")
    if not names:
        return None
    values = sorted(set(map(_proc_mount, pod.containers)) - {"Default"})
    return ForbiddenSetting(
        "procMount", f"{_containers(names)} must not set securityContext.procMount to {_quoted(values)}"
    )


_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t")


def selinux_options(types: tuple[str, ...], pod: CheckedPod) -> ForbiddenSetting | None:
    def is_bad(context: Document) -> bool:
        options = mapping(context, "seLinuxOptions")
        return text(options, "type") not in types or bool(text(options, "user") or text(options, "role"))

    setters = pod.setters(is_bad)
    if not setters:
        return None
    options = [mapping(context, "seLinuxOptions") for context in pod.contexts]
    other_types = sorted({text(entry, "type") for entry in options}.difference(types))
    found = [f"{_plural('type', len(other_types))} {_quoted(other_types)}"] if other_types else []
    found += [f"{field} may not be set" for field in ("user", "role") if any(text(entry, field) for entry in options)]
    return ForbiddenSetting(
        "seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(found)}"
    )


_SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"


def seccomp_annotations(pod: CheckedPod) -> ForbiddenSetting | None:
    """Before 1.19 annotations named the profile."""
    keys = {_SECCOMP_OF_POD, *(_SECCOMP_OF_CONTAINER + text(container, "name") for container in pod.containers)}
    found = [
        f"{key}={go_json(value)}"
        for key in sorted(keys.intersection(pod.annotations))
        if (value := pod.annotations[key]) not in ("runtime/default", "docker/default") and not _is_local(value)
    ]
    words = f"forbidden {_plural('annotation', len(found))} {', '.join(found)}"
    return ForbiddenSetting("seccompProfile", words) if found else None


def seccomp_profile(pod: CheckedPod) -> ForbiddenSetting | None:
    setters = pod.setters(partial(_has_other_profile, "seccompProfile"))
    if not setters:
        return None
    values = _quoted(_other_profiles(pod, "seccompProfile"))
    return ForbiddenSetting("seccompProfile", f"{setters} must not set securityContext.seccompProfile.type to {values}")


_SYSCTLS = (
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
    *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"),
)
_SYSCTLS_27 = (*_SYSCTLS, "net.ipv4.ip_local_reserved_ports")
_SYSCTLS_29 = (
    *(*_SYSCTLS_27, "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout"),
    *("net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"),
)
_SYSCTLS_32 = (*_SYSCTLS_29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_SYSCTLS_37 = (*_SYSCTLS_32, "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat")


def sysctls(allowed: tuple[str, ...], pod: CheckedPod) -> ForbiddenSetting | None:
    found = [name for entry in mappings(pod.context, "sysctls") if (name := text(entry, "name")) not in allowed]
    return ForbiddenSetting("forbidden sysctls", ", ".join(found)) if found else None


def windows_host_process(pod: CheckedPod) -> ForbiddenSetting | None:
    setters = pod.setters(lambda context: part(context, "windowsOptions", "hostProcess") is True)
    detail = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return ForbiddenSetting("hostProcess", detail) if setters else None


# --- restricted -------------------------------------------------------------------------------------------------------


def no_privilege_escalation(pod: CheckedPod) -> ForbiddenSetting | None:
    names = pod.names(lambda container: part(container, "securityContext", "allowPrivilegeEscalation") is not False)
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return ForbiddenSetting("allowPrivilegeEscalation != false", detail) if names else None


def _drops_all(container: Document) -> bool:
    dropped = part(container, "securityContext", "capabilities", "drop")
    return isinstance(dropped, list) and "ALL" in dropped


def few_capabilities(pod: CheckedPod) -> ForbiddenSetting | None:
    names = pod.names(lambda container: not _drops_all(container))
    found = [f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]'] if names else []
    added = _forbidden_additions(pod, ("NET_BIND_SERVICE",))
    if added:
        found.append(added)
    return ForbiddenSetting("unrestricted capabilities", "; ".join(found)) if found else None


_USUAL_VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
    "secret",
)
_OTHER_VOLUMES = (
    *("hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd"),
    *("flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk"),
    *("photonPersistentDisk", "portworxVolume", "scaleIO", "storageos"),
)


def _has_source(volume: Document, sources: Iterable[str]) -> str:
    return next((source for source in sources if volume.get(source) is not None), "")


def usual_volumes(pod: CheckedPod) -> ForbiddenSetting | None:
    others = [volume for volume in mappings(pod.spec, "volumes") if not _has_source(volume, _USUAL_VOLUMES)]
    if not others:
        return None
    names = [text(volume, "name") for volume in others]
    types = sorted({_has_source(volume, _OTHER_VOLUMES) or "unknown" for volume in others})
    words = f"{_plural('volume', len(names))} {_quoted(names)} {_use(names)}"
    return ForbiddenSetting(
        "restricted volume types", f"{words} {_plural('restricted volume type', len(types))} {_quoted(types)}"
    )


def run_as_non_root(pod: CheckedPod) -> ForbiddenSetting | None:
    reason = "runAsNonRoot != true"
    setters = pod.setters(lambda context: context.get("runAsNonRoot") is False)
    if setters:
        return ForbiddenSetting(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    if pod.context.get("runAsNonRoot") is True:
        return None
    names = pod.names(lambda container: part(container, "securityContext", "runAsNonRoot") is None)
    detail = f"pod or {_containers(names)} must set securityContext.runAsNonRoot=true"
    return ForbiddenSetting(reason, detail) if names else None


def run_as_user(pod: CheckedPod) -> ForbiddenSetting | None:
    setters = pod.setters(lambda context: context.get("runAsUser") == 0)
    return ForbiddenSetting("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def some_seccomp_profile(pod: CheckedPod) -> ForbiddenSetting | None:
    wrong = seccomp_profile(pod)
    if wrong or isinstance(pod.context.get("seccompProfile"), dict):
        return wrong
    names = pod.names(lambda container: not isinstance(part(container, "securityContext", "seccompProfile"), dict))
    kinds = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return ForbiddenSetting("seccompProfile", f"pod or {_containers(names)} {kinds}") if names else None


# --- the table --------------------------------------------------------------------------------------------------------


def _except_on_windows(check: CheckPod) -> CheckPod:
    return lambda pod: None if pod.is_for_windows else check(pod)


def _except_with_own_users(check: CheckPod) -> CheckPod:
    return lambda pod: None if pod.has_own_users else check(pod)


@dataclass(frozen=True, slots=True)
class Check:
    """A rule under its Kubernetes name, and the minor releases from which on it has each of its forms."""

    name: str
    level: str
    forms: Mapping[int, CheckPod]
    # The baseline rule whose place it takes where both would be asked.
    replaces: str = ""

    def at(self, minor: int) -> CheckPod | None:
        since = max((since for since in self.forms if since <= minor), default=None)
        return None if since is None else self.forms[since]


# In the order in which violations are listed.
CHECKS = (
    Check("appArmorProfile", BASELINE, {0: app_armor_profile}),
    Check("capabilities_baseline", BASELINE, {0: usual_capabilities}),
    Check("hostNamespaces", BASELINE, {0: host_namespaces}),
    Check("hostPathVolumes", BASELINE, {0: host_path_volumes}),
    Check("hostPorts", BASELINE, {0: host_ports}),
    Check("hostProbesAndHostLifecycle", BASELINE, {34: probed_hosts}),
    Check("privileged", BASELINE, {0: privileged}),
    Check("procMount", BASELINE, {0: proc_mount, 35: _except_with_own_users(proc_mount)}),
    Check(
        "seLinuxOptions",
        BASELINE,
        {
            0: partial(selinux_options, _SELINUX_TYPES),
            31: partial(selinux_options, (*_SELINUX_TYPES, "container_engine_t")),
        },
    ),
    Check("seccompProfile_baseline", BASELINE, {0: seccomp_annotations, 19: seccomp_profile}),
    Check(
        "sysctls",
        BASELINE,
        {
            0: partial(sysctls, _SYSCTLS),
            27: partial(sysctls, _SYSCTLS_27),
            29: partial(sysctls, _SYSCTLS_29),
            32: partial(sysctls, _SYSCTLS_32),
            37: partial(sysctls, _SYSCTLS_37),
        },
    ),
    Check("windowsHostProcess", BASELINE, {0: windows_host_process}),
    Check(
        "allowPrivilegeEscalation",
        RESTRICTED,
        {8: no_privilege_escalation, 25: _except_on_windows(no_privilege_escalation)},
    ),
    Check(
        "capabilities_restricted",
        RESTRICTED,
        {22: few_capabilities, 25: _except_on_windows(few_capabilities)},
        replaces="capabilities_baseline",
    ),
    Check("procMount_restricted", RESTRICTED, {35: proc_mount}, replaces="procMount"),
    Check("restrictedVolumes", RESTRICTED, {0: usual_volumes}, replaces="hostPathVolumes"),
    Check("runAsNonRoot", RESTRICTED, {0: run_as_non_root, 35: _except_with_own_users(run_as_non_root)}),
    Check("runAsUser", RESTRICTED, {23: run_as_user, 35: _except_with_own_users(run_as_user)}),
    Check(
        "seccompProfile_restricted",
        RESTRICTED,
        {19: some_seccomp_profile, 25: _except_on_windows(some_seccomp_profile)},
        replaces="seccompProfile_baseline",
    ),
)
