"""Named formats: `format.dns1123Label().validate(text)` lists what is wrong with a text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from dray.cel.cost_ranges import (
    REGEX_FACTOR,
    STRING_FACTOR,
    traversal,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing, guard_name
from dray.cel.library import costs
from dray.cel.library.times import parse_timestamp
from dray.cel.library.urls import parse_url
from dray.cel.types import FORMAT, STRING, list_of, optional_of
from dray.cel.values import NONE, Optional, name_type, refuse_other_types, size

library = Library("formats")

_MAX_PATTERN = 128

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII).fullmatch
_LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII).fullmatch
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII).fullmatch
_NAME_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII).fullmatch
_UUID = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE
).fullmatch


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    pattern_size: int  # what its check is charged as
    problems: Callable[[str], list[str]]


guard_name(FORMAT.name, NamedFormat)
name_type(NamedFormat, FORMAT.name)
refuse_other_types(NamedFormat)


def _named(pattern: Callable[[str], Any], longest: int, what: str) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        found = []
        if len(text.encode()) > longest:
            found.append(f"must be no more than {longest} bytes")
        if not pattern(text):
            found.append(f"a valid {what} must start and end with an alphanumeric character")
        return found

    return problems


def _prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name that others are generated from may end in a dash."""
    return lambda text: problems(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


_label = _named(_LABEL, 63, "lowercase RFC 1123 label")
_subdomain = _named(_SUBDOMAIN, 253, "lowercase RFC 1123 subdomain")
_label_1035 = _named(_LABEL_1035, 63, "DNS-1035 label")
_name_part = _named(_NAME_PART, 63, "name part")


def _label_value(text: str) -> list[str]:
    return _name_part(text) if text else []


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if slash and "/" in prefix:
        return ["a qualified name must consist of alphanumeric characters, '-', '_' or '.', with an optional prefix"]
    if slash and not prefix:
        return ["prefix part must be non-empty"]
    problems = [f"prefix part {problem}" for problem in _subdomain(prefix)] if slash else []
    if not name:
        return [*problems, "name part must be non-empty"]
    return problems + [f"name part {problem}" for problem in _name_part(name)]


def _tried(parse: Callable[[str], Any], complaint: str) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        try:
            parse(text)
        except (CelError, ValueError, binascii.Error):
            return [complaint]
        return []

    return problems


def _parse_date(text: str) -> None:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text, re.ASCII):
        raise ValueError
    date.fromisoformat(text)


def _parse_bytes(text: str) -> None:
    base64.b64decode(text.encode("ascii"), validate=True)


_FORMATS = {
    row.name: row
    for row in (
        NamedFormat("dns1123Label", 30, _label),
        NamedFormat("dns1123Subdomain", 60, _subdomain),
        NamedFormat("dns1035Label", 30, _label_1035),
        NamedFormat("qualifiedName", 60, _qualified_name),
        NamedFormat("dns1123LabelPrefix", 30, _prefix(_label)),
        NamedFormat("dns1123SubdomainPrefix", 60, _prefix(_subdomain)),
        NamedFormat("dns1035LabelPrefix", 30, _prefix(_label_1035)),
        NamedFormat("labelValue", 40, _label_value),
        NamedFormat("uri", 1101, _tried(parse_url, "invalid URI")),
        NamedFormat("uuid", 70, lambda text: [] if _UUID(text) else ["does not match the UUID format"]),
        NamedFormat("byte", 84, _tried(_parse_bytes, "invalid base64")),
        NamedFormat("date", 70, _tried(_parse_date, "invalid date")),
        NamedFormat("datetime", 70, _tried(parse_timestamp, "invalid datetime")),
    )
}


def named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


def validate(format: NamedFormat, text: str) -> Optional:
    problems = format.problems(text)
    return Optional(problems) if problems else NONE


def _validate_cost(format: Any, text: Any) -> int:
    pattern = format.pattern_size if type(format) is NamedFormat else 4
    return traversal(1 + size(text)) * traversal(pattern, REGEX_FACTOR)


def _estimate_validate(call: Sizing) -> Estimate:
    return Estimate(call.size(call.args[0]).scaled(STRING_FACTOR).scaled(_MAX_PATTERN * REGEX_FACTOR))


def _declare() -> None:
    unit: dict[str, Any] = {"cost": costs.one, "cost_by_name": True, "estimate": costs.estimate_one}
    library.add("format.named", "format_named", (STRING,), optional_of(FORMAT), named, **unit)
    for name, row in _FORMATS.items():
        library.add(f"format.{name}", f"format_{name}", (), FORMAT, lambda row=row: row)
    library.add(
        "validate",
        "format_validate",
        (FORMAT, STRING),
        optional_of(list_of(STRING)),
        validate,
        member=True,
        cost=_validate_cost,
        cost_by_name=True,
        estimate=_estimate_validate,
    )


_declare()
