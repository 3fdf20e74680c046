"""What the kernel knows about the interfaces of a network namespace: netlink, and `/sys` for those on a PCI bus."""

import contextlib
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dray.driver.net.namespaces import ask, netlink, within
from dray.driver.sysfs import SYSFS, numa_node_of, pcie_root_of, read_number, read_text

IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_ENCAPSULATIONS = {1: "ether", 32: "infiniband", 768: "tunnel", 772: "loopback", 65534: "none"}
_STATES = {"NOTPRESENT": "not-present", "LOWERLAYERDOWN": "lower-layer-down"}
_UNKNOWN_SPEED = 0xFFFFFFFF
_GLOBAL = 0
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PHYSICAL = "device"
"""The type of an interface that no software made, as iproute2 and DRANET call it."""


@dataclass(frozen=True, slots=True)
class PciFacts:
    """What `/sys/bus/pci` says about the card behind an interface. `parent` is the interface of the physical function."""

    address: str
    root: str | None = None
    vendor: str | None = None
    device: str | None = None
    numa_node: int | None = None
    rdma_device: str | None = None
    total_vfs: int = 0
    vfs: int = 0
    is_vf: bool = False
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One interface, as it was when the kernel was asked."""

    index: int
    name: str
    type: str
    mac: str = ""
    mtu: int = 0
    state: str = "unknown"
    encapsulation: str = "ether"
    alias: str = ""
    is_up: bool = False
    is_loopback: bool = False
    has_default_route: bool = False
    has_master: bool = False
    speed_mbit: int | None = None
    driver: str | None = None
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    pci: PciFacts | None = None


def read_links(namespace: Path, sysfs: Path = SYSFS) -> tuple[Link, ...]:
    """All interfaces of the namespace, in the order of the kernel."""
    found = ask(namespace, lambda routes: _read(routes, sysfs))
    speeds = _speeds(namespace, [link.name for link in found if not link.is_loopback])
    return tuple(replace(link, speed_mbit=speeds.get(link.name)) for link in found)


def _read(routes: Any, sysfs: Path) -> list[Link]:
    default = {route.get("oif") for route in routes.get_default_routes()}
    addresses: dict[tuple[int, int], list[str]] = {}
    for each in routes.get_addr():
        if each["scope"] == _GLOBAL:
            text = f"{each.get('local') or each.get('address')}/{each['prefixlen']}"
            addresses.setdefault((each["index"], each["family"]), []).append(text)
    return [_link(message, default, addresses, sysfs) for message in routes.get_links()]


def _link(message: Any, default: set[int], addresses: dict[tuple[int, int], list[str]], sysfs: Path) -> Link:
    index = message["index"]
    kind = (message.get("linkinfo") or {}).get("kind")
    bus, device = message.get("parent_dev_bus_name"), message.get("parent_dev_name")
    return Link(
        index=index,
        name=message.get("ifname"),
        type=kind or PHYSICAL,
        mac=message.get("address") or "",
        mtu=message.get("mtu") or 0,
        state=operational_state(message),
        encapsulation=_ENCAPSULATIONS.get(message["ifi_type"], str(message["ifi_type"])),
        alias=message.get("ifalias") or "",
        is_up=bool(message["flags"] & IFF_UP),
        is_loopback=bool(message["flags"] & _IFF_LOOPBACK),
        has_default_route=index in default,
        has_master=message.get("master") is not None,
        ipv4=tuple(addresses.get((index, socket.AF_INET), ())),
        ipv6=tuple(addresses.get((index, socket.AF_INET6), ())),
        driver=_target(sysfs / "bus" / bus / "devices" / device / "driver") if bus and device else None,
        pci=pci_facts(sysfs, bus, device) if bus and device else None,
    )


def operational_state(message: Any) -> str:
    state = message.get("operstate") or "UNKNOWN"
    return _STATES.get(state, state.lower())


def _speeds(namespace: Path, names: list[str]) -> dict[str, int]:
    """Megabits a second of those interfaces that have a speed: a virtual one, or one without a cable, has none."""

    def read() -> dict[str, int]:
        ethtool = _open_ethtool()
        try:
            return {name: speed for name in names for speed in _speed(ethtool, name)}
        finally:
            ethtool.close()

    return within(namespace, read)


def _open_ethtool() -> Any:
    netlink()
    from pyroute2.netlink.generic.ethtool import NlEthtool

    return NlEthtool()


def _speed(ethtool: Any, name: str) -> Iterator[int]:
    from pyroute2.netlink.exceptions import NetlinkError

    with contextlib.suppress(NetlinkError):
        for answer in ethtool.get_linkmode(name):
            speed = answer.get("ETHTOOL_A_LINKMODES_SPEED")
            if speed and speed != _UNKNOWN_SPEED:
                yield int(speed)


# --- /sys -----------------------------------------------------------------------------------------------------------


def pci_facts(sysfs: Path, bus: str, device: str) -> PciFacts | None:
    """The PCI function that a device is or belongs to: a virtio card is a device of its own bus on top of one.

    Nothing here depends on the namespace of whoever reads it, unlike `/sys/class/net`.
    """
    folder = _pci_folder(sysfs / "bus" / bus / "devices" / device)
    if folder is None:
        return None
    physical = folder / "physfn"
    return PciFacts(
        address=folder.name,
        root=pcie_root_of(folder),
        vendor=read_text(folder / "vendor") or None,
        device=read_text(folder / "device") or None,
        numa_node=numa_node_of(folder),
        rdma_device=_first_entry(folder / "infiniband"),
        total_vfs=read_number(folder / "sriov_totalvfs") or 0,
        vfs=read_number(folder / "sriov_numvfs") or 0,
        is_vf=physical.exists(),
        parent=_first_entry(physical / "net"),
    )


def _pci_folder(device: Path) -> Path | None:
    with contextlib.suppress(OSError):
        path = device.resolve(strict=True)
        return next((folder for folder in (path, *path.parents) if _PCI_ADDRESS.fullmatch(folder.name)), None)
    return None


def _target(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.resolve(strict=True).name
    return None


def _first_entry(folder: Path) -> str | None:
    with contextlib.suppress(OSError):
        return min((path.name for path in folder.iterdir()), default=None)
    return None
