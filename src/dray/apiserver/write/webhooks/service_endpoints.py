"""The address of a Service's endpoint, since nothing routes to the Service's own address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from dray.api.safe_get import labels_of, mapping, mappings, part, strings, text
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import ObjectLookup

SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class ServiceReference:
    namespace: str
    name: str
    port: int
    path: str

    @property
    def host(self) -> str:
        """The name that the server's certificate must have."""
        return f"{self.name}.{self.namespace}.svc"


class NoEndpoint(Exception):
    """The Service does not exist, or nothing serves it; the text says which."""


class Address(NamedTuple):
    host: str
    port: int


class ServiceEndpoints:
    def __init__(self, objects: ObjectLookup, random: Random) -> None:
        self._objects = objects
        self._random = random

    async def address(self, reference: ServiceReference) -> Address:
        """One of the ready endpoints, by chance; raises NoEndpoint."""
        service = await self._objects.get("", "services", reference.namespace, reference.name)
        if service is None:
            raise NoEndpoint(f'service "{reference.name}" not found')
        spec = mapping(service, "spec")
        if text(spec, "type") == "ExternalName":
            return Address(text(spec, "externalName"), reference.port)
        port = next((entry for entry in mappings(spec, "ports") if entry.get("port") == reference.port), None)
        if port is None:
            raise NoEndpoint(f'no service port {reference.port} found for service "{reference.name}"')
        found = await self._ready(reference, text(port, "name"))
        if not found:
            raise NoEndpoint(f'no endpoints available for service "{reference.name}"')
        return self._random.choice(found)

    async def _ready(self, reference: ServiceReference, port_name: str) -> list[Address]:
        """From EndpointSlices; from Endpoints only where nobody has made slices of them."""
        slices = await self._objects.list("discovery.k8s.io", "endpointslices", reference.namespace)
        mine = [found for found in slices if labels_of(found).get(SERVICE_LABEL) == reference.name]
        if mine:
            return [address for found in mine for address in _in_slice(found, port_name)]
        endpoints = await self._objects.get("", "endpoints", reference.namespace, reference.name)
        return [address for subset in mappings(endpoints, "subsets") for address in _in_subset(subset, port_name)]


def _in_slice(found: Document, port_name: str) -> Iterator[Address]:
    number = _number(mappings(found, "ports"), port_name)
    for endpoint in mappings(found, "endpoints"):
        if number and part(endpoint, "conditions", "ready") is not False:
            yield from (Address(host, number) for host in strings(endpoint, "addresses")[:1])


def _in_subset(subset: Document, port_name: str) -> Iterator[Address]:
    number = _number(mappings(subset, "ports"), port_name)
    if number:
        yield from (Address(text(entry, "ip"), number) for entry in mappings(subset, "addresses"))


def _number(ports: list[Document], name: str) -> int:
    found = next((part(port, "port") for port in ports if text(port, "name") == name), None)
    return found if isinstance(found, int) else 0
