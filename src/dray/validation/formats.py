"""Rules about single values: numbers, drivers, pools, qualified names, references, opaque parameters, addresses.

Functions named `check_…` report what they find; a value that is absent comes in as "".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dray.api import names
from dray.api.names import MAX_DRIVER, MAX_IDENTIFIER, MAX_POOL, byte_length
from dray.api.quantity import Quantity
from dray.validation.errors import VALUE_OMITTED, Document, Errors

MAX_OPAQUE = 10 * 1024
MAX_KEY_IN_PATH = 96
IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"

FULL_NAME_RULE = "a fully qualified name must be a domain and a name separated by a slash"
IP_RULE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
ADDRESS_RULE = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
BAD_REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def check_not_negative(fields: Document, path: str, names: Iterable[str], errors: Errors) -> None:
    for name in names:
        if (fields.get(name) or 0) < 0:
            errors.invalid(f"{path}.{name}" if path else name, fields[name], NEGATIVE)


def key_path(path: str, key: str) -> str:
    """`path[key]`; a key too long for any qualified name is shortened in the middle."""
    if len(key) > MAX_KEY_IN_PATH:
        rest = MAX_KEY_IN_PATH - 3
        key = f"{key[: rest - rest // 2]}...{key[len(key) - rest // 2 :]}"
    return f"{path}[{key}]"


def check_label(name: str, path: str, errors: Errors, *, declarative: bool = False) -> None:
    errors.each_invalid(path, name, names.label_problems(name), declarative=declarative)


def check_driver(driver: str, path: str, errors: Errors, *, declarative: bool = False) -> None:
    """`declarative`: the generated rule answers in place of the handwritten one."""
    if not driver:
        errors.required(path, declarative=declarative)
        return
    too_long = byte_length(driver) > MAX_DRIVER
    if declarative:
        errors.each_invalid(path, driver, names.caseless_subdomain_problems(driver), declarative=True)
        if too_long:
            errors.too_long(path, MAX_DRIVER, declarative=True, unit="characters")
        return
    if too_long:
        errors.too_long(path, MAX_DRIVER)
    errors.each_invalid(path, driver, _lowered_subdomain_problems(driver))


def _lowered_subdomain_problems(driver: str) -> tuple[str, ...]:
    return names.subdomain_problems(driver.lower() if driver.isascii() else driver)


def check_pool(pool: str, path: str, errors: Errors, *, declarative: bool = False) -> None:
    if not pool:
        errors.required(path, declarative=declarative)
        return
    if byte_length(pool) > MAX_POOL:
        errors.too_long(path, MAX_POOL, declarative=declarative)
    for segment, problem in names.pool_segment_problems(pool):
        text = problem if not declarative else f"segment {segment}: {problem}"
        errors.invalid(path, pool, text, declarative=declarative)


@lru_cache(maxsize=16384)
def _is_known_good(name: str) -> bool:
    """Every device has the same few attribute names, so a valid one is checked once."""
    found = Errors()
    _check_qualified(name, "", found)
    return not found.found


def check_qualified(name: str, path: str, errors: Errors) -> None:
    """`id` or `domain/id`. More than one slash passes unchecked, as in Kubernetes."""
    if len(name) > MAX_KEY_IN_PATH or not _is_known_good(name):
        _check_qualified(name, path, errors)


def _check_qualified(name: str, path: str, errors: Errors) -> None:
    domain, slash, identifier = name.partition("/")
    if not slash:
        _check_identifier(name, path, errors)
    elif "/" not in identifier:
        if domain:
            check_driver(domain, path, errors)
        else:
            errors.invalid(path, "", "the domain must not be empty")
        if identifier:
            _check_identifier(identifier, path, errors)
        else:
            errors.invalid(path, "", "the name must not be empty")


def _check_identifier(identifier: str, path: str, errors: Errors) -> None:
    if byte_length(identifier) > MAX_IDENTIFIER:
        errors.too_long(path, MAX_IDENTIFIER)
    errors.each_invalid(path, identifier, names.c_identifier_problems(identifier))


def is_full_name(name: str) -> bool:
    """Whether the handwritten rule for a fully qualified name has nothing to say."""
    found = Errors()
    check_qualified(name, "", found)
    return "/" in name and not found.found


def check_full_name(name: str, path: str, errors: Errors) -> None:
    """A fully qualified name by the generated rule: the domain is lower case."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        errors.invalid(path, name, FULL_NAME_RULE, declarative=True)
        if byte_length(name) > MAX_IDENTIFIER:
            errors.too_long(path, MAX_IDENTIFIER, declarative=True)
        return
    if "/" in identifier:
        return
    if not domain:
        errors.invalid(path, name, "prefix must not be empty", declarative=True)
    elif byte_length(domain) > MAX_DRIVER:
        errors.too_long(path, MAX_DRIVER, declarative=True)
    if domain:
        problems = [f"prefix: {problem}" for problem in names.subdomain_problems(domain)]
        errors.each_invalid(path, name, problems, declarative=True)
    if not identifier:
        errors.invalid(path, name, "name must not be empty", declarative=True)
        return
    if byte_length(identifier) > MAX_IDENTIFIER:
        errors.too_long(path, MAX_IDENTIFIER, declarative=True)
    problems = [f"name: {problem}" for problem in names.c_identifier_problems(identifier)]
    errors.each_invalid(path, name, problems, declarative=True)


