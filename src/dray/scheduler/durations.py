"""Durations as Kubernetes writes them: `10s`, `1m30s`, `250ms`."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class DurationError(ValueError):
    """The text is not a duration."""


def parse_duration(text: str) -> float:
    """In seconds. A bare 0 needs no unit; every other number does."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise DurationError(f'invalid duration "{text}"')
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not rest:
        raise DurationError(f'invalid duration "{text}"')
    return sign * total
