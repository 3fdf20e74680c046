"""Rules for fields of a pod that have nothing to do with devices: volumes, ports, mounts, tolerations, policies."""

from __future__ import annotations

from collections.abc import Iterator

from dray.api import names
from dray.validation.errors import Document, Errors

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
PROTOCOLS = ("SCTP", "TCP", "UDP")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
LARGEST_INT = 2**31 - 1

# Fields that most pods and containers do not have; their rules are in `pod_details`.
DETAILS_OF_PODS = frozenset(
    (
        "hostname", "subdomain", "hostnameOverride", "priorityClassName", "runtimeClassName", "os", "hostAliases",
        "readinessGates", "topologySpreadConstraints",
    )
)  # fmt: skip
DETAILS_OF_CONTAINERS = frozenset(
    (
        "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "envFrom", "resizePolicy", "restartPolicy",
        "restartPolicyRules", "volumeDevices",
    )
)  # fmt: skip
DETAILS_OF_MOUNTS = frozenset(("mountPropagation", "recursiveReadOnly"))
VOLUMES_OF_FILES = frozenset(("hostPath", "configMap", "secret", "downwardAPI"))
# Of the token that nearly every pod has.
USUAL_FILES = frozenset(("token", "ca.crt", "namespace"))
USUAL_MODE = 0o644
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")


def has_details(spec: Document) -> bool:
    if not DETAILS_OF_PODS.isdisjoint(spec) or spec.get("preemptionPolicy", "Never") not in PREEMPTION_POLICIES:
        return True
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(map(_has_container_details, containers)) or any(map(_has_files, spec.get("volumes") or ()))


def _has_container_details(container: Document) -> bool:
    return (
        not DETAILS_OF_CONTAINERS.isdisjoint(container)
        or container.get("terminationMessagePolicy", "File") not in MESSAGE_POLICIES
        or any(not DETAILS_OF_MOUNTS.isdisjoint(mount) for mount in container.get("volumeMounts") or ())
    )


def _has_files(volume: Document) -> bool:
    """Whether the volume says where files lie or what their modes are, beside what the server says in nearly every pod."""
    if not VOLUMES_OF_FILES.isdisjoint(volume):
        return True
    projected = volume.get("projected") or {}
    return projected.get("defaultMode", USUAL_MODE) != USUAL_MODE or any(
        file.get("path") not in USUAL_FILES or file.get("mode") is not None
        for source in projected.get("sources") or ()
        for kind, listed in source.items()
        if listed
        for file in ((listed,) if kind == "serviceAccountToken" else listed.get("items") or ())
    )


def check_volumes(volumes: list[Document], path: str, errors: Errors) -> set[str]:
    """Answers the names that mounts may use."""
    known: set[str] = set()
    for i, volume in enumerate(volumes):
        here, name = f"{path}[{i}]", volume.get("name") or ""
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if not sources:
            errors.required(here, "must specify a volume type")
        for extra in sources[1:]:
            errors.forbidden(f"{here}.{extra}", "may not specify more than 1 volume type")
        if not name:
            errors.required(f"{here}.name")
        else:
            errors.each_invalid(f"{here}.name", name, names.label_problems(name))
            if name in known:
                errors.duplicate(f"{here}.name", name)
            known.add(name)
    return known


def check_ports(ports: list[Document], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, port in enumerate(ports):
        here, name = f"{path}[{i}]", port.get("name") or ""
        if name:
            errors.each_invalid(f"{here}.name", name, port_name_problems(name))
            if name in seen:
                errors.duplicate(f"{here}.name", name)
            seen.add(name)
        if not port.get("containerPort"):
            errors.required(f"{here}.containerPort")
        for field in ("containerPort", "hostPort"):
            number = port.get(field) or 0
            if number:
                check_port_number(number, f"{here}.{field}", errors)
        if (protocol := port.get("protocol") or "TCP") not in PROTOCOLS:
            errors.not_supported(f"{here}.protocol", protocol, PROTOCOLS)


def check_port_number(number: int, path: str, errors: Errors) -> None:
    if not 0 < number < 1 << 16:
        errors.invalid(path, number, "must be between 1 and 65535, inclusive")


def check_port(port: int | str, path: str, errors: Errors) -> None:
    """The number of a port, or the name that a container gives it."""
    if isinstance(port, int):
        check_port_number(port, path, errors)
    else:
        errors.each_invalid(path, port, port_name_problems(port))


def port_name_problems(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield "must be no more than 15 characters"
    if not name.isascii() or not all(c.isdigit() or c.islower() or c == "-" for c in name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not any(c.isascii() and c.islower() for c in name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def check_mounts(mounts: list[Document], volumes: set[str], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, mount in enumerate(mounts):
        here, name, target = f"{path}[{i}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.required(f"{here}.name")
        if name not in volumes:
            errors.not_found(f"{here}.name", name)
        if not target:
            errors.required(f"{here}.mountPath")
        if target in seen:
            errors.invalid(f"{here}.mountPath", target, "must be unique")
        seen.add(target)


def check_pull_policy(container: Document, path: str, errors: Errors) -> None:
    policy = container.get("imagePullPolicy")
    if policy and policy not in PULL_POLICIES:
        errors.not_supported(f"{path}.imagePullPolicy", policy, PULL_POLICIES)


def check_dns_policy(spec: Document, path: str, errors: Errors) -> None:
    policy = spec.get("dnsPolicy")
    if policy and policy not in DNS_POLICIES:
        errors.not_supported(f"{path}.dnsPolicy", policy, DNS_POLICIES)


def check_labels(labels: Document, path: str, errors: Errors) -> None:
    for key, value in labels.items():
        errors.each_invalid(path, key, names.qualified_name_problems(key))
        errors.each_invalid(path, value, names.label_value_problems(value))


def check_scheduling_gates(gates: list[Document], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors.each_invalid(f"{path}[{i}]", name, names.qualified_name_problems(name))
        if name in seen:
            errors.duplicate(f"{path}[{i}]", name)
        seen.add(name)


def check_deadline(spec: Document, path: str, errors: Errors) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline <= LARGEST_INT:
        errors.invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {LARGEST_INT}, inclusive")


def check_tolerations(tolerations: list[Document], path: str, errors: Errors) -> None:
    for i, toleration in enumerate(tolerations):
        _check_toleration(toleration, f"{path}[{i}]", errors)


def _check_toleration(toleration: Document, path: str, errors: Errors) -> None:
    key, operator, value, effect = (toleration.get(name) or "" for name in ("key", "operator", "value", "effect"))
    if key:
        errors.each_invalid(f"{path}.key", key, names.qualified_name_problems(key))
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.invalid(f"{path}.operator", operator, detail)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        errors.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("Equal", ""):
        if problems := names.label_value_problems(value):
            errors.invalid(f"{path}.operator", value, ";".join(problems))
    elif operator == "Exists":
        if value:
            errors.invalid(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    else:
        errors.not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        errors.not_supported(f"{path}.effect", effect, EFFECTS)
