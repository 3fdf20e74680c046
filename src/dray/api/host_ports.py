"""Ports of the node that a pod's containers ask for, and whether two of them clash."""

from collections.abc import Iterable, Iterator

from dray.api.core import Container, Pod

HostPort = tuple[str, str, int]
"""Protocol, address of the node, port."""

ANY_ADDRESS = "0.0.0.0"


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """Host ports of long-running containers: regular ones and sidecars. Other init containers end before a clash could matter."""
    spec = pod.spec
    if not any(container.ports for container in (*spec.containers, *spec.init_containers)):
        return frozenset()
    return frozenset(_ports_of(_long_running(pod)))


def ports_clash(wanted: HostPort, taken: HostPort) -> bool:
    same_port = wanted[0] == taken[0] and wanted[2] == taken[2]
    return same_port and (wanted[1] == taken[1] or ANY_ADDRESS in (wanted[1], taken[1]))


def _long_running(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from (container for container in pod.spec.init_containers if container.restart_policy == "Always")


def _ports_of(containers: Iterable[Container]) -> Iterator[HostPort]:
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                yield port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port
