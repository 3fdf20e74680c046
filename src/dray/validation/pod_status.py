"""Rules for status updates of a Pod: its claims, what they take from the node, and the health of its devices."""

from __future__ import annotations

from dray.accounting import AccountingError, qos_class
from dray.api import names
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.names import byte_length, is_node_allocatable
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import check_ip, check_quantity_sign, check_unique, ip_family
from dray.validation.node_allocatable import check_policy
from dray.validation.pods import containers_of, requested_resources

HEALTH = ("Healthy", "Unhealthy", "Unknown")
MAX_HEALTH_MESSAGE = 1024

Claims = dict[str, Document]


def check_pod_status(new: Document, old: Document, errors: Errors, context: ValidationContext) -> None:
    status, before = new.get("status") or {}, old.get("status") or {}
    spec = new.get("spec") or {}
    claims = {claim.get("name") or "": claim for claim in spec.get("resourceClaims") or ()}
    _check_class(new, status, before, errors, context)
    _check_nomination(status, before, old, errors)
    check_claim_statuses(status.get("resourceClaimStatuses") or [], claims, errors)
    if (extended := status.get("extendedResourceClaimStatus")) is not None:
        _check_extended(extended, spec, errors)
    _check_node_allocatable(status.get("nodeAllocatableResourceClaimStatuses") or [], status, spec, errors)
    _check_addresses(status, before, errors)
    for field in ("containerStatuses", "initContainerStatuses"):
        for i, container in enumerate(status.get(field) or ()):
            _check_health(container, status, spec, f"status.{field}[{i}].allocatedResourcesStatus", errors)
    for i, container in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if container.get("allocatedResourcesStatus"):
            path = f"status.ephemeralContainerStatuses[{i}].allocatedResourcesStatus"
            errors.forbidden(path, "must not be specified in container status")


def _check_class(pod: Document, status: Document, before: Document, errors: Errors, context: ValidationContext) -> None:
    """A status without a class keeps the stored one. A node may say that the pod's claims have raised it, as KEP-5517 asks."""
    said = status.get("qosClass") or ""
    if said and said != (before.get("qosClass") or "") and said != _class_with_claims(pod, status, context):
        errors.invalid("status.qosClass", said, "field is immutable")


def _class_with_claims(pod: Document, status: Document, context: ValidationContext) -> str:
    """The class that a node applies; empty where claims do not count, as in any release of Kubernetes."""
    counts = context.enabled("DRANodeAllocatableResources") and context.gates.release is None
    if not counts or not status.get("nodeAllocatableResourceClaimStatuses"):
        return ""
    try:
        return qos_class(to_object(pod, Pod))
    except AccountingError:
        # Another rule reports what is wrong with the amounts.
        return ""


def _check_nomination(status: Document, before: Document, old: Document, errors: Errors) -> None:
    node = (old.get("spec") or {}).get("nodeName")
    nominated = status.get("nominatedNodeName") or ""
    if nominated != (before.get("nominatedNodeName") or "") and node and nominated:
        errors.forbidden("status.nominatedNodeName", "may not be updated directly")


# --- addresses -------------------------------------------------------------------------------------------------------


def _check_addresses(status: Document, before: Document, errors: Errors) -> None:
    pod_ips = _check_ip_list("podIPs", status, before, errors)
    if bool(pod_ips) != bool(status.get("podIP")):
        errors.invalid("status.podIPs", _in_go(pod_ips), "podIP and podIPs must either both be set or both be unset")
    elif pod_ips and pod_ips[0] != status.get("podIP"):
        errors.invalid("status.podIPs[0].ip", pod_ips[0], "must be equal to `podIP`")
    host_ips = [each.get("ip") or "" for each in status.get("hostIPs") or ()]
    if host_ips and host_ips[0] != (status.get("hostIP") or ""):
        errors.invalid("status.hostIPs[0].ip", host_ips[0], "must be equal to `hostIP`")
    _check_ip_list("hostIPs", status, before, errors)


