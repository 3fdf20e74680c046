"""Converts values to strings."""

from __future__ import annotations

import math
from typing import Any

from dray.cel.errors import CelError
from dray.cel.library.times import format_duration, format_timestamp
from dray.cel.values import Duration, UInt

_QUOTES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def quote(text: str) -> str:
    return f'"{text.translate(_QUOTES)}"'


def to_string(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return format_double(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Duration:
        return format_duration(value)
    return format_timestamp(value)


def format_double(number: float) -> str:
    """The shortest text that reads back as the same number; an exponent from 1e-05 down and from 1e+06 up."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, power = decimal_digits(number)
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return f"{sign}0"
    if -4 <= power < 6:
        return sign + plain_decimal(digits, power)
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"


def decimal_digits(number: float) -> tuple[str, int]:
    """The shortest digits of a number, and the power of ten of the first one."""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", power


def plain_decimal(digits: str, power: int) -> str:
    if power < 0:
        return "0." + "0" * (-power - 1) + digits
    whole = digits[: power + 1].ljust(power + 1, "0")
    return whole + (f".{digits[power + 1 :]}" if len(digits) > power + 1 else "")
