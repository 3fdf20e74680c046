"""`"%d of %s".format([3, "x"])`: the clauses, and which values each of them takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from dray.cel.errors import CelError
from dray.cel.library.texts import format_double, quote, to_string
from dray.cel.values import Duration, Timestamp, TypeValue, UInt, from_key, is_list, is_map, type_name

MAX_PRECISION = 100
MAX_OUTPUT = 1_000_000

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?([a-zA-Z]))")
_SUPERSCRIPT = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
# Clause to the type names that a literal argument may have.
TAKES: dict[str, frozenset[str]] = {
    "d": frozenset({"int", "uint", "double"}),
    "f": frozenset({"double"}),
    "e": frozenset({"double"}),
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


def _formatted(letter: str, precision: int | None, value: Any) -> str:
    kind = type(value)
    if letter == "s":
        budget = [MAX_OUTPUT]
        return _shown(value, budget, nested=False)
    if kind is float and (math.isnan(value) or math.isinf(value)) and letter in "dfe":
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if letter == "d" and (kind is int or kind is UInt or kind is float):
        return str(int(value)) if kind is not float else format_double(value)
    if letter == "f" and (kind is float or kind is int or kind is UInt):
        return f"{float(value):.{6 if precision is None else precision}f}"
    if letter == "e" and (kind is float or kind is int or kind is UInt):
        mantissa, _, exponent = f"{float(value):.{6 if precision is None else precision}e}".partition("e")
        sign = "⁻" if exponent[0] == "-" else ""
        return f"{mantissa}\u202f×\u202f10{sign}{exponent[1:].translate(_SUPERSCRIPT)}"
    if letter == "b" and (kind is int or kind is UInt or kind is bool):
        return _radix(int(value), "b")
    if letter == "o" and (kind is int or kind is UInt):
        return _radix(int(value), "o")
    if letter in "xX":
        if kind is int or kind is UInt:
            return _radix(int(value), letter)
        if kind is str or kind is bytes:
            digits = str((value.encode() if kind is str else value).hex())
            return digits.upper() if letter == "X" else digits
    raise CelError(
        f'could not parse formatting clause: unrecognized formatting clause "{letter}" for {type_name(value)}'
    )


def _radix(number: int, letter: str) -> str:
    return f"{'-' if number < 0 else ''}{abs(number):{letter}}"


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
        if math.isfinite(value):
            return f"{value:.6f}"
        return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
    if kind is bytes:
        text = value.decode("utf-8", "replace")
        return text if not nested else f"b{quote(text)}"
    if is_list(value):
        return f"[{', '.join(_shown(item, budget, True) for item in value)}]"
    if is_map(value):
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
