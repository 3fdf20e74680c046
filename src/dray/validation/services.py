"""Rules for Service. Its address is checked where it is chosen, in `dray.apiserver`."""

from __future__ import annotations

from dray.api import names
from dray.api.defaults import is_reached_from_outside, needs_health_check
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE, check_network, check_reachable_ip, check_unique
from dray.validation.metadata import check_labels
from dray.validation.pod_fields import PROTOCOLS, check_port, check_port_number

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
AFFINITIES = ("ClientIP", "None")
TRAFFIC_POLICIES = ("Cluster", "Local")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
LONGEST_AFFINITY_S = 86400
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"


def check_service(new: Document, old: Document | None, errors: Errors) -> None:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is not None:
        _check_class_kept(spec, before, errors)
        _check_health_port_kept(spec, before, errors)
    _check_type(spec, errors)
    _check_ports(spec, errors)
    check_labels(spec.get("selector") or {}, "spec.selector", errors)
    _check_affinity(spec, errors)
    _check_addresses(spec, before, errors)
    if (kind := spec.get("type")) and kind not in TYPES:
        errors.not_supported("spec.type", kind, TYPES)
    _check_port_pairs(spec, errors)
    _check_balancing(spec, errors)
    _check_traffic(spec, errors)


def _check_type(spec: Document, errors: Errors) -> None:
    kind, is_headless = spec.get("type") or "ClusterIP", spec.get("clusterIP") == "None"
    if not spec.get("ports") and kind != "ExternalName" and not is_headless:
        errors.required("spec.ports")
    if is_headless and kind in ("LoadBalancer", "NodePort"):
        errors.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind != "ExternalName":
        return
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            errors.forbidden(f"spec.{field}", "may not be set for ExternalName services")
    if name := (spec.get("externalName") or "").removesuffix("."):
        errors.each_invalid("spec.externalName", name, names.subdomain_problems(name))
    else:
        errors.required("spec.externalName")


# --- ports -----------------------------------------------------------------------------------------------------------


def _check_ports(spec: Document, errors: Errors) -> None:
    ports = spec.get("ports") or []
    known: set[str] = set()
    for i, port in enumerate(ports):
        here, name = f"spec.ports[{i}]", port.get("name") or ""
        if not name and len(ports) > 1:
            errors.required(f"{here}.name")
        elif name:
            errors.each_invalid(f"{here}.name", name, names.label_problems(name))
            if name in known:
                errors.duplicate(f"{here}.name", name)
            known.add(name)
        check_port_number(port.get("port") or 0, f"{here}.port", errors)
        if (protocol := port.get("protocol") or "TCP") not in PROTOCOLS:
            errors.not_supported(f"{here}.protocol", protocol, PROTOCOLS)
        if (target := port.get("targetPort")) is not None:
            check_port(target, f"{here}.targetPort", errors)
        if (application := port.get("appProtocol")) is not None:
            errors.each_invalid(f"{here}.appProtocol", application, names.qualified_name_problems(application))


def _check_port_pairs(spec: Document, errors: Errors) -> None:
    """Ports that nobody could tell apart."""
    ports, seen = spec.get("ports") or [], set()
    for i, port in enumerate(ports):
        node_port, protocol = port.get("nodePort") or 0, port.get("protocol") or "TCP"
        if node_port and (spec.get("type") or "ClusterIP") == "ClusterIP":
            errors.forbidden(f"spec.ports[{i}].nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port and ("node", protocol, node_port) in seen:
            errors.duplicate(f"spec.ports[{i}].nodePort", node_port)
        seen.add(("node", protocol, node_port))
    for i, port in enumerate(ports):
        number, protocol = port.get("port") or 0, port.get("protocol") or "TCP"
        if ("own", protocol, number) in seen:
            # Printed as Go prints it.
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number}
            errors.duplicate(f"spec.ports[{i}]", {**shown, "TargetPort": 0, "NodePort": 0})
        seen.add(("own", protocol, number))