def _check_ip_list(field: str, status: Document, before: Document, errors: Errors) -> list[str]:
    """One address of each family at most. An address that was stored before may stay, whatever it looks like."""
    path, ips = f"status.{field}", [each.get("ip") or "" for each in status.get(field) or ()]
    stored = {each.get("ip") for each in before.get(field) or ()}
    for i, ip in enumerate(ips):
        if ip not in stored:
            check_ip(ip, f"{path}[{i}]", errors)
    if len(ips) > 1:
        families = [ip_family(ip) for ip in ips]
        if 0 in families:
            bad = families.index(0)
            errors.internal(path, f"failed to check for dual stack with error:invalid IP[{bad}]: {ips[bad]}")
        if len(ips) > 2 or set(families) != {4, 6}:
            errors.invalid(path, _in_go(ips), "may specify no more than one IP for each IP family")
    return ips


def _in_go(ips: list[str]) -> list[Document]:
    """As Kubernetes prints the list: its own structs have no names for JSON."""
    return [{"IP": ip} for ip in ips]


# --- claims ----------------------------------------------------------------------------------------------------------


def check_claim_statuses(statuses: list[Document], claims: Claims, errors: Errors) -> None:
    seen: set[str] = set()
    for i, status in enumerate(statuses):
        path = f"status.resourceClaimStatuses[{i}]"
        name = status.get("name") or ""
        if name not in claims:
            errors.invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)
        if (claim := status.get("resourceClaimName")) is not None:
            errors.each_invalid(f"{path}.resourceClaimName", claim, names.subdomain_problems(claim))


def _check_extended(status: Document, spec: Document, errors: Errors) -> None:
    path = "status.extendedResourceClaimStatus"
    mappings = status.get("requestMappings") or []
    if not mappings:
        errors.required(f"{path}.requestMappings", "at least one request mapping is required")
    containers = {c.get("name"): c for _, c in containers_of(spec)}
    seen: set[tuple[str, str, str]] = set()
    for i, mapping in enumerate(mappings):
        here = f"{path}.requestMappings[{i}]"
        container, resource, request = (
            mapping.get(field) or "" for field in ("containerName", "resourceName", "requestName")
        )
        if container not in containers:
            errors.invalid(f"{here}.containerName", container, "must match the name of an entry in `spec.containers`")
        elif resource not in requested_resources(containers[container]):
            errors.invalid(f"{here}.resourceName", resource, "must match an entry in the container's requests")
        # Kubernetes leaves out the index here.
        errors.each_invalid(f"{path}.requestName", request, names.label_problems(request))
        if (container, resource, request) in seen:
            for field in ("containerName", "resourceName", "requestName"):
                errors.duplicate(f"{here}.{field}", mapping.get(field) or "")
        seen.add((container, resource, request))
    name = status.get("resourceClaimName") or ""
    if not name:
        errors.required(f"{path}.resourceClaimName")
    else:
        errors.each_invalid(f"{path}.resourceClaimName", name, names.subdomain_problems(name))


# --- what claims take from the node ----------------------------------------------------------------------------------


