"""Rules for objects around Services: endpoints, endpoint slices, addresses and ranges.

Kubernetes also refuses loopback and link-local endpoints; Dray's own pods may serve there, so they are taken.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.api import names
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE, check_ip, check_network, ip_family
from dray.validation.metadata import path_segment_problems
from dray.validation.pod_fields import PROTOCOLS, check_port_number

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS, MOST_ADDRESSES, MOST_PORTS, MOST_HINTS = 1000, 100, 20000, 8


def check_endpoint_slice(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    kind, before = new.get("addressType") or "", old or {}
    if not kind:
        errors.required("addressType", declarative=True)
    elif kind not in ADDRESS_TYPES:
        errors.not_supported("addressType", kind, ADDRESS_TYPES, declarative=True)
    if old is not None and kind != (old.get("addressType") or ""):
        errors.invalid("addressType", None, IMMUTABLE, declarative=True)
    # What an earlier version took may stay.
    ports, endpoints = new.get("ports") or [], new.get("endpoints") or []
    if old is None or ports != (before.get("ports") or []):
        _check_ports(ports, errors)
    if old is None or endpoints != (before.get("endpoints") or []):
        _check_endpoints(endpoints, kind, errors)


def _check_ports(ports: list[Document], errors: Errors) -> None:
    if len(ports) > MOST_PORTS:
        errors.too_many("ports", len(ports), MOST_PORTS)
        return
    seen: set[str] = set()
    for i, port in enumerate(ports):
        path, name = f"ports[{i}]", port.get("name") or ""
        if name:
            errors.each_invalid(f"{path}.name", name, names.label_problems(name))
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)
        protocol = port.get("protocol", "TCP")
        if protocol not in PROTOCOLS:
            errors.not_supported(f"{path}.protocol", protocol, PROTOCOLS)
        _check_application(port, path, errors)


def _check_application(port: Document, path: str, errors: Errors) -> None:
    if (application := port.get("appProtocol")) is not None:
        errors.each_invalid(f"{path}.appProtocol", application, names.qualified_name_problems(application))


def _check_endpoints(endpoints: list[Document], kind: str, errors: Errors) -> None:
    if len(endpoints) > MOST_ENDPOINTS:
        errors.too_many("endpoints", len(endpoints), MOST_ENDPOINTS)
        return
    for i, endpoint in enumerate(endpoints):
        path = f"endpoints[{i}]"
        _check_addresses(endpoint.get("addresses") or [], kind, f"{path}.addresses", errors)
        _check_place(endpoint, path, errors)
        hints = endpoint.get("hints") or {}
        _check_hints(hints.get("forZones") or [], names.label_value_problems, f"{path}.hints.forZones", errors)
        _check_hints(hints.get("forNodes") or [], names.subdomain_problems, f"{path}.hints.forNodes", errors)


def _check_addresses(addresses: list[str], kind: str, path: str, errors: Errors) -> None:
    if not addresses:
        errors.required(path, declarative=True)
    elif len(addresses) > MOST_ADDRESSES:
        errors.too_many(path, len(addresses), MOST_ADDRESSES, declarative=True)
    families = {"IPv4": 4, "IPv6": 6}
    if kind not in families:
        return
    for i, address in enumerate(addresses):
        before = len(errors)
        check_ip(address, f"{path}[{i}]", errors)
        if len(errors) == before and ip_family(address) != families[kind]:
            errors.invalid(path, address, f"must be an {kind} address")


def _check_place(endpoint: Document, path: str, errors: Errors) -> None:
    """The node and the name of one endpoint."""
    if (node := endpoint.get("nodeName")) is not None:
        errors.each_invalid(f"{path}.nodeName", node, names.subdomain_problems(node))
    if (hostname := endpoint.get("hostname")) is not None:
        errors.each_invalid(f"{path}.hostname", hostname, names.label_problems(hostname))


def _check_hints(hints: list[Document], rule: Callable[[str], tuple[str, ...]], path: str, errors: Errors) -> None:
    if len(hints) > MOST_HINTS:
        errors.too_many(path, len(hints), MOST_HINTS)
        return
    seen: set[str] = set()
    for i, hint in enumerate(hints):
        name = hint.get("name") or ""
        if name in seen:
            errors.duplicate(f"{path}[{i}].name", name)
        seen.add(name)
        errors.each_invalid(f"{path}[{i}].name", name, rule(name))


def check_endpoints(new: Document, old: Document | None, errors: Errors) -> None:
    subsets = new.get("subsets") or []
    if old is not None and subsets == (old.get("subsets") or []):
        return
    for i, subset in enumerate(subsets):
        path, ports = f"subsets[{i}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.required(path, "must specify `addresses` or `notReadyAddresses`")
        for field in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(field) or ()):
                _check_endpoint_address(address, f"{path}.{field}[{j}]", errors)
        for j, port in enumerate(ports):
            _check_endpoint_port(port, f"{path}.ports[{j}]", errors, needs_name=len(ports) > 1)


def _check_endpoint_address(address: Document, path: str, errors: Errors) -> None:
    ip = address.get("ip") or ""
    check_ip(ip, f"{path}.ip", errors)
    _check_place({**address, "hostname": address.get("hostname") or None}, path, errors)
    if not ip_family(ip):
        errors.invalid(f"{path}.ip", ip, "must be a valid IP address")


def _check_endpoint_port(port: Document, path: str, errors: Errors, *, needs_name: bool) -> None:
    name = port.get("name") or ""
    if needs_name and not name:
        errors.required(f"{path}.name")
    elif name:
        errors.each_invalid(f"{path}.name", name, names.label_problems(name))
    check_port_number(port.get("port") or 0, f"{path}.port", errors)
    protocol = port.get("protocol") or "TCP"
    if protocol not in PROTOCOLS:
        errors.not_supported(f"{path}.protocol", protocol, PROTOCOLS)
    _check_application(port, path, errors)


def check_address(new: Document, old: Document | None, errors: Errors) -> None:
    """An IPAddress belongs to one object for good."""
    parent = (new.get("spec") or {}).get("parentRef")
    if old is not None:
        if parent != (old.get("spec") or {}).get("parentRef"):
            errors.invalid("spec.parentRef", None, IMMUTABLE, declarative=True)
        return
    if parent is None:
        errors.required("spec.parentRef", declarative=True)
        return
    if group := parent.get("group"):
        errors.each_invalid("spec.parentRef.group", group, names.subdomain_problems(group))
    for field in ("resource", "name"):
        if not parent.get(field):
            errors.required(f"spec.parentRef.{field}", declarative=True)
    for field in ("resource", "name", "namespace"):
        name = parent.get(field) or ""
        errors.each_invalid(f"spec.parentRef.{field}", name, path_segment_problems(name))


def check_range(new: Document, old: Document | None, errors: Errors) -> None:
    """A ServiceCIDR: one range, or one of each family; a second one may be added."""
    path, ranges = "spec.cidrs", (new.get("spec") or {}).get("cidrs") or []
    before = ((old or {}).get("spec") or {}).get("cidrs") or []
    if old is None:
        _check_ranges(ranges, path, errors)
    elif len(ranges) == len(before) or (len(before), len(ranges)) == (1, 2):
        for i, (text, known) in enumerate(zip(ranges, before, strict=False)):
            if text != known:
                errors.invalid(f"{path}[{i}]", text, IMMUTABLE)
        if len(ranges) > len(before):
            _check_ranges(ranges, path, errors)
    else:
        errors.invalid(path, ranges or None, IMMUTABLE)


def _check_ranges(ranges: list[str], path: str, errors: Errors) -> None:
    if not ranges:
        errors.required(path, "at least one CIDR required")
        return
    if len(ranges) > 2:
        errors.invalid(path, {"CIDRs": ranges}, "may only hold up to 2 values")
        return
    for i, text in enumerate(ranges):
        check_network(text, f"{path}[{i}]", errors)
    families = [ip_family(text.partition("/")[0]) for text in ranges]
    if len(families) == 2 and families[0] == families[1] != 0:
        example = "192.168.0.0/24 and 2001:db8::/64"
        errors.invalid(path, ranges, f"may specify no more than one IP for each IP family, i.e {example}")
