"""Which interfaces are offered, and how they look as DRA devices, under the attribute names of DRANET. Pure."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dray.api.names import label_problems
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
)
from dray.driver.net.links import PHYSICAL, Link

_LONGEST_VALUE = 64
_MEGA = 10**6


@dataclass(frozen=True, slots=True)
class InterfaceChoice:
    """What the administrator asked for. Patterns are those of a shell and are matched with interface names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    has_default_route: bool = False
    unknown_speed_mbit: int = 1000
    """The bandwidth that shares of an interface without a known speed have together."""


def is_shared(link: Link, choice: InterfaceChoice) -> bool:
    return _matches(link, choice.shared)


def is_offered(link: Link, choice: InterfaceChoice) -> bool:
    """Whether claims may have the interface.

    Left out unless the administrator names them: interfaces that the node cannot miss (with the default route, below a
    bridge or bond), the host's ends of other pods' networks (veth) and queues without a network (ifb). A bridge cannot leave its namespace, only be shared.
    """
    if link.is_loopback or _matches(link, choice.exclude):
        return False
    if is_shared(link, choice):
        return True
    if link.type == "bridge" or (link.has_default_route and not choice.has_default_route):
        return False
    if choice.include:
        return _matches(link, choice.include)
    return not link.has_master and link.type not in ("veth", "ifb")


def names_of(links: Iterable[Link]) -> dict[str, Link]:
    """Interfaces by device name. One on a PCI bus is named by its address, which stays the same whatever the interface is called."""
    links = list(links)
    at_address = Counter(link.pci.address for link in links if link.pci is not None)
    return {
        _pci_name(link.pci.address)
        if link.pci is not None and at_address[link.pci.address] == 1
        else _interface_name(link.name): link
        for link in links
    }


def device_of(name: str, link: Link, choice: InterfaceChoice, taints: tuple[DeviceTaint, ...] = ()) -> Device:
    shared = is_shared(link, choice)
    return Device(
        name=name,
        attributes=_attributes(link),
        capacity={"bandwidth": _bandwidth(link.speed_mbit or choice.unknown_speed_mbit)} if shared else {},
        allow_multiple_allocations=True if shared else None,
        taints=taints,
    )


def _matches(link: Link, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(link.name, pattern) for pattern in patterns)


def _pci_name(address: str) -> str:
    return f"pci-{address.replace(':', '-').replace('.', '-')}"


def _interface_name(name: str) -> str:
    """The interface's own name where Kubernetes takes it, else the name in base32, as DRANET does it."""
    if not label_problems(name):
        return name
    return f"net-{base64.b32encode(name.encode()).decode().rstrip('=').lower()}"


def _bandwidth(speed_mbit: int) -> DeviceCapacity:
    """Bits a second, in steps of a megabit. A claim that does not say how much it needs gets all of it."""
    everything, step = Quantity.parse(f"{speed_mbit}M"), Quantity.parse("1M")
    valid = CapacityRequestPolicyRange(min=step, max=everything, step=step)
    return DeviceCapacity(value=everything, request_policy=CapacityRequestPolicy(default=everything, valid_range=valid))


def _attributes(link: Link) -> dict[str, DeviceAttribute]:
    attributes = {
        "ifName": DeviceAttribute(string=link.name),
        "type": DeviceAttribute(string=link.type),
        "state": DeviceAttribute(string=link.state),
        "encapsulation": DeviceAttribute(string=link.encapsulation),
        "mtu": DeviceAttribute(int_=link.mtu),
        "virtual": DeviceAttribute(bool_=link.type != PHYSICAL),
        "rdma": DeviceAttribute(bool_=link.pci is not None and link.pci.rdma_device is not None),
        "sriov": DeviceAttribute(bool_=link.pci is not None and link.pci.total_vfs > 0),
    }
    texts = {"mac": link.mac, "alias": link.alias, "driver": link.driver}
    texts |= {"ipv4": _joined(link.ipv4), "ipv6": _joined(link.ipv6)}
    attributes |= _strings(texts)
    if link.speed_mbit is not None:
        attributes["speedMbps"] = DeviceAttribute(int_=link.speed_mbit)
    return attributes | _pci_attributes(link)


def _pci_attributes(link: Link) -> dict[str, DeviceAttribute]:
    pci = link.pci
    if pci is None:
        return {}
    attributes = {"isSriovVf": DeviceAttribute(bool_=pci.is_vf)}
    if pci.total_vfs:
        attributes["sriovVfs"] = DeviceAttribute(int_=pci.vfs)
    if pci.numa_node is not None:
        attributes["numaNode"] = attributes["resource.kubernetes.io/numaNode"] = DeviceAttribute(int_=pci.numa_node)
    texts = {"pciAddress": pci.address, "pciVendorID": pci.vendor, "pciDeviceID": pci.device}
    texts |= {"rdmaDevice": pci.rdma_device, "sriovParent": pci.parent}
    texts |= {"resource.kubernetes.io/pciBusID": pci.address, "resource.kubernetes.io/pcieRoot": pci.root}
    return attributes | _strings(texts)


def _strings(texts: Mapping[str, str | None]) -> dict[str, DeviceAttribute]:
    """Those that have a value, cut to the length that the API allows."""
    return {name: DeviceAttribute(string=text[:_LONGEST_VALUE]) for name, text in texts.items() if text}


def _joined(addresses: Iterable[str]) -> str:
    """As many whole addresses as fit."""
    joined = ""
    for each in addresses:
        longer = f"{joined},{each}" if joined else each
        if len(longer) > _LONGEST_VALUE:
            break
        joined = longer
    return joined
