"""Updates of Services: what a change of the type takes away, and what a replaced Service keeps. Pure."""

from __future__ import annotations

from typing import Any

from dray.api.defaults import SERVICES_ON_NODES, is_reached_from_outside, needs_health_check

Spec = dict[str, Any]


def updated_spec(spec: Spec, before: Spec) -> Spec:
    """The spec of a Service after an update.

    Fields that only the old type has go, unless the update changes them, and so do node ports, unless the update has new
    ones: clients leave behind what the server filled in. Node ports that the update leaves out stay.
    """
    stale, ports = _stale_fields(spec, before), spec.get("ports") or []
    made = {key: value for key, value in spec.items() if key not in stale}
    if ports and _has_node_ports(before):
        if _has_node_ports(spec):
            made["ports"] = with_kept_node_ports(ports, before.get("ports") or [])
        elif _node_ports(spec) <= _node_ports(before):
            made["ports"] = [{key: value for key, value in port.items() if key != "nodePort"} for port in ports]
    if needs_health_check(before) and needs_health_check(spec) and not spec.get("healthCheckNodePort"):
        made["healthCheckNodePort"] = before.get("healthCheckNodePort")
    return {key: value for key, value in made.items() if value is not None}


def _stale_fields(spec: Spec, before: Spec) -> set[str]:
    kind, was = spec.get("type") or "ClusterIP", before.get("type") or "ClusterIP"
    stale: set[str] = set()
    if was == "LoadBalancer" != kind:
        stale |= {"allocateLoadBalancerNodePorts", "loadBalancerClass"}
    if needs_health_check(before) and not needs_health_check(spec):
        stale.add("healthCheckNodePort")
    if is_reached_from_outside(before) and not is_reached_from_outside(spec):
        stale.add("externalTrafficPolicy")
    if kind == "ExternalName" != was:
        stale.add("internalTrafficPolicy")
    return {field for field in stale if spec.get(field) == before.get(field)}


def _node_ports(spec: Spec) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


def with_kept_node_ports(ports: list[Spec], before: list[Spec]) -> list[Spec]:
    """Ports without a node port get the one that the port of the same name had, if no other port has it now."""
    had = {port.get("name") or "": port.get("nodePort") for port in before}
    taken = {port.get("nodePort") for port in ports}
    made = []
    for port in ports:
        number = had.get(port.get("name") or "")
        if number and not port.get("nodePort") and number not in taken:
            taken.add(number)
            port = {**port, "nodePort": number}
        made.append(port)
    return made


def _has_node_ports(spec: Spec) -> bool:
    return (spec.get("type") or "ClusterIP") in SERVICES_ON_NODES
