"""Opaque parameters of claims and classes: the NetworkConfig of DRANET, as far as this driver can follow it. Pure."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network

import msgspec

from dray.driver.plugin import DeviceConfig, PrepareError, wrong_parameter

SCOPE_UNIVERSE, SCOPE_LINK = 0, 253
LONGEST_NAME = 15
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{LONGEST_NAME}}}")
_HARDWARE_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_SMALLEST_MTU, _LARGEST_MTU = 68, 65535

IpAddress = IPv4Address | IPv6Address


class InterfaceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the interface looks in the pod; what is left out stays as it is on the host."""

    name: str | None = None
    addresses: tuple[str, ...] | None = None
    mtu: int | None = None
    hardware_addr: str | None = None


class RouteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    destination: str
    gateway: str | None = None
    source: str | None = None
    scope: int = SCOPE_UNIVERSE


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    interface: InterfaceConfig = InterfaceConfig()
    routes: tuple[RouteConfig, ...] | None = None


def network_config(configs: Iterable[DeviceConfig]) -> NetworkConfig:
    """All parameters of a device together: of each field the last one that was given. PrepareError names a wrong field."""
    merged = NetworkConfig()
    for each in configs:
        config = checked(each)
        given = {
            name: value
            for name in InterfaceConfig.__struct_fields__
            if (value := getattr(config.interface, name)) is not None
        }
        routes = merged.routes if config.routes is None else config.routes
        merged = NetworkConfig(msgspec.structs.replace(merged.interface, **given), routes)
    return merged


def checked(given: DeviceConfig) -> NetworkConfig:
    config = given.read(NetworkConfig)
    _check_interface(config.interface)
    for index, route in enumerate(config.routes or ()):
        _check_route(route, f"routes[{index}]")
    return config


def _check_interface(interface: InterfaceConfig) -> None:
    name = interface.name
    if name is not None and (not _NAME.fullmatch(name) or name in (".", "..", "lo")):
        raise wrong_parameter("interface.name", name, "must be at most 15 letters, digits, '-', '_' or '.', and not lo")
    for index, address in enumerate(interface.addresses or ()):
        _check_address(f"interface.addresses[{index}]", address)
    if interface.mtu is not None and not _SMALLEST_MTU <= interface.mtu <= _LARGEST_MTU:
        raise wrong_parameter("interface.mtu", interface.mtu, f"must be {_SMALLEST_MTU} to {_LARGEST_MTU}")
    hardware = interface.hardware_addr
    if hardware is not None and (not _HARDWARE_ADDRESS.fullmatch(hardware) or int(hardware[:2], 16) & 1):
        raise wrong_parameter(
            "interface.hardwareAddr", hardware, "must be six bytes such as 02:00:00:00:00:01, not a group's"
        )


def _check_address(field: str, text: str) -> None:
    try:
        ip_interface(text)
    except ValueError as error:
        raise wrong_parameter(field, text, str(error)) from error
    if "/" not in text:
        raise wrong_parameter(field, text, "must have a prefix length, such as 10.0.0.2/24")


def _check_route(route: RouteConfig, field: str) -> None:
    try:
        version = ip_network(route.destination).version
    except ValueError as error:
        raise wrong_parameter(f"{field}.destination", route.destination, str(error)) from error
    if "/" not in route.destination:
        raise wrong_parameter(
            f"{field}.destination", route.destination, "must have a prefix length; that of a host is /32 or /128"
        )
    if route.scope not in (SCOPE_UNIVERSE, SCOPE_LINK):
        raise wrong_parameter(
            f"{field}.scope", route.scope, f"must be {SCOPE_UNIVERSE} (universe) or {SCOPE_LINK} (link)"
        )
    if route.scope == SCOPE_UNIVERSE and route.gateway is None:
        raise PrepareError(f"opaque parameters: {field}.gateway: needed unless scope is {SCOPE_LINK} (link)")
    for name, text in (("gateway", route.gateway), ("source", route.source)):
        if text is not None and _ip(f"{field}.{name}", text).version != version:
            raise wrong_parameter(f"{field}.{name}", text, f"must be of the same family as {route.destination}")


def _ip(field: str, text: str) -> IpAddress:
    try:
        return ip_address(text)
    except ValueError as error:
        raise wrong_parameter(field, text, str(error)) from error
