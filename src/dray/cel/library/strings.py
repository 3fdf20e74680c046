"""The string extension: positions count characters, case changes touch ASCII only."""

from __future__ import annotations

from typing import Any

from dray.cel.cost_ranges import (
    LIMIT,
    STRING_FACTOR,
    Range,
    traversal,
)
from dray.cel.errors import CelError
from dray.cel.functions import Estimate, Library, Sizing
from dray.cel.library import costs
from dray.cel.library.formatting import MAX_OUTPUT, format_string
from dray.cel.library.texts import quote
from dray.cel.types import DYN, INT, STRING, list_of
from dray.cel.values import is_list, size

library = Library("strings")

_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# What Unicode calls white space; Python's strip() would also take U+001C to U+001F.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """-1 also for a start beyond the end; nothing is found where one starts to look for it."""
    if part == "":
        return start
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


def last_index_of(text: str, part: str, last: int | None = None) -> int:
    if last is None:
        return text.rfind(part)
    if part == "":
        return last
    if last < 0:
        raise CelError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    if len(text) + found * (len(new) - len(old)) > MAX_OUTPUT:
        raise CelError("replaced text is too long")
    return text.replace(old, new, count)


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator == "":
        if limit < 0 or limit >= len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise CelError(f"index out of range: {start}")
        return text[start:]
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    return text[start:end]


def join(parts: Any, separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise CelError(f"no such overload: join of {type(part).__name__}")
    return separator.join(parts)


def _join_cost(parts: Any, separator: Any = "") -> int:
    if not is_list(parts) or type(separator) is not str or any(type(part) is not str for part in parts):
        return traversal(1, 2 * STRING_FACTOR)
    total = sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0)
    return traversal(total, 2 * STRING_FACTOR)


def _estimate_replace(call: Sizing) -> Estimate:
    assert call.target is not None
    text, old, new = call.size(call.target), call.size(call.args[0]), call.size(call.args[1])
    most, least = (
        _replaced(text.high, old.low, new.high, longest=True),
        _replaced(text.low, old.high, new.low, longest=False),
    )
    return Estimate(text.scaled(2 * STRING_FACTOR), Range(least, most))


def _replaced(text: int, old: int, new: int, longest: bool) -> int:
    """The length after replacing: an empty text is found around every character."""
    if old == 0:
        return min(min(text + 1, LIMIT) * new + text, LIMIT)
    if (new <= old) if longest else (old <= new):
        return text
    return min(-(-text // old) * new, LIMIT)


def _estimate_split(call: Sizing) -> Estimate:
    assert call.target is not None
    text = call.size(call.target)
    most = text.high
    if len(call.args) > 1 and type(limit := getattr(call.args[1], "value", None)) is int:
        most = limit & LIMIT
    return Estimate(text.scaled(2 * STRING_FACTOR), Range(0, most))


def _estimate_join(call: Sizing) -> Estimate:
    assert call.target is not None
    count = call.size(call.target)
    total = Range(0, 0)
    if call.target.type.params:
        total = count.times(call.item_size(call.target))
    if call.args:
        gaps = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        total = total.plus(call.size(call.args[0]).times(gaps))
    return Estimate(total.scaled(STRING_FACTOR), total)


def _estimate_quote(call: Sizing) -> Estimate:
    length = call.size(call.args[0])
    return Estimate(length.scaled(STRING_FACTOR), Range(length.low + 2, min(length.high * 2 + 2, LIMIT)))


def _format_cost(text: Any, _: Any) -> int:
    return traversal(size(text))


def _declare() -> None:
    walking: dict[str, Any] = {
        "member": True,
        "cost": costs.walking_first,
        "cost_by_name": True,
        "estimate": costs.estimate_walking,
    }
    reading: dict[str, Any] = {
        "member": True,
        "cost": costs.reading_first,
        "cost_by_name": True,
        "estimate": costs.estimate_reading_same_size,
    }
    twice: dict[str, Any] = {"member": True, "cost": costs.reading_first_twice, "cost_by_name": True}
    s, i = STRING, INT
    library.add("charAt", "string_char_at_int", (s, i), s, char_at, member=True)
    for name, function in (("indexOf", index_of), ("lastIndexOf", last_index_of)):
        library.add(name, f"string_{name}_string", (s, s), i, function, **walking)
        library.add(name, f"string_{name}_string_int", (s, s, i), i, function, **walking)
    library.add("lowerAscii", "string_lower_ascii", (s,), s, lambda t: t.translate(_LOWER), **reading)
    library.add("upperAscii", "string_upper_ascii", (s,), s, lambda t: t.translate(_UPPER), **reading)
    library.add("trim", "string_trim", (s,), s, lambda t: t.strip(_SPACE), **reading)
    library.add("substring", "string_substring_int", (s, i), s, substring, **reading)
    library.add("substring", "string_substring_int_int", (s, i, i), s, substring, **reading)
    library.add("replace", "string_replace_string_string", (s, s, s), s, replace, estimate=_estimate_replace, **twice)
    library.add(
        "replace", "string_replace_string_string_int", (s, s, s, i), s, replace, estimate=_estimate_replace, **twice
    )
    library.add("split", "string_split_string", (s, s), list_of(s), split, estimate=_estimate_split, **twice)
    library.add("split", "string_split_string_int", (s, s, i), list_of(s), split, estimate=_estimate_split, **twice)
    joining: dict[str, Any] = {
        "member": True,
        "cost": _join_cost,
        "cost_by_name": True,
        "estimate": _estimate_join,
    }
    library.add("join", "list_join", (list_of(s),), s, join, **joining)
    library.add("join", "list_join_string", (list_of(s), s), s, join, **joining)
    library.add("strings.quote", "strings_quote", (s,), s, quote, cost=costs.reading_first, estimate=_estimate_quote)
    library.add(
        "format",
        "string_format",
        (s, list_of(DYN)),
        s,
        format_string,
        member=True,
        cost=_format_cost,
        estimate=costs.estimate_reading,
    )


_declare()
