"""`"%d of %s".format([3, "x"])`: the clauses, and which values each of them takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from dray.cel.errors import CelError
from dray.cel.library.texts import quote, to_string
from dray.cel.values import Duration, Timestamp, TypeValue, UInt, from_key, is_list, is_map, type_name

MAX_PRECISION = 100
MAX_OUTPUT = 1_000_000

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?([a-zA-Z]))")
_SUPERSCRIPT = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
# Clause to the type names that a literal argument may have.
TAKES: dict[str, frozenset[str]] = {
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "X": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
    "s": frozenset(
        {
            "string",
            "bool",
            "bytes",
            "int",
            "uint",
            "double",
            "list",
            "map",
            "null_type",
            "timestamp",
            "duration",
            "type",
        }
    ),
}


def clauses(text: str) -> Iterator[tuple[str, int | None, str]]:
    """The pieces of a format: (literal text, None, "") or ("", precision, letter)."""
    at = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            yield text[at:], None, ""
            return
        if percent > at:
            yield text[at:percent], None, ""
        found = _CLAUSE.match(text, percent)
        if found is None:
            raise CelError("unexpected end of string" if percent + 1 >= len(text) else "unrecognized formatting clause")
        if found[0] == "%%":
            yield "%", None, ""
        else:
            yield "", _precision(found[1]), found[2]
        at = found.end()


def _precision(digits: str | None) -> int | None:
    if digits is None:
        return None
    precision = int(digits or 0) if len(digits) < 6 else MAX_PRECISION + 1
    if precision > MAX_PRECISION:
        raise CelError(f"precision of more than {MAX_PRECISION}")
    return precision


def format_string(text: str, args: Any) -> str:
    out: list[str] = []
    used, length = 0, 0
    for literal, precision, letter in clauses(text):
        if letter:
            if used >= len(args):
                raise CelError(f"index {used} out of range")
            literal = _formatted(letter, precision, args[used])
            used += 1
        out.append(literal)
        length += len(literal)
        if length > MAX_OUTPUT:
            raise CelError("formatted text is too long")
    return "".join(out)


_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


def _formatted(letter: str, precision: int | None, value: Any) -> str:
    kind = type(value)
    if letter == "s":
        return _shown(value, [MAX_OUTPUT], nested=False)
    if letter in "fe" and (kind is float or (kind is str and value in _NOT_FINITE)):
        return _number(letter, 6 if precision is None else precision, float(value))
    if kind is int or kind is UInt:
        if letter in "dboxX":
            return f"{'-' if value < 0 else ''}{abs(int(value)):{letter}}"
    elif letter == "b" and kind is bool:
        return "1" if value else "0"
    elif letter in "xX" and (kind is str or kind is bytes):
        digits = str((value.encode() if kind is str else value).hex())
        return digits.upper() if letter == "X" else digits
    if letter not in TAKES:
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
    raise CelError(f"error during formatting: clause %{letter} cannot format a value of type {type_name(value)}")


def _number(letter: str, precision: int, number: float) -> str:
    """As Kubernetes writes numbers for readers of American English: thousands apart, powers of ten spelled out."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if letter == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    sign = "⁻" if exponent[0] == "-" else ""
    return f"{mantissa}\u202f×\u202f10{sign}{exponent[1:].translate(_SUPERSCRIPT)}"


def _shown(value: Any, budget: list[int], nested: bool) -> str:
    text = _shown_value(value, budget, nested)
    budget[0] -= len(text)
    if budget[0] < 0:
        raise CelError("formatted text is too long")
    return text


def _shown_value(value: Any, budget: list[int], nested: bool) -> str:
    kind = type(value)
    if kind is str:
        return str(value) if not nested else quote(value)
    if value is None:
        return "null"
    if kind is float and nested:
        return f"{value:.6f}" if math.isfinite(value) else quote(to_string(value))
    if kind is bytes:
        return to_string(value) if not nested else f"b{quote(to_string(value))}"
    if is_list(value):
        return f"[{', '.join(_shown(item, budget, True) for item in value)}]"
    if is_map(value):
        if any(type(key) is float for key in value):
            raise CelError("no formatting function for map key of type double")
        entries = sorted((_shown(from_key(k), budget, True), _shown(v, budget, True)) for k, v in value.items())
        return f"{{{', '.join(f'{k}:{v}' for k, v in entries)}}}"
    if kind in (bool, int, UInt, float, Duration, Timestamp):
        text = to_string(value)
        return text if not nested or kind not in (Duration, Timestamp) else f'{kind.__name__.lower()}("{text}")'
    if kind is TypeValue:
        return str(value.name)
    raise CelError(
        f"string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {type_name(value)}"
    )