def check_uuid(text: str, path: str, errors: Errors) -> None:
    if not names.is_uuid(text):
        errors.invalid(path, text, names.UUID_RULE, declarative=True)


def check_enum(
    value: str, supported: Sequence[str], path: str, errors: Errors, *, required: bool, declarative: bool = True
) -> None:
    if not value:
        if required:
            errors.required(path, declarative=declarative)
    elif value not in supported:
        errors.not_supported(path, value, supported, declarative=declarative)


def check_unique(
    items: Sequence[Any], key: Callable[[Any], Any], path: str, errors: Errors, *, declarative: bool, whole: bool = True
) -> None:
    """`whole`: the error shows the item, not only its key."""
    seen: set[Any] = set()
    for i, item in enumerate(items):
        mark = key(item)
        if mark in seen:
            errors.duplicate(f"{path}[{i}]", item if whole else mark, declarative=declarative)
        seen.add(mark)


def check_references(
    references: Sequence[str], known: RequestNames, path: str, errors: Errors, *, limit: int = 32
) -> None:
    """A list of names of requests and subrequests; one that is too long is not looked into."""
    if len(references) > limit:
        errors.too_many(path, len(references), limit, declarative=True)
        return
    for i, reference in enumerate(references):
        check_reference(reference, known, f"{path}[{i}]", errors)
    check_unique(references, lambda name: name, path, errors, declarative=True)


class RequestNames:
    """The names of a claim's requests and of their subrequests."""

    __slots__ = ("requests", "subrequests")

    def __init__(self, requests: Iterable[Any]) -> None:
        self.requests: set[str] = set()
        self.subrequests: set[tuple[str, str]] = set()
        for request in requests:
            name = request.get("name", "")
            self.requests.add(name)
            self.subrequests.update((name, sub.get("name", "")) for sub in request.get("firstAvailable") or ())


def check_reference(reference: str, known: RequestNames, path: str, errors: Errors) -> None:
    for segment in reference.split("/"):
        check_label(segment, path, errors)
    request, slash, subrequest = reference.partition("/")
    exists = (request, subrequest) in known.subrequests if slash else request in known.requests
    if not exists:
        errors.invalid(path, reference, BAD_REFERENCE)


