"""Node ports: every port of a Service of type NodePort or LoadBalancer gets one that no other Service has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dray.api.defaults import SERVICES_ON_NODES, needs_health_check
from dray.apiserver.errors import ApiError, OptionError, bad_request, invalid
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin
from dray.apiserver.write.admission.service_allocations import ServiceAllocations, service_key

PORT_RANGE = range(30000, 32768)
# The lowest ports are left to those who ask for them by number, as long as there are others.
ASKED_FOR = 86
TAKEN = "provided port is already allocated"
OUTSIDE = (
    f"provided port is not in the valid range. The range of valid ports is {PORT_RANGE.start}-{PORT_RANGE.stop - 1}"
)


class _Port(msgspec.Struct, rename="camel"):
    node_port: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    ports: list[_Port] | None = None
    health_check_node_port: int | None = None


class _Service(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_read = msgspec.json.Decoder(_Service).decode


class NodePortBook(ServiceAllocations[int]):
    """Which node port belongs to which Service."""

    def values_of(self, stored: bytes) -> Iterable[int]:
        spec = _read(stored).spec
        numbers = [spec.health_check_node_port, *(port.node_port for port in spec.ports or ())]
        return dict.fromkeys(number for number in numbers if number)

    def free_ports(self, key: str) -> Iterator[int]:
        """Every free port once, from a random one on."""
        middle = PORT_RANGE.start + ASKED_FOR
        first = self._random.randrange(middle, PORT_RANGE.stop)
        ranges = (range(first, PORT_RANGE.stop), range(middle, first), range(PORT_RANGE.start, middle))
        return (number for numbers in ranges for number in numbers if self.is_free(number, key))

    def problem(self, number: int, key: str, *, dry_run: bool) -> str:
        """Why the Service cannot have the port. As in Kubernetes, a dry run does not look at the range."""
        if number not in PORT_RANGE and not dry_run:
            return OUTSIDE
        return "" if self.is_free(number, key) else TAKEN


class ServiceNodePorts(AdmissionPlugin):
    name = "ServiceNodePorts"
    resources = frozenset({("", "services")})

    def __init__(self, book: NodePortBook) -> None:
        self._book = book

    async def mutate(self, admission: Admission) -> None:
        document, before = admission.document, (admission.old or {}).get("spec") or {}
        if document is None or not _concerns_ports(admission):
            return
        spec = document.get("spec") or {}
        if not _has_node_ports(spec):
            return
        spec = _with_kept_numbers(spec, before)
        self._check(admission, spec, before)
        document["spec"] = self._with_chosen_ports(admission, spec)

    def _with_chosen_ports(self, admission: Admission, spec: Document) -> Document:
        chosen: set[int] = admission.memory.setdefault(self.name, set())
        asked_for = set(_numbers(spec))
        free = (number for number in self._book.free_ports(service_key(admission)) if number not in asked_for)
        made = {**spec, "ports": list(_with_node_ports(spec, free, shares=admission.old is None))}
        if needs_health_check(made) and not made.get("healthCheckNodePort"):
            made["healthCheckNodePort"] = _next_free(free)
        chosen |= set(_numbers(made)) - asked_for
        return made

    async def validate(self, admission: Admission) -> None:
        """Ports are reserved right before the store. One that another Service took since it was chosen is chosen anew."""
        document, before = admission.document, (admission.old or {}).get("spec") or {}
        if document is None or not _concerns_ports(admission) or not _has_node_ports(document.get("spec") or {}):
            return
        key, chosen = service_key(admission), admission.memory.get(self.name) or set()
        lost = {number for number in chosen if not self._book.is_free(number, key)}
        if lost:
            document["spec"] = self._with_chosen_ports(admission, _without_numbers(document["spec"], lost))
        self._check(admission, document["spec"], before)
        if not admission.attributes.dry_run:
            self._book.reserve(set(_numbers(document["spec"])) - set(_numbers(before)), key)

    def _check(self, admission: Admission, spec: Document, before: Document) -> None:
        """Refuses the first port that the Service asks for and cannot have; those it has already may stay."""
        key, had, dry_run = service_key(admission), set(_numbers(before)), admission.attributes.dry_run
        seen: dict[int, Any] = {}
        for i, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort") or 0
            if not number or number in had:
                continue
            problem = self._book.problem(number, key, dry_run=dry_run)
            # A new Service may use a node port twice only for two protocols of one port.
            if admission.old is None and seen.setdefault(number, port.get("port")) != port.get("port"):
                problem = problem or TAKEN
            if problem:
                raise _refused(admission, f"spec.ports[{i}].nodePort", number, problem)
        number = spec.get("healthCheckNodePort") or 0
        if number and number not in had and needs_health_check(spec):
            problem = TAKEN if number in seen else self._book.problem(number, key, dry_run=dry_run)
            if problem:
                raise bad_request(f"failed to allocate requested HealthCheck NodePort {number}: {problem}")


def _has_node_ports(spec: Document) -> bool:
    return spec.get("type") in SERVICES_ON_NODES


def _concerns_ports(admission: Admission) -> bool:
    return admission.operation in (CREATE, UPDATE) and not admission.attributes.subresource


def _with_kept_numbers(spec: Document, before: Document) -> Document:
    made = {**spec, "ports": spec.get("ports") or []}
    if _has_node_ports(before):
        # Loaded when it is needed: a server that starts updates no Services.
        from dray.api.service_updates import with_kept_node_ports

        made["ports"] = with_kept_node_ports(made["ports"], before.get("ports") or [])
    kept = before.get("healthCheckNodePort")
    if kept and not spec.get("healthCheckNodePort") and needs_health_check(spec) and needs_health_check(before):
        made["healthCheckNodePort"] = kept
    return made


def _with_node_ports(spec: Document, free: Iterator[int], *, shares: bool) -> Iterator[Document]:
    """The ports with those that were missing; with `shares`, the protocols of one port get the same."""
    known: dict[Any, int] = {}
    if shares:
        for port in reversed(spec["ports"]):
            if port.get("nodePort"):
                known[port.get("port")] = port["nodePort"]
    needs_all = spec.get("type") == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
    for port in spec["ports"]:
        if port.get("nodePort") or not needs_all:
            yield port
            continue
        number = known.get(port.get("port")) or _next_free(free)
        if shares:
            known[port.get("port")] = number
        yield {**port, "nodePort": number}


def _next_free(free: Iterator[int]) -> int:
    number = next(free, 0)
    if not number:
        raise bad_request("failed to allocate a nodePort: range is full")
    return number


def _numbers(spec: Document) -> Iterator[int]:
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield spec["healthCheckNodePort"]


def _without_numbers(spec: Document, lost: set[int]) -> Document:
    ports = [{**port, "nodePort": 0} if port.get("nodePort") in lost else port for port in spec["ports"]]
    made = {**spec, "ports": ports}
    if spec.get("healthCheckNodePort") in lost:
        del made["healthCheckNodePort"]
    return made


def _refused(admission: Admission, path: str, number: int, why: str) -> ApiError:
    found = OptionError("Invalid", path, f"Invalid value: {number}: {why}")
    return invalid("", "Service", admission.name, [found])
