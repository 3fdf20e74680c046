"""Standard extensions that Kubernetes does not offer: math, base64, reversed strings. For environments of one's own."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from dray.cel.errors import CelError
from dray.cel.functions import Library
from dray.cel.library.operators import checked_int
from dray.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT
from dray.cel.values import UInt, compare, is_list, no_overload

library = Library("extensions")

_MOST_ARGUMENTS = 8
_BITS = 2**64


def _extreme(sign: int) -> Any:
    def chosen(*values: Any) -> Any:
        numbers = list(values[0]) if len(values) == 1 and is_list(values[0]) else list(values)
        if not numbers or any(type(number) not in (int, UInt, float) for number in numbers):
            raise no_overload()
        best = numbers[0]
        for number in numbers[1:]:
            if compare(number, best) == sign:
                best = number
        return best

    return chosen


def _round(value: float) -> float:
    if not math.isfinite(value):
        return value
    return math.copysign(float(math.floor(abs(value) + 0.5)), value)


def _whole(function: Any) -> Any:
    return lambda value: float(function(value)) if math.isfinite(value) else value


def _signed(bits: int) -> int:
    bits %= _BITS
    return bits - _BITS if bits >= _BITS // 2 else bits


def _sign(value: Any) -> Any:
    if type(value) is float:
        return value if math.isnan(value) else float((value > 0) - (value < 0))
    sign = (value > 0) - (value < 0)
    return UInt(sign) if type(value) is UInt else sign


def _absolute(value: Any) -> Any:
    if type(value) is int:
        return checked_int(abs(value))
    return UInt(value) if type(value) is UInt else abs(value)


def _shift(left: bool) -> Any:
    def shifted(value: Any, by: int) -> Any:
        if by < 0:
            raise CelError(f"math.bitShift{'Left' if left else 'Right'}() negative offset: {by}")
        bits = int(value) % _BITS
        moved = 0 if by >= 64 else (bits << by if left else bits >> by)
        return UInt(moved % _BITS) if type(value) is UInt else _signed(moved)

    return shifted


def _bitwise(function: Any) -> Any:
    def combined(*values: Any) -> Any:
        bits = function(*(int(value) for value in values))
        return UInt(bits % _BITS) if type(values[0]) is UInt else _signed(bits)

    return combined


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        raise CelError("illegal base64 data") from None


def _declare_math() -> None:
    add = library.add
    for name, sign in (("greatest", 1), ("least", -1)):
        for count in range(1, _MOST_ARGUMENTS + 1):
            add(f"math.{name}", f"math_{name}_{count}", (DYN,) * count, DYN, _extreme(sign))
    for name, function in (("ceil", math.ceil), ("floor", math.floor), ("trunc", math.trunc)):
        add(f"math.{name}", f"math_{name}", (DOUBLE,), DOUBLE, _whole(function))
    add("math.round", "math_round", (DOUBLE,), DOUBLE, _round)
    for name, test in (("isNaN", math.isnan), ("isInf", math.isinf), ("isFinite", math.isfinite)):
        add(f"math.{name}", f"math_{name}", (DOUBLE,), BOOL, test)
    for t in (INT, UINT, DOUBLE):
        add("math.abs", f"math_abs_{t}", (t,), t, _absolute)
        add("math.sign", f"math_sign_{t}", (t,), t, _sign)
        add("math.sqrt", f"math_sqrt_{t}", (t,), DOUBLE, lambda v: math.sqrt(v) if v >= 0 else math.nan)
    bitwise = {"bitAnd": lambda a, b: a & b, "bitOr": lambda a, b: a | b, "bitXor": lambda a, b: a ^ b}
    for t in (INT, UINT):
        for name, combine in bitwise.items():
            add(f"math.{name}", f"math_{name}_{t}", (t, t), t, _bitwise(combine))
        add("math.bitNot", f"math_bitNot_{t}", (t,), t, _bitwise(lambda a: ~a))
        add("math.bitShiftLeft", f"math_bitShiftLeft_{t}", (t, INT), t, _shift(True))
        add("math.bitShiftRight", f"math_bitShiftRight_{t}", (t, INT), t, _shift(False))


def _declare_texts() -> None:
    library.add("base64.encode", "base64_encode", (BYTES,), STRING, lambda data: base64.b64encode(data).decode())
    library.add("base64.decode", "base64_decode", (STRING,), BYTES, _decode)
    library.add("reverse", "string_reverse", (STRING,), STRING, lambda text: text[::-1], member=True)


_declare_math()
_declare_texts()