def check_opaque(opaque: dict[str, Any] | None, path: str, errors: Errors, *, skip_size: bool = False) -> None:
    """Driver and parameters of a configuration."""
    if opaque is None:
        errors.required(path)
        return
    check_driver(opaque.get("driver") or "", f"{path}.driver", errors, declarative=True)
    parameters = opaque.get("parameters")
    if parameters is None:
        errors.required(f"{path}.parameters")
    else:
        check_raw_object(parameters, f"{path}.parameters", errors, skip_size=skip_size)


def check_raw_object(value: Any, path: str, errors: Errors, *, skip_size: bool = False) -> None:
    """Free-form JSON of a driver: an object, and not too large."""
    if not skip_size and len(msgspec.json.encode(value)) > MAX_OPAQUE:
        errors.too_long(path, MAX_OPAQUE)
    elif not isinstance(value, dict):
        errors.invalid(path, VALUE_OMITTED, "must be a valid JSON object")


def check_ip(text: str, path: str, errors: Errors) -> None:
    """An address as fields take it that are older than the strict rule: any spelling of IPv6, but nothing ambiguous."""
    try:
        if "%" in text:
            raise ValueError(text)
        address = ipaddress.ip_address(text)
    except ValueError:
        errors.invalid(path, text, "must not have leading 0s" if _is_ip_with_zeros(text) else IP_RULE)
        return
    if getattr(address, "ipv4_mapped", None) is not None:
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def check_reachable_ip(text: str, path: str, errors: Errors) -> None:
    """Refuses addresses that mean something else on each machine, such as loopback ones."""
    before = len(errors)
    check_ip(text, path, errors)
    if len(errors) > before:
        return
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        errors.invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LINK_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16")


def _is_ip_with_zeros(text: str) -> bool:
    """Numbers of thousands of digits are none that Python reads."""
    numbers = text.split(".")
    if len(numbers) != 4 or not all(each.isascii() and each.isdigit() for each in numbers):
        return False
    without_zeros = [each.lstrip("0") or "0" for each in numbers]
    return all(len(each) <= 3 and int(each) < 256 for each in without_zeros)


def ip_family(text: str) -> int:
    """4 or 6; 0 for text that is no address."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return 4 if _is_ip_with_zeros(text) else 0


def check_interface_address(text: str, path: str, errors: Errors) -> None:
    """An address with its prefix length, host bits included, in its one canonical spelling."""
    address, slash, bits = text.partition("/")
    try:
        if not slash or not bits.isascii() or not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
            raise ValueError(text)
        if "%" in address:
            raise ValueError(text)
        interface = ipaddress.ip_interface(text)
    except ValueError:
        errors.invalid(path, text, ADDRESS_RULE)
        return
    mapped = getattr(interface.ip, "ipv4_mapped", None)
    if mapped is not None:
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address")
        return
    canonical = f"{interface.ip.compressed}/{interface.network.prefixlen}"
    if canonical != text:
        errors.invalid(path, text, f'must be in canonical form ("{canonical}")')


def check_network(text: str, path: str, errors: Errors) -> bool:
    """A range of addresses, as fields take it that are older than the strict rule: host bits may be set."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
        return False
    if "/" not in text:
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
    return "/" in text


def check_quantity_sign(text: str, path: str, errors: Errors, *, positive: bool) -> None:
    amount = Quantity.parse(text)
    if positive and amount.nanos <= 0:
        errors.invalid(path, text, "must be positive")
    elif amount.nanos < 0:
        errors.invalid(path, text, "must be non-negative")


_URL_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_is_url_path = re.compile(_URL_PATH, re.ASCII).fullmatch


def check_domain_path(text: str, path: str, errors: Errors) -> None:
    """A domain, a slash and a path, such as the name of a controller."""
    domain, slash, rest = text.partition("/")
    if not text:
        errors.required(path)
    elif not slash or not domain or not rest:
        errors.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        errors.each_invalid(path, domain, names.subdomain_problems(domain))
        if not _is_url_path(rest):
            errors.invalid(path, rest, f"Invalid path (regex used for validation is '{_URL_PATH}')")
