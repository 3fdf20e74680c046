"""Timestamps and durations: their texts, and the parts that can be asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from dray.cel.errors import CelError
from dray.cel.functions import Library
from dray.cel.types import DURATION, INT, STRING, TIMESTAMP
from dray.cel.values import MAX_INT, MIN_INT, Duration, Timestamp

library = Library("times")

_NANOS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
).fullmatch
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _NANOS,
    "m": 60 * _NANOS,
    "h": 3600 * _NANOS,
}
_OFFSET = re.compile(r"([+-]?[0-9]{1,6}):([+-]?[0-9]{1,6})", re.ASCII).fullmatch


def parse_timestamp(text: str) -> Timestamp:
    found = _RFC3339(text) if len(text) < 80 else None
    if found is None:
        raise CelError(f'parsing time "{text[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    *parts, fraction, zone = found.groups()
    offset_s = 0
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise CelError(f'parsing time "{text}": time zone offset out of range')
        offset_s = (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    try:
        year, month, day, hour, minute, second = map(int, parts)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as problem:
        raise CelError(f'parsing time "{text}": {problem}') from None
    elapsed = moment - _EPOCH
    seconds = elapsed.days * 86400 + elapsed.seconds - offset_s
    nanos = int((fraction or "")[:9].ljust(9, "0"))
    if not -62135596800 <= seconds <= 253402300799:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * _NANOS + nanos, offset_s)


def format_timestamp(value: Timestamp) -> str:
    seconds, nanos = divmod(value.nanos, _NANOS)
    moment = _EPOCH + timedelta(seconds=seconds + value.offset_s)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    if value.offset_s:
        sign, minutes = ("-" if value.offset_s < 0 else "+"), abs(value.offset_s) // 60
        zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    else:
        zone = "Z"
    date = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{date}T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}{fraction}{zone}"


def parse_duration(text: str) -> Duration:
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    at, total = 0, 0
    while at < len(body):
        found = _DURATION_PART.match(body, at) if len(body) < 200 else None
        if found is None or (not found[1] and not found[2]):
            raise _bad_duration(text)
        unit = _UNITS[found[3]]
        fraction = (found[2] or "")[:18]
        total += int(found[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        at = found.end()
    if not body:
        raise _bad_duration(text)
    nanos = -total if text[:1] == "-" else total
    if not MIN_INT <= nanos <= MAX_INT:
        raise _bad_duration(text)
    return Duration(nanos)


def _bad_duration(text: str) -> CelError:
    return CelError(f'time: invalid duration "{text[:64]}"')


def format_duration(value: Duration) -> str:
    seconds, nanos = divmod(abs(value.nanos), _NANOS)
    sign = "-" if value.nanos < 0 else ""
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{sign}{seconds}{fraction}s"


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except Exception:
        raise CelError(f"unknown time zone {name[:64]}") from None


@lru_cache(maxsize=256)
def _offset_s(text: str) -> int:
    """Seconds east of UTC for `+01:00`; like Go, any number of hours is taken."""
    found = _OFFSET(text) if len(text) <= 64 else None
    if found is None:
        raise CelError(f"invalid timezone: {text[:64]}")
    hours, minutes = int(found[1]), int(found[2])
    if not 0 <= minutes <= 59:
        raise CelError(f"timezone offset minutes out of range [0, 59]: {text}")
    return 60 * (60 * hours - minutes if text.startswith("-") else 60 * hours + minutes)


def _parts(value: Timestamp, zone: str = "UTC") -> datetime:
    seconds = value.nanos // _NANOS
    try:
        if ":" in zone:
            return _EPOCH + timedelta(seconds=seconds + _offset_s(zone))
        return (_EPOCH + timedelta(seconds=seconds)).astimezone(_zone(zone))
    except OverflowError:
        raise CelError("timestamp overflow") from None


def _milliseconds(value: Timestamp, zone: str = "UTC") -> int:
    _parts(value, zone)
    return value.nanos % _NANOS // 10**6


_TIMESTAMP_PARTS: dict[str, Callable[..., int]] = {
    "getFullYear": lambda t, z="UTC": _parts(t, z).year,
    "getMonth": lambda t, z="UTC": _parts(t, z).month - 1,
    "getDayOfYear": lambda t, z="UTC": _parts(t, z).timetuple().tm_yday - 1,
    "getDayOfMonth": lambda t, z="UTC": _parts(t, z).day - 1,
    "getDate": lambda t, z="UTC": _parts(t, z).day,
    "getDayOfWeek": lambda t, z="UTC": _parts(t, z).isoweekday() % 7,
    "getHours": lambda t, z="UTC": _parts(t, z).hour,
    "getMinutes": lambda t, z="UTC": _parts(t, z).minute,
    "getSeconds": lambda t, z="UTC": _parts(t, z).second,
    "getMilliseconds": _milliseconds,
}
_DURATION_UNITS = {
    "getHours": 3600 * _NANOS,
    "getMinutes": 60 * _NANOS,
    "getSeconds": _NANOS,
    "getMilliseconds": 10**6,
}


def _total(unit: int) -> Callable[[Any], int]:
    def whole_units(value: Duration) -> int:
        count = abs(value.nanos) // unit
        return -count if value.nanos < 0 else count

    return whole_units


def _declare() -> None:
    for name, part in _TIMESTAMP_PARTS.items():
        library.add(name, f"timestamp_to_{name}", (TIMESTAMP,), INT, part, member=True)
        library.add(name, f"timestamp_to_{name}_with_tz", (TIMESTAMP, STRING), INT, part, member=True)
    for name, unit in _DURATION_UNITS.items():
        library.add(name, f"duration_to_{name}", (DURATION,), INT, _total(unit), member=True)


_declare()
