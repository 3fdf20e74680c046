"""Cluster IPs: every Service but a headless or external one gets an address of its own from one range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, ip_address
from typing import Any

import msgspec

from dray.api.jsontext import go_json
from dray.apiserver.errors import ApiError, OptionError, invalid
from dray.apiserver.request.request_info import Document
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin
from dray.apiserver.write.admission.service_allocations import ServiceAllocations, service_key
from dray.validation.formats import IP_RULE

SERVICE_RANGE = IPv4Network("10.96.0.0/12")
# The first address is the API server's.
API_SERVER_ADDRESS = str(SERVICE_RANGE[1])
HEADLESS = "None"
NO_IPV6 = "IPv6 is not configured on this cluster"


class _Spec(msgspec.Struct, rename="camel"):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class _Service(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_read = msgspec.json.Decoder(_Service).decode


class AddressBook(ServiceAllocations[str]):
    """Which address belongs to which Service."""

    def values_of(self, stored: bytes) -> Iterable[str]:
        address = _read(stored).spec.cluster_ip
        return (address,) if address and address != HEADLESS else ()

    def choose(self, key: str) -> str:
        """A free address; the lowest ones are left to those who ask for them by name."""
        while True:
            address = str(SERVICE_RANGE[self._random.randrange(256, SERVICE_RANGE.num_addresses - 1)])
            if self.is_free(address, key):
                return address


class ServiceAddresses(AdmissionPlugin):
    name = "ServiceAddresses"
    resources = frozenset({("", "services")})

    def __init__(self, book: AddressBook) -> None:
        self._book = book

    async def mutate(self, admission: Admission) -> None:
        if (
            admission.document is None
            or admission.attributes.subresource
            or admission.operation not in (CREATE, UPDATE)
        ):
            return
        # Loaded with the first Service that is written: a server that starts writes none.
        from dray.apiserver.write.admission.service_families import fill_families

        document, old = admission.document, admission.old
        spec = document.setdefault("spec", {})
        if spec.get("type") == "ExternalName":
            # A Service that had an address gives it back; a new one must not name one.
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy") if old is not None else ():
                spec.pop(field, None)
            if spec.get("clusterIP"):
                spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
            return
        self._keep(spec, (old or {}).get("spec") or {})
        address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        _set_address(spec, address or self._book.choose(service_key(admission)))
        if found := fill_families(spec, (old or {}).get("spec") or {}):
            raise invalid("", "Service", admission.name, found)

    def _keep(self, spec: Document, before: Document) -> None:
        """An update that does not name the address leaves it as it is."""
        if before.get("clusterIP") and not spec.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
            spec["clusterIPs"] = before.get("clusterIPs") or [before["clusterIP"]]
        elif before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]

    def _problems(self, address: str, key: str) -> Iterator[str]:
        parsed = ip_address(address)
        if parsed not in SERVICE_RANGE or parsed in (SERVICE_RANGE[0], SERVICE_RANGE[-1]):
            yield f"failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is {SERVICE_RANGE}"
        elif not self._book.is_free(address, key):
            yield f"failed to allocate IP {address}: provided IP is already allocated"

    async def validate(self, admission: Admission) -> None:
        """The address is checked and reserved right before the store, so that a refused Service keeps none."""
        if admission.document is None or admission.attributes.subresource:
            return
        spec, old = admission.document.get("spec") or {}, (admission.old or {}).get("spec") or {}
        before = old.get("clusterIP")
        address = spec.get("clusterIP")
        if spec.get("type") == "ExternalName":
            return
        # Whatever forwards to Services would serve these addresses, too, whoever has them. An earlier version kept them.
        others = (spec.get("clusterIPs") or [])[1:]
        if others and others != (old.get("clusterIPs") or [])[1:]:
            raise _refused(admission, [_why_no_others(address, others)])
        if address == before:
            return
        if before:
            raise _refused(admission, ["may not change once set"], "spec.clusterIPs[0]")
        if not address or address == HEADLESS:
            return
        _check_is_ipv4(admission, address)
        problems = list(self._problems(address, service_key(admission)))
        if problems:
            raise _refused(admission, problems)
        if not admission.attributes.dry_run:
            self._book.reserve([address], service_key(admission))


def _check_is_ipv4(admission: Admission, address: str) -> None:
    try:
        is_ipv4 = ip_address(address).version == 4
    except ValueError:
        found = OptionError("Invalid", "spec.clusterIPs[0]", f"Invalid value: {go_json(address)}: {IP_RULE}")
        raise invalid("", "Service", admission.name, [found]) from None
    if not is_ipv4:
        # One such as ::ffff:10.96.0.1 would be an IPv4 address in another spelling.
        raise _refused(admission, [NO_IPV6], "spec.clusterIPs[0]")


def _why_no_others(address: str | None, others: list[str]) -> str:
    if address == HEADLESS:
        return "'None' must be the first and only value"
    return NO_IPV6 if len(others) == 1 and ":" in others[0] else "may specify no more than one IP for each IP family"


def _set_address(spec: dict[str, Any], address: str) -> None:
    spec["clusterIP"] = address
    spec["clusterIPs"] = spec.get("clusterIPs") or [address]


def _refused(admission: Admission, problems: list[str], path: str = "spec.clusterIPs") -> ApiError:
    spec = (admission.document or {}).get("spec") or {}
    sent = spec.get("clusterIPs") or [spec.get("clusterIP")]
    value = msgspec.json.encode(sent).decode()
    found = [OptionError("Invalid", path, f"Invalid value: {value}: {text}") for text in problems]
    return invalid("", "Service", admission.name, found)