# --- addresses -------------------------------------------------------------------------------------------------------


def _check_addresses(spec: Document, before: Document, errors: Errors) -> None:
    addresses = spec.get("clusterIPs") or []
    if addresses and spec.get("clusterIP") and addresses[0] != spec["clusterIP"]:
        errors.invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in FAMILIES:
            errors.not_supported(f"spec.ipFamilies[{i}]", family, FAMILIES)
    if spec.get("ipFamilies") != before.get("ipFamilies"):
        families = spec.get("ipFamilies") or ()
        check_unique(families, lambda family: family, "spec.ipFamilies", errors, declarative=False)
    if (policy := spec.get("ipFamilyPolicy")) and policy not in FAMILY_POLICIES:
        errors.not_supported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES)
    # Addresses that an earlier version took may stay.
    kept = set(before.get("externalIPs") or ())
    for i, address in enumerate(spec.get("externalIPs") or ()):
        if address not in kept:
            check_reachable_ip(address, f"spec.externalIPs[{i}]", errors)


# --- how clients are spread over the pods ----------------------------------------------------------------------------


def _check_affinity(spec: Document, errors: Errors) -> None:
    affinity = spec.get("sessionAffinity") or "None"
    if affinity not in AFFINITIES:
        errors.not_supported("spec.sessionAffinity", affinity, AFFINITIES)
    timeout = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if affinity == "ClientIP" and timeout is not None and not 0 < timeout <= LONGEST_AFFINITY_S:
        detail = f"must be greater than 0 and less than {LONGEST_AFFINITY_S}"
        errors.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", timeout, detail)


def _check_balancing(spec: Document, errors: Errors) -> None:
    is_balanced = spec.get("type") == "LoadBalancer"
    # Kubernetes spells this path with a capital letter.
    path, ranges = "spec.LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges") or []
    if ranges and not is_balanced:
        errors.forbidden(path, _ONLY_BALANCED)
    for i, each in enumerate(ranges):
        check_network(each.strip(), f"{path}[{i}]", errors)
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(field) is not None and not is_balanced:
            errors.forbidden(f"spec.{field}", _ONLY_BALANCED)
    if name := spec.get("loadBalancerClass"):
        errors.each_invalid("spec.loadBalancerClass", name, names.qualified_name_problems(name))


def _check_class_kept(spec: Document, before: Document, errors: Errors) -> None:
    name, is_both = spec.get("loadBalancerClass"), spec.get("type") == before.get("type") == "LoadBalancer"
    if is_both and name != before.get("loadBalancerClass"):
        errors.invalid("spec.loadBalancerClass", name, "may not change once set")


def _check_health_port_kept(spec: Document, before: Document, errors: Errors) -> None:
    number = before.get("healthCheckNodePort")
    is_needed = needs_health_check(spec) and needs_health_check(before)
    if number and is_needed and spec.get("healthCheckNodePort") != number:
        errors.forbidden("spec.healthCheckNodePort", IMMUTABLE)


def _check_traffic(spec: Document, errors: Errors) -> None:
    outside, inside = spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy")
    if outside and not is_reached_from_outside(spec):
        detail = "may only be set for externally-accessible services"
        errors.invalid("spec.externalTrafficPolicy", outside, detail)
    elif outside and outside not in TRAFFIC_POLICIES:
        errors.not_supported("spec.externalTrafficPolicy", outside, TRAFFIC_POLICIES)
    port, needs_port = spec.get("healthCheckNodePort"), needs_health_check(spec)
    if port and not needs_port:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.invalid("spec.healthCheckNodePort", port, detail)
    elif port:
        check_port_number(port, "spec.healthCheckNodePort", errors)
    if inside and inside not in TRAFFIC_POLICIES:
        errors.not_supported("spec.internalTrafficPolicy", inside, TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        errors.not_supported("spec.trafficDistribution", distribution, DISTRIBUTIONS)
