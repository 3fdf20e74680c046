"""Times as the API spells them: RFC 3339, in UTC, with seconds (or microseconds) as the finest step."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_SYNTAX = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9})[0-9]*)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
).fullmatch


@lru_cache(maxsize=4096)
def parse_time(text: str) -> datetime:
    """The time of an RFC 3339 text; ValueError if it is malformed."""
    found = _SYNTAX(text) if len(text) <= 64 else None
    if found is None:
        raise ValueError("not a time of the form 2006-01-02T15:04:05Z")
    year, month, day, hour, minute, second, fraction, sign, off_hours, off_minutes = found.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, tzinfo=UTC)
    if not sign:
        return moment
    offset = timedelta(hours=int(off_hours), minutes=int(off_minutes))
    try:
        return moment - offset if sign == "+" else moment + offset
    except OverflowError as error:
        raise ValueError("a time outside of the years 1 to 9999") from error


def time_text(moment: datetime) -> str:
    """With whole seconds, as metadata and conditions carry it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment.year >= 1000 else _early(moment, "")


def micro_time_text(moment: datetime) -> str:
    """With microseconds, as leases and events carry it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment.year >= 1000 else _early(moment, ".%f")


def _early(moment: datetime, fraction: str) -> str:
    """Four digits for the year also before the year 1000, where strftime writes fewer."""
    return f"{moment.year:04d}" + moment.strftime(f"-%m-%dT%H:%M:%S{fraction}Z")
