"""The formats of texts that Kubernetes checks; a format that it does not know is ignored."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from dray.api.times import parse_time

_HOSTNAME = re.compile(
    r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
).fullmatch
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+").fullmatch
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}").fullmatch
_MAC = re.compile(r"(?i)([0-9a-f]{2}[:-]){5}[0-9a-f]{2}").fullmatch
_DURATION = re.compile(
    r"([0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|m|h|d|w|nanos?|micros?|millis?|seconds?|minutes?|hours?|days?|weeks?)\s*)+"
).fullmatch
_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})").fullmatch


def _ip(version: int) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return fits


def _cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _uri(text: str) -> bool:
    """The beginning is enough, and `urlsplit` remembers the texts that it has seen."""
    try:
        return bool(urlsplit(text[:1024]).scheme)
    except ValueError:
        return False


def _date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == 10


def _date_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


FORMATS: dict[str, Callable[[str], object]] = {
    "byte": _bytes,
    "cidr": _cidr,
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _DURATION,
    "email": _EMAIL,
    "hexcolor": _COLOR,
    "hostname": _HOSTNAME,
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "mac": _MAC,
    "uri": _uri,
    "uuid": _UUID,
}