def _check_node_allocatable(entries: list[Document], status: Document, spec: Document, errors: Errors) -> None:
    path = "status.nodeAllocatableResourceClaimStatuses"
    known = {claim.get("resourceClaimName") for claim in spec.get("resourceClaims") or ()}
    known |= {entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    known.add((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    check_unique(entries, lambda e: e.get("resourceClaimName") or "", path, errors, declarative=True)
    for i, entry in enumerate(entries):
        here = f"{path}[{i}]"
        name = entry.get("resourceClaimName") or ""
        if not name:
            errors.required(f"{here}.resourceClaimName")
        elif name not in known:
            errors.invalid(f"{here}.resourceClaimName", name, "no mapping found in pod reference")
        check_unique(entry.get("containers") or [], lambda c: c, f"{here}.containers", errors, declarative=True)
        # The handwritten rules of Kubernetes pass over an entry without a claim; the generated ones do not.
        _check_mapping(entry.get("mapping") or [], f"{here}.mapping", errors, only_declarative=not name)
        _check_overhead(entry.get("overhead") or [], f"{here}.overhead", errors, only_declarative=not name)
        _check_kep_resources(entry, here, errors)


def _check_name(entry: Document, path: str, errors: Errors, *, only_declarative: bool = False) -> None:
    name = entry.get("name") or ""
    if not name:
        errors.required(f"{path}.name", declarative=True)
    if not only_declarative and not is_node_allocatable(name):
        errors.invalid(f"{path}.name", name, "must be a node allocatable resource name")


def _check_mapping(mapping: list[Document], path: str, errors: Errors, *, only_declarative: bool) -> None:
    check_unique(mapping, lambda m: m.get("name") or "", path, errors, declarative=True)
    for i, entry in enumerate(mapping):
        _check_name(entry, f"{path}[{i}]", errors, only_declarative=only_declarative)
        if entry.get("quantity") is None:
            errors.required(f"{path}[{i}].quantity", declarative=True)
        elif not only_declarative:
            check_quantity_sign(entry["quantity"], f"{path}[{i}].quantity", errors, positive=False)


def _check_overhead(overhead: list[Document], path: str, errors: Errors, *, only_declarative: bool) -> None:
    check_unique(overhead, lambda o: o.get("name") or "", path, errors, declarative=True)
    for i, entry in enumerate(overhead):
        _check_name(entry, f"{path}[{i}]", errors, only_declarative=only_declarative)
        if only_declarative:
            continue
        amounts = [field for field in ("perPod", "perContainer") if entry.get(field) is not None]
        if not amounts:
            errors.invalid(f"{path}[{i}]", entry, "at least one of perPod or perContainer must be set")
        for field in amounts:
            check_quantity_sign(entry[field], f"{path}[{i}].{field}", errors, positive=False)


def _check_kep_resources(entry: Document, path: str, errors: Errors) -> None:
    """The KEP's own fields of the same list."""
    for name, amount in (entry.get("resources") or {}).items():
        if not is_node_allocatable(name):
            errors.invalid(f"{path}.resources[{name}]", name, "must be a node allocatable resource name")
        check_quantity_sign(amount, f"{path}.resources[{name}]", errors, positive=False)
    for i, counted in enumerate(entry.get("accounting") or ()):
        _check_name(counted, f"{path}.accounting[{i}]", errors)
        check_policy(counted.get("accountingPolicy"), f"{path}.accounting[{i}].accountingPolicy", errors)


# --- health ----------------------------------------------------------------------------------------------------------


def _check_health(container: Document, status: Document, spec: Document, path: str, errors: Errors) -> None:
    """A status of a container that the pod does not have is taken, but the health in it is still checked."""
    described = next((c for _, c in containers_of(spec) if c.get("name") == container.get("name")), None)
    seen: set[str] = set()
    for i, resource in enumerate(container.get("allocatedResourcesStatus") or ()):
        here = f"{path}[{i}]"
        name = resource.get("name") or ""
        if described is not None:
            _check_health_name(name, described, status, f"{here}.name", errors)
        if name in seen:
            errors.duplicate(f"{here}.name", name)
        seen.add(name)
        _check_device_health(resource.get("resources") or [], f"{here}.resources", errors)


def _check_health_name(name: str, container: Document, status: Document, path: str, errors: Errors) -> None:
    if name.startswith("claim:"):
        if name not in _claim_names(container, status):
            detail = (
                "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "
                "container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
            )
            errors.invalid(path, name, detail)
    elif name not in requested_resources(container):
        errors.invalid(path, name, "must match one of the container's resource requests")


def _claim_names(container: Document, status: Document) -> set[str]:
    found = set()
    for reference in (container.get("resources") or {}).get("claims") or ():
        name, request = reference.get("name") or "", reference.get("request") or ""
        found.add(f"claim:{name}/{request}" if request else f"claim:{name}")
    extended = status.get("extendedResourceClaimStatus") or {}
    claim = extended.get("resourceClaimName") or ""
    for mapping in extended.get("requestMappings") or ():
        if mapping.get("containerName") == container.get("name"):
            found.add(f"claim:{claim}/{mapping.get('requestName') or ''}")
            found.add(f"claim:{claim}")
    return found


def _check_device_health(devices: list[Document], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for i, device in enumerate(devices):
        here = f"{path}[{i}]"
        identity = device.get("resourceID") or ""
        if identity in seen:
            errors.duplicate(f"{here}.resourceID", identity)
        seen.add(identity)
        health = device.get("health") or ""
        if health not in HEALTH:
            errors.not_supported(f"{here}.health", health, HEALTH)
        message = device.get("message")
        if message == "":
            errors.required(f"{here}.message", "must be non-empty if specified")
        elif message is not None and byte_length(message) > MAX_HEALTH_MESSAGE:
            errors.too_long(f"{here}.message", MAX_HEALTH_MESSAGE)
