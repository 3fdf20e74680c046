"""How long ago something was, the way kubectl says it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def age(timestamp: Any, now: datetime) -> str:
    """The age of an RFC 3339 time; `<unknown>` for none."""
    if not isinstance(timestamp, str) or not timestamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except ValueError:
        return "<unknown>"
    return duration((now - moment.astimezone(UTC)).total_seconds())


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _pair(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _pair(whole, HOUR, "h", MINUTE, "m")
    if whole < 48 * HOUR:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _pair(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return _pair(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def _pair(seconds: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = seconds % unit // smaller
    return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")
