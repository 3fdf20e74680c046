"""Rules for fields that most pods do not have: probes, restart rules, host names, spreading, and more.

Loaded with the first pod that has one of them. What was stored before a rule was known can still be changed elsewhere, so these rules
are for new pods and changed templates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from dray.api import names
from dray.validation.errors import Document, Errors
from dray.validation.formats import check_ip, check_not_negative
from dray.validation.label_selectors import check_label_selector
from dray.validation.pod_fields import MESSAGE_POLICIES, PREEMPTION_POLICIES, check_port
from dray.validation.volume_files import check_volume_files
from dray.validation.workloads import with_claimed_volumes

Check = Callable[[Any, str, Document, Errors], None]

HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
SYSTEMS = ("linux", "windows")
RESTARTS = ("Always", "Never", "OnFailure")
RULE_ACTIONS = ("Restart", "RestartAllContainers")
MOST_RULES, MOST_EXIT_CODES = 20, 255
ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"
SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
MOUNT_OPTIONS = {
    "mountPropagation": ("Bidirectional", "HostToContainer", "None"),
    "recursiveReadOnly": ("Disabled", "Enabled", "IfPossible"),
}
HEADER_RULE = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
    "'[-A-Za-z0-9]+')"
)
_is_header = re.compile(r"[-A-Za-z0-9]+").fullmatch
INCLUSIONS = ("Honor", "Ignore")


def check_details(document: Document, spec: Document, path: str, errors: Errors) -> None:
    """Of the pod spec of a document, which is at this path."""
    if document.get("kind") == "StatefulSet":
        spec = with_claimed_volumes(document.get("spec") or {}, spec)
    check_volume_files(spec.get("volumes") or (), f"{path}.volumes", errors)
    for field in spec.keys() & OF_PODS.keys():
        if spec[field] is not None:
            OF_PODS[field](spec[field], f"{path}.{field}", spec, errors)
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{i}]"
            runs_once = field == "initContainers" and container.get("restartPolicy") != "Always"
            _check_container(container, here, spec, errors, runs_once=runs_once)


def _check_container(container: Document, path: str, spec: Document, errors: Errors, *, runs_once: bool) -> None:
    for field in container.keys() & OF_CONTAINERS.keys():
        value = container[field]
        if value is None:
            continue
        if runs_once and (field in PROBES or field == "lifecycle"):
            errors.forbidden(f"{path}.{field}", ONLY_SIDECARS)
        else:
            OF_CONTAINERS[field](value, f"{path}.{field}", spec, errors)
    _check_restarts(container, path, errors)
    _check_mount_options(container.get("volumeMounts") or [], f"{path}.volumeMounts", errors)
    if container.get("volumeDevices"):
        _check_volume_devices(container, spec, f"{path}.volumeDevices", errors)


# --- of the pod ------------------------------------------------------------------------------------------------------


def _named_by(rule: names.Problems) -> Check:
    return lambda name, path, spec, errors: errors.each_invalid(path, name, rule(name))


def _unless_empty(check: Check) -> Check:
    return lambda value, path, spec, errors: check(value, path, spec, errors) if value else None


def _check_preemption(policy: str, path: str, spec: Document, errors: Errors) -> None:
    if not policy:
        errors.required(path)
    elif policy not in PREEMPTION_POLICIES:
        errors.not_supported(path, policy, PREEMPTION_POLICIES)


def _check_system(system: Document, path: str, spec: Document, errors: Errors) -> None:
    name = system.get("name") or ""
    if not name:
        errors.required(f"{path}.name")
    elif name not in SYSTEMS:
        errors.not_supported(path, name, SYSTEMS)


def _check_aliases(aliases: list[Document], path: str, spec: Document, errors: Errors) -> None:
    for i, alias in enumerate(aliases):
        check_ip(alias.get("ip") or "", f"{path}[{i}].ip", errors)
        for j, name in enumerate(alias.get("hostnames") or ()):
            errors.each_invalid(f"{path}[{i}].hostnames[{j}]", name, names.subdomain_problems(name))


def _check_readiness_gates(gates: list[Document], path: str, spec: Document, errors: Errors) -> None:
    for i, gate in enumerate(gates):
        kind = gate.get("conditionType") or ""
        errors.each_invalid(f"{path}[{i}].conditionType", kind, names.qualified_name_problems(kind))


def _check_spreading(constraints: list[Document], path: str, spec: Document, errors: Errors) -> None:
    kinds = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    still_to_come = Counter(kinds)
    for i, (constraint, (key, action)) in enumerate(zip(constraints, kinds, strict=True)):
        here, skew = f"{path}[{i}]", constraint.get("maxSkew") or 0
        still_to_come[key, action] -= 1
        if skew <= 0:
            errors.invalid(f"{here}.maxSkew", skew, "must be greater than zero")
        if not key:
            errors.required(f"{here}.topologyKey", "can not be empty")
        if action not in SPREAD_ACTIONS:
            errors.not_supported(f"{here}.whenUnsatisfiable", action, SPREAD_ACTIONS)
        if still_to_come[key, action]:
            errors.duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        _check_domains(constraint.get("minDomains"), action, f"{here}.minDomains", errors)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(field)
            if policy is not None and policy not in INCLUSIONS:
                errors.not_supported(f"{here}.{field}", policy, INCLUSIONS)
        if (selector := constraint.get("labelSelector")) is not None:
            check_label_selector(selector, f"{here}.labelSelector", errors)


def _check_domains(count: int | None, action: str, path: str, errors: Errors) -> None:
    if count is None:
        return
    if count <= 0:
        errors.invalid(path, count, "must be greater than zero")
    if action != "DoNotSchedule":
        errors.invalid(path, count, f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}")


OF_PODS: dict[str, Check] = {
    "hostname": _unless_empty(_named_by(names.label_problems)),
    "subdomain": _unless_empty(_named_by(names.label_problems)),
    "hostnameOverride": _named_by(names.subdomain_problems),
    "priorityClassName": _unless_empty(_named_by(names.subdomain_problems)),
    "runtimeClassName": _named_by(names.subdomain_problems),
    "preemptionPolicy": _check_preemption,
    "os": _check_system,
    "hostAliases": _check_aliases,
    "readinessGates": _check_readiness_gates,
    "topologySpreadConstraints": _check_spreading,
}


# --- of containers ---------------------------------------------------------------------------------------------------


def _check_probe(probe: Document, path: str, spec: Document, errors: Errors) -> None:
    _check_handler(probe, path, spec, errors)
    check_not_negative(probe, path, PROBE_NUMBERS, errors)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def _check_readiness_probe(probe: Document, path: str, spec: Document, errors: Errors) -> None:
    _check_probe(probe, path, spec, errors)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        errors.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")


def _check_deciding_probe(probe: Document, path: str, spec: Document, errors: Errors) -> None:
    """One success decides."""
    _check_probe(probe, path, spec, errors)
    successes = probe.get("successThreshold", 1)
    if successes != 1:
        errors.invalid(f"{path}.successThreshold", successes, "must be 1")


def _check_lifecycle(lifecycle: Document, path: str, spec: Document, errors: Errors) -> None:
    for field in ("postStart", "preStop"):
        if (handler := lifecycle.get(field)) is not None:
            _check_handler(handler, f"{path}.{field}", spec, errors)


def _check_handler(handler: Document, path: str, spec: Document, errors: Errors) -> None:
    said = [kind for kind in HANDLERS if handler.get(kind) is not None]
    for kind in said[1:]:
        errors.forbidden(f"{path}.{kind}", "may not specify more than 1 handler type")
    if not said:
        errors.required(path, "must specify a handler type")
        return
    here, action = f"{path}.{said[0]}", handler[said[0]]
    match said[0]:
        case "exec" if not action.get("command"):
            errors.required(f"{here}.command")
        case "httpGet":
            _check_http_get(action, here, errors)
        case "tcpSocket":
            check_port(action.get("port", 0), f"{here}.port", errors)
        case "grpc":
            check_port(action.get("port", 0), f"{here}.port", errors)


def _check_http_get(action: Document, path: str, errors: Errors) -> None:
    if not action.get("path"):
        errors.required(f"{path}.path")
    check_port(action.get("port", 0), f"{path}.port", errors)
    scheme = action.get("scheme") or ""
    if scheme not in ("HTTP", "HTTPS"):
        errors.not_supported(f"{path}.scheme", scheme, ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        if not _is_header(name):
            errors.invalid(f"{path}.httpHeaders", name, HEADER_RULE)


def _check_variable_sources(sources: list[Document], path: str, spec: Document, errors: Errors) -> None:
    for i, source in enumerate(sources):
        said = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in said:
            here, name = f"{path}[{i}].{field}.name", source[field].get("name") or ""
            if not name:
                errors.required(here)
            else:
                errors.each_invalid(here, name, names.subdomain_problems(name))
        if not said:
            errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(said) > 1:
            errors.invalid(path, "", "may not have more than one field specified at a time")


def _check_message_policy(policy: str, path: str, spec: Document, errors: Errors) -> None:
    if policy and policy not in MESSAGE_POLICIES:
        errors.not_supported(path, policy, MESSAGE_POLICIES)


def _check_resize_policies(policies: list[Document], path: str, spec: Document, errors: Errors) -> None:
    seen: set[str] = set()
    never = spec.get("restartPolicy") == "Never"
    for i, entry in enumerate(policies):
        resource, policy = entry.get("resourceName") or "", entry.get("restartPolicy") or ""
        if resource in seen:
            errors.duplicate(f"{path}[{i}]", resource)
        seen.add(resource)
        _check_choice(resource, path, ("cpu", "memory"), errors)
        _check_choice(policy, path, ("NotRequired", "RestartContainer"), errors)
        if never and policy != "NotRequired":
            errors.invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _check_choice(value: str, path: str, choices: tuple[str, ...], errors: Errors) -> None:
    if not value:
        errors.required(path)
    elif value not in choices:
        errors.not_supported(path, value, choices)


OF_CONTAINERS: dict[str, Check] = {
    "livenessProbe": _check_deciding_probe,
    "readinessProbe": _check_readiness_probe,
    "startupProbe": _check_deciding_probe,
    "lifecycle": _check_lifecycle,
    "envFrom": _check_variable_sources,
    "terminationMessagePolicy": _check_message_policy,
    "resizePolicy": _check_resize_policies,
}


def _check_restarts(container: Document, path: str, errors: Errors) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if policy is None:
        if rules:
            errors.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    elif policy not in RESTARTS:
        errors.not_supported(f"{path}.restartPolicy", policy, RESTARTS)
    if len(rules) > MOST_RULES:
        errors.too_many(f"{path}.restartPolicyRules", len(rules), MOST_RULES)
    for i, rule in enumerate(rules):
        _check_restart_rule(rule, f"{path}.restartPolicyRules[{i}]", errors)


def _check_restart_rule(rule: Document, path: str, errors: Errors) -> None:
    action, codes = rule.get("action") or "", rule.get("exitCodes")
    if action not in RULE_ACTIONS:
        errors.not_supported(f"{path}.action", action, RULE_ACTIONS)
    if codes is None:
        errors.required(f"{path}.exitCodes", "must be specified")
        return
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.not_supported(f"{path}.exitCodes.operator", operator, ("In", "NotIn"))
    if len(values) > MOST_EXIT_CODES:
        errors.too_many(f"{path}.exitCodes.values", len(values), MOST_EXIT_CODES)


def _check_mount_options(mounts: list[Document], path: str, errors: Errors) -> None:
    """Kubernetes does not say which of the mounts it means."""
    for mount in mounts:
        for field, choices in MOUNT_OPTIONS.items():
            value = mount.get(field)
            if value is not None and value not in choices:
                errors.not_supported(f"{path}.{field}", value, choices)


def _check_volume_devices(container: Document, spec: Document, path: str, errors: Errors) -> None:
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    mounted = {mount.get("name") for mount in container.get("volumeMounts") or ()}
    seen_names, seen_paths = set[str](), set[str]()
    for i, device in enumerate(container["volumeDevices"]):
        here, name, target = f"{path}[{i}]", device.get("name") or "", device.get("devicePath") or ""
        _check_device_name(name, volumes.get(name), f"{here}.name", errors)
        if name in seen_names:
            errors.invalid(f"{here}.name", name, "must be unique")
        if name in mounted:
            errors.invalid(f"{here}.name", name, "must not already exist in volumeMounts")
        if not target:
            errors.required(f"{here}.devicePath")
        elif ".." in target.split("/"):
            errors.invalid(f"{here}.devicePath", target, "can not contain backsteps ('..')")
        elif target in seen_paths:
            errors.invalid(f"{here}.devicePath", target, "must be unique")
        seen_names.add(name)
        seen_paths.add(target)


def _check_device_name(name: str, volume: Document | None, path: str, errors: Errors) -> None:
    if not name:
        errors.required(path)
    if volume is None:
        errors.not_found(path, name)
    elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
        detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        errors.invalid(path, name, detail)
