"""Rules for Ingress, IngressClass and NetworkPolicy."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from dray.api import names
from dray.validation.errors import Document, Errors
from dray.validation.formats import IMMUTABLE, check_domain_path, check_network, ip_family
from dray.validation.label_selectors import check_label_selector
from dray.validation.metadata import path_segment_problems
from dray.validation.pod_fields import check_port, check_port_number, port_name_problems

PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_BAD_IN_PATH = ("//", "/./", "/../", "%2f", "%2F")
_BAD_AT_END = ("/..", "/.")
_WILDCARD_RULE = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
    r"for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def check_ingress(new: Document, old: Document | None, errors: Errors) -> None:
    spec = new.get("spec") or {}
    default, rules = spec.get("defaultBackend"), spec.get("rules") or []
    if not rules and default is None:
        errors.invalid("spec", None, "either `defaultBackend` or `rules` must be specified")
    if default is not None:
        _check_backend(default, "spec.defaultBackend", errors)
    for i, rule in enumerate(rules):
        _check_rule(rule, f"spec.rules[{i}]", errors)
    for i, tls in enumerate(spec.get("tls") or ()):
        _check_tls(tls, f"spec.tls[{i}]", errors)
    name = spec.get("ingressClassName")
    if name is not None:
        errors.each_invalid("spec.ingressClassName", name, names.subdomain_problems(name))
    written = ((new.get("metadata") or {}).get("annotations") or {}).get(CLASS_ANNOTATION)
    if old is None and written is not None and name is not None and written != name:
        detail = "must match `ingressClassName` when both are specified"
        errors.invalid(f"annotations.{CLASS_ANNOTATION}", written, detail)


def _check_rule(rule: Document, path: str, errors: Errors) -> None:
    host = rule.get("host") or ""
    if host and ip_family(host):
        errors.invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
    if host:
        errors.each_invalid(f"{path}.host", host, _host_problems(host))
    if (http := rule.get("http")) is None:
        return
    if not http.get("paths"):
        errors.required(f"{path}.http.paths")
    for i, each in enumerate(http.get("paths") or ()):
        _check_path(each, f"{path}.http.paths[{i}]", errors)


def _host_problems(host: str) -> tuple[str, ...]:
    if "*" not in host:
        return names.subdomain_problems(host)
    rest = host.removeprefix("*.")
    return (_WILDCARD_RULE,) if rest == host or names.subdomain_problems(rest) else ()


def _check_path(each: Document, path: str, errors: Errors) -> None:
    kind, text = each.get("pathType"), each.get("path") or ""
    if kind is None:
        errors.required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in PATH_TYPES:
        errors.not_supported(f"{path}.pathType", kind, PATH_TYPES)
    else:
        errors.each_invalid(f"{path}.path", text, _path_problems(text, kind))
    _check_backend(each.get("backend") or {}, f"{path}.backend", errors)


def _path_problems(text: str, kind: str) -> Iterator[str]:
    is_free = kind == "ImplementationSpecific"
    if not text.startswith("/") and not (is_free and not text):
        yield "must be an absolute path"
    if not is_free:
        yield from (f"must not contain '{bad}'" for bad in _BAD_IN_PATH if bad in text)
        yield from (f"cannot end with '{bad}'" for bad in _BAD_AT_END if text.endswith(bad))


def _check_backend(backend: Document, path: str, errors: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        errors.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        for field in ("kind", "name"):
            if not resource.get(field):
                errors.required(f"{path}.resource.{field}")
    elif service is None:
        errors.invalid(path, "", "resource or service backend is required")
    else:
        _check_service(service, path, errors)


def _check_service(service: Document, path: str, errors: Errors) -> None:
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        errors.required(f"{path}.service.name")
    else:
        errors.each_invalid(f"{path}.service.name", name, names.label_problems(name))
    port_name, number = port.get("name") or "", port.get("number") or 0
    if port_name and number:
        errors.invalid(path, "", "cannot set both port name & port number")
    elif port_name:
        errors.each_invalid(f"{path}.service.port.name", port_name, port_name_problems(port_name))
    elif number:
        check_port_number(number, f"{path}.service.port.number", errors)
    else:
        errors.required(path, "port name or number is required")


def _check_tls(tls: Document, path: str, errors: Errors) -> None:
    for i, host in enumerate(tls.get("hosts") or ()):
        errors.each_invalid(f"{path}.hosts[{i}]", host, _host_problems(host))
    if secret := tls.get("secretName"):
        errors.each_invalid(f"{path}.secretName", secret, names.subdomain_problems(secret))


def check_ingress_class(new: Document, old: Document | None, errors: Errors) -> None:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    controller, parameters = spec.get("controller") or "", spec.get("parameters")
    if old is not None and controller != (before.get("controller") or ""):
        errors.invalid("spec.controller", controller, IMMUTABLE)
    check_domain_path(controller, "spec.controller", errors)
    if parameters is not None and (old is None or parameters != before.get("parameters")):
        _check_parameters(parameters, "spec.parameters", errors)


def _check_parameters(parameters: Document, path: str, errors: Errors) -> None:
    if (group := parameters.get("apiGroup")) is not None:
        errors.each_invalid(f"{path}.apiGroup", group, names.subdomain_problems(group))
    for field in ("kind", "name"):
        text = parameters.get(field) or ""
        if not text:
            errors.required(f"{path}.{field}", declarative=True)
        errors.each_invalid(f"{path}.{field}", text, path_segment_problems(text))
    scope, namespace = parameters.get("scope", "Cluster"), parameters.get("namespace")
    if scope not in SCOPES:
        errors.not_supported(f"{path}.scope", scope, SCOPES)
    elif scope == "Cluster" and namespace is not None:
        errors.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    elif scope == "Namespace" and namespace is None:
        errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif namespace is not None:
        errors.each_invalid(f"{path}.namespace", namespace, names.label_problems(namespace))


# --- NetworkPolicy ---------------------------------------------------------------------------------------------------

SCOPES = ("Cluster", "Namespace")
POLICY_TYPES = ("Ingress", "Egress")
PROTOCOLS = ("TCP", "UDP", "SCTP")


def check_network_policy(document: Document, errors: Errors) -> None:
    spec = document.get("spec") or {}
    check_label_selector(spec.get("podSelector") or {}, "spec.podSelector", errors)
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{i}]"
            for j, port in enumerate(rule.get("ports") or ()):
                _check_policy_port(port, f"{path}.ports[{j}]", errors)
            for j, peer in enumerate(rule.get(side) or ()):
                _check_peer(peer, f"{path}.{side}[{j}]", errors)
    kinds = spec.get("policyTypes") or []
    if len(kinds) > len(POLICY_TYPES):
        errors.invalid("spec.policyTypes", kinds, "may not specify more than two policyTypes")
        return
    for i, kind in enumerate(kinds):
        if kind not in POLICY_TYPES:
            errors.not_supported(f"spec.policyTypes[{i}]", kind, POLICY_TYPES)


def _check_policy_port(entry: Document, path: str, errors: Errors) -> None:
    protocol, port, end = entry.get("protocol"), entry.get("port"), entry.get("endPort")
    if protocol and protocol not in PROTOCOLS:
        errors.not_supported(f"{path}.protocol", protocol, PROTOCOLS)
    if port is None:
        if end is not None:
            errors.invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")
        return
    if isinstance(port, str) and end is not None:
        errors.invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
    check_port(port, f"{path}.port", errors)
    if isinstance(port, int) and end is not None:
        if end < port:
            errors.invalid(f"{path}.endPort", end, "must be greater than or equal to `port`")
        check_port_number(end, f"{path}.endPort", errors)


def _check_peer(peer: Document, path: str, errors: Errors) -> None:
    known = [field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None]
    for field in known:
        if field == "ipBlock":
            _check_block(peer["ipBlock"], f"{path}.ipBlock", errors)
        else:
            check_label_selector(peer[field], f"{path}.{field}", errors)
    if not known:
        errors.required(path, "must specify a peer")
    elif len(known) > 1 and "ipBlock" in known:
        errors.forbidden(path, "may not specify both ipBlock and another peer")


def _check_block(block: Document, path: str, errors: Errors) -> None:
    outer = block.get("cidr") or ""
    if not outer:
        errors.required(f"{path}.cidr", declarative=True)
        return
    if not check_network(outer, f"{path}.cidr", errors):
        return
    for i, inner in enumerate(block.get("except") or ()):
        here = f"{path}.except[{i}]"
        if check_network(inner, here, errors) and not _is_inside(inner, outer):
            errors.invalid(here, inner, "must be a strict subset of `cidr`")


def _is_inside(inner: str, outer: str) -> bool:
    small, large = (ipaddress.ip_network(text, strict=False) for text in (inner, outer))
    if small.version != large.version or small.prefixlen <= large.prefixlen:
        return False
    return small.network_address in large
