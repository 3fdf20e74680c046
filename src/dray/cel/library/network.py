"""IP addresses and CIDR blocks, without zones and without IPv4 in IPv6 clothing."""

from __future__ import annotations

import ipaddress
from typing import Any

from dray.cel.cost_ranges import (
    ONE,
    STRING_FACTOR,
    Range,
    traversal,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing, guard_name
from dray.cel.library import costs
from dray.cel.types import BOOL, CIDR, INT, IP, STRING
from dray.cel.values import name_type, refuse_other_types, size

library = Library("network")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class IpAddress:
    __slots__ = ("address",)

    def __init__(self, address: Address) -> None:
        self.address = address

    @property
    def cel_size(self) -> int:
        return len(self.address.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IpAddress) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return str(self.address)


class CidrBlock:
    __slots__ = ("address", "bits")

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    @property
    def cel_size(self) -> int:
        return -(-self.bits // 8)

    @property
    def network(self) -> int:
        return _masked(self.address, self.bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CidrBlock) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def __repr__(self) -> str:
        return f"{self.address}/{self.bits}"


for _type, _cel in ((IpAddress, IP), (CidrBlock, CIDR)):
    guard_name(_cel.name, _type)
    name_type(_type, _cel.name)
    refuse_other_types(_type)


def _masked(address: Address, bits: int) -> int:
    spare = address.max_prefixlen - bits
    return int(address) >> spare << spare


def parse_address(text: str) -> Address:
    if len(text) > 64 or "%" in text or not text.isascii():
        raise CelError(f"IP Address {text[:64]!r} parse error during conversion from string")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(f"IP Address {text[:64]!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError("IPv4-mapped IPv6 address is not allowed")
    return address


def ip(text: str) -> IpAddress:
    return IpAddress(parse_address(text))


def cidr(text: str) -> CidrBlock:
    head, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or len(bits) > 3 or (bits[0] == "0" and bits != "0"):
        raise CelError(f"network address parse error during conversion from string: {text[:64]!r}")
    address = parse_address(head)
    if int(bits) > address.max_prefixlen:
        raise CelError(f"network address parse error during conversion from string: {text[:64]!r}")
    return CidrBlock(address, int(bits))


def _parses(parser: Any) -> Any:
    def parses(text: str) -> bool:
        try:
            parser(text)
        except CelError:
            return False
        return True

    return parses


def is_canonical(text: str) -> bool:
    return str(parse_address(text)) == text


def is_global_unicast(value: IpAddress) -> bool:
    a = value.address
    broadcast = isinstance(a, ipaddress.IPv4Address) and int(a) == 2**32 - 1
    return not (broadcast or a.is_unspecified or a.is_loopback or a.is_multicast or a.is_link_local)


def is_link_local_multicast(value: IpAddress) -> bool:
    a = value.address
    if isinstance(a, ipaddress.IPv4Address):
        return int(a) >> 8 == 0xE00000
    return a.packed[0] == 0xFF and a.packed[1] & 0x0F == 0x02


def contains_ip(block: CidrBlock, other: Any) -> bool:
    address = other.address if type(other) is IpAddress else parse_address(other)
    return address.version == block.address.version and _masked(address, block.bits) == block.network


def contains_cidr(block: CidrBlock, other: Any) -> bool:
    inner = other if type(other) is CidrBlock else cidr(other)
    if inner.address.version != block.address.version or inner.bits < block.bits:
        return False
    return _masked(inner.address, block.bits) == block.network


def masked(block: CidrBlock) -> CidrBlock:
    return CidrBlock(type(block.address)(block.network), block.bits)


# --- costs: blocks are compared byte by byte, up to the prefix; texts are read first


def _contains_ip_cost(block: Any, _: Any) -> int:
    return traversal(2 * size(block))


def _contains_ip_text_cost(block: Any, other: Any) -> int:
    return _contains_ip_cost(block, other) + traversal(size(other))


def _contains_cidr_cost(block: Any, _: Any) -> int:
    return traversal(2 * size(block)) + traversal(size(block)) + 1


def _contains_cidr_text_cost(block: Any, other: Any) -> int:
    return _contains_cidr_cost(block, other) + traversal(size(other))


_ADDRESS = Range(4, 16)


def _estimate_contains(extra: bool, text: bool) -> Any:
    def estimated(call: Sizing) -> Estimate:
        cost = _ADDRESS.plus(_ADDRESS).scaled(STRING_FACTOR)
        if extra:
            cost = cost.plus(_ADDRESS.scaled(STRING_FACTOR)).plus(ONE)
        if text:
            cost = cost.plus(call.size(call.args[0]).scaled(STRING_FACTOR))
        return Estimate(cost)

    return estimated


def _estimate_canonical(call: Sizing) -> Estimate:
    return Estimate(call.size(call.args[0]).scaled(2 * STRING_FACTOR))


def _declare_addresses() -> None:
    reading: dict[str, Any] = {
        "cost": costs.reading_first,
        "cost_by_name": True,
        "estimate": costs.estimate_reading_first,
    }
    unit: dict[str, Any] = {"cost": costs.one, "cost_by_name": True, "estimate": costs.estimate_one}
    add = library.add
    add("ip", "string_to_ip", (STRING,), IP, ip, **reading)
    add("ip", "cidr_ip", (CIDR,), IP, lambda block: IpAddress(block.address), member=True, **unit)
    add("isIP", "is_ip", (STRING,), BOOL, _parses(ip), **reading)
    add(
        "ip.isCanonical",
        "ip_is_canonical",
        (STRING,),
        BOOL,
        is_canonical,
        cost=costs.reading_first_twice,
        cost_by_name=True,
        estimate=_estimate_canonical,
    )
    add("string", "ip_to_string", (IP,), STRING, lambda a: str(a.address))
    tests = {
        "family": (INT, lambda a: a.address.version),
        "isUnspecified": (BOOL, lambda a: a.address.is_unspecified),
        "isLoopback": (BOOL, lambda a: a.address.is_loopback),
        "isLinkLocalMulticast": (BOOL, is_link_local_multicast),
        "isLinkLocalUnicast": (BOOL, lambda a: a.address.is_link_local),
        "isGlobalUnicast": (BOOL, is_global_unicast),
    }
    for name, (result, function) in tests.items():
        add(name, f"ip_{name}", (IP,), result, function, member=True, **unit)


def _declare_blocks() -> None:
    reading: dict[str, Any] = {
        "cost": costs.reading_first,
        "cost_by_name": True,
        "estimate": costs.estimate_reading_first,
    }
    unit: dict[str, Any] = {"cost": costs.one, "cost_by_name": True, "estimate": costs.estimate_one}
    add = library.add
    add("cidr", "string_to_cidr", (STRING,), CIDR, cidr, **reading)
    add("isCIDR", "is_cidr", (STRING,), BOOL, _parses(cidr), **reading)
    add("string", "cidr_to_string", (CIDR,), STRING, repr)
    add("masked", "cidr_masked", (CIDR,), CIDR, masked, member=True, **unit)
    add("prefixLength", "cidr_prefix_length", (CIDR,), INT, lambda block: block.bits, member=True, **unit)
    rows: tuple[tuple[str, Any, Any, Any, Any, bool], ...] = (
        ("containsIP", IP, contains_ip, _contains_ip_cost, _contains_ip_text_cost, False),
        ("containsCIDR", CIDR, contains_cidr, _contains_cidr_cost, _contains_cidr_text_cost, True),
    )
    for name, t, function, cost, text_cost, extra in rows:
        for other, rule in ((STRING, text_cost), (t, cost)):
            estimate = _estimate_contains(extra, other is STRING)
            add(
                name,
                f"cidr_{name}_{other.kind}",
                (CIDR, other),
                BOOL,
                function,
                member=True,
                cost=rule,
                cost_by_name=cost,
                estimate=estimate,
            )


_declare_addresses()
_declare_blocks()
