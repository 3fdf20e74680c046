"""Exact Kubernetes quantities: "1500m", "40Gi", "1e3".

A quantity is a whole number of nano-units (Kubernetes keeps nothing smaller) and the family it prints in. Amounts
that a text states more finely are rounded away from zero, and so are products.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar, Literal, NoReturn

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

NANOS = 1_000_000_000
_NANOS_PER_MILLI = 1_000_000

# A text with more characters or a larger exponent is refused: exact arithmetic on it would cost unbounded time.
MAX_TEXT = 512
# The number of texts whose quantities are remembered.
MAX_KNOWN = 65536
MAX_EXPONENT = 512

# Kubernetes computes binary amounts in 64 bits and stays at the limit beyond them.
_BINARY_LIMIT = (2**63 - 1) * NANOS
_INT64 = 2**63

_SYNTAX = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)", re.ASCII
).fullmatch

# What Kubernetes tells its users; the real syntax is a little narrower.
_RULE = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"

# Suffix to the number of nano-units that one unit of it holds.
_DECIMAL_NANOS = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    None: 10**9,
    "k": 10**12,
    "M": 10**15,
    "G": 10**18,
    "T": 10**21,
    "P": 10**24,
    "E": 10**27,
}
_BINARY_NANOS = {
    suffix: 1024**power * NANOS for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


_set = object.__setattr__


class QuantityError(ValueError):
    """The text is not a quantity."""


class Quantity:
    """Immutable, hashable and ordered by amount alone; `1000m == 1`."""

    __slots__ = ("_text", "format", "nanos")

    ZERO: ClassVar[Quantity]

    nanos: int
    format: Format
    _text: str | None

    def __init__(self, nanos: int, format: Format = "DecimalSI") -> None:
        _set(self, "nanos", nanos)
        _set(self, "format", format)
        _set(self, "_text", None)

    @staticmethod
    def parse(value: str | int | float) -> Quantity:
        """The quantity that a JSON string or number stands for; equal texts give the same object."""
        try:
            return _known[value]  # type: ignore[index]  # numbers go through __missing__ as well
        except TypeError:
            raise QuantityError(f"a quantity is a string or a number, not {type(value).__name__}") from None

    @classmethod
    def of(cls, units: int, format: Format = "DecimalSI") -> Quantity:
        """A whole number of units."""
        return cls(units * NANOS, format)

    @classmethod
    def of_milli(cls, thousandths: int, format: Format = "DecimalSI") -> Quantity:
        return cls(thousandths * _NANOS_PER_MILLI, format)

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _divide_away(self.nanos, NANOS)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _divide_away(self.nanos, _NANOS_PER_MILLI)

    def __str__(self) -> str:
        text = self._text
        if text is None:
            text = _print(self.nanos, self.format)
            _set(self, "_text", text)
        return text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self.nanos == other.nanos
        return NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: Quantity) -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: Quantity) -> bool:
        return self.nanos >= other.nanos

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, factor: Quantity | int) -> Quantity:
        """The product in this quantity's format; with a quantity, parts below a nano-unit round away from zero."""
        if isinstance(factor, Quantity):
            return Quantity(_divide_away(self.nanos * factor.nanos, NANOS), self.format)
        return Quantity(self.nanos * factor, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format)

    def __abs__(self) -> Quantity:
        return Quantity(abs(self.nanos), self.format)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a quantity cannot be changed")

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, Format]]:
        return Quantity, (self.nanos, self.format)


Quantity.ZERO = Quantity(0)


@lru_cache(maxsize=65536)
def rewritten(text: str) -> str:
    """How Kubernetes writes `text` back: most short texts verbatim, everything else in canonical form.

    Kubernetes keeps the spelling where the digits need no shift to reach a suffix and do not end in 000 (or, with a
    binary suffix, are no multiple of 1024).
    """
    quantity = Quantity.parse(text)
    found = _SYNTAX(text)
    assert found is not None
    _, whole, fraction, exponent, suffix = found.groups()
    digits = (whole.lstrip("0") or "0") + (fraction or "")
    if quantity.nanos == 0 or digits[0] == "0" or digits.endswith("000"):
        return str(quantity)
    if suffix in _BINARY_NANOS:
        power = _BINARY_SUFFIXES.index(suffix) * 10
        verbatim = not fraction and int(digits) % 1024 != 0 and len(digits) + power * 3 // 10 <= 14
    else:
        scale = (int(exponent) if exponent else 3 * _DECIMAL_SUFFIXES.index(suffix or "") - 9) - len(fraction or "")
        verbatim = len(digits) <= 18 and scale >= -9 and scale % 3 == 0
    return text if verbatim else str(quantity)


def _divide_away(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount > 0 else amount // unit


class _Known(dict[str, Quantity]):
    """Quantities by text. A full cache is emptied, which costs less than tracking which entries are used."""

    def __missing__(self, value: str | int | float) -> Quantity:
        if type(value) is not str:
            return _parse_number(value)  # type: ignore[arg-type]  # any other type is refused there
        quantity = _parse_text(value)
        if len(self) >= MAX_KNOWN:
            self.clear()
        self[value] = quantity
        return quantity


_known = _Known()


def _parse_text(text: str) -> Quantity:
    # Nearly all texts are digits and a suffix; taking them apart by hand is three times as fast as the full syntax.
    if text[-1:] == "i":
        head, unit = text[:-2], _BINARY_NANOS.get(text[-2:])
        if unit is not None and len(head) <= 9 and head.isdecimal() and head.isascii():
            nanos = int(head) * unit
            return Quantity(nanos if nanos < _BINARY_LIMIT else _BINARY_LIMIT, "BinarySI")
    elif len(text) <= 18 and text.isascii():
        if text.isdecimal():
            return Quantity(int(text) * NANOS)
        unit = _DECIMAL_NANOS.get(text[-1:])
        if unit is not None and text[:-1].isdecimal():
            return Quantity(int(text[:-1]) * unit)
    return _parse_any_text(text)


def _parse_any_text(text: str) -> Quantity:
    if len(text) > MAX_TEXT:
        raise QuantityError(f"quantity of {len(text)} characters: at most {MAX_TEXT} are allowed")
    found = _SYNTAX(text)
    if found is None or not text:
        raise QuantityError(f"quantities must match the regular expression '{_RULE}'")
    sign, whole, fraction, exponent, suffix = found.groups()
    digits = whole + fraction if fraction else whole
    amount = int(digits) if digits else 0
    if exponent is not None:
        nanos = _scaled_by_ten(text, amount, int(exponent) - len(fraction or ""))
        return Quantity(-nanos if sign == "-" else nanos, "DecimalExponent")
    unit = _DECIMAL_NANOS.get(suffix)
    family: Format = "DecimalSI"
    if unit is None:
        unit, family = _BINARY_NANOS[suffix], "BinarySI"
    nanos = amount * unit
    if fraction:
        nanos = -(-nanos // 10 ** len(fraction))
    if family == "BinarySI" and nanos > _BINARY_LIMIT:
        nanos = _BINARY_LIMIT
    return Quantity(-nanos if sign == "-" else nanos, family)


@lru_cache(maxsize=4096)
def _of_int(number: int) -> Quantity:
    return Quantity(number * NANOS)


def _parse_number(number: int | float) -> Quantity:
    """A JSON number in the place of a quantity reads like its text."""
    if type(number) is int and -_INT64 <= number < _INT64:
        return _of_int(number)
    if type(number) is int or type(number) is float:
        return _parse_text(repr(number))
    raise QuantityError(f"a quantity is a string or a number, not {type(number).__name__}")


def _scaled_by_ten(text: str, amount: int, exponent: int) -> int:
    power = exponent + 9
    if power >= 0:
        if power > MAX_EXPONENT and amount:
            raise QuantityError(f"{text!r} is not a quantity: the exponent is too large")
        return amount * 10**power if amount else 0
    if not exponent >= -_INT64:
        raise QuantityError(f"{text!r} is not a quantity: the exponent is too small")
    if -power > MAX_TEXT:
        return 1 if amount else 0
    return _divide_away(amount, pow(10, -power))


def _print(nanos: int, family: Format) -> str:
    if nanos == 0:
        return "0"
    if family == "BinarySI" and nanos % NANOS == 0 and not -1024 * NANOS < nanos < 1024 * NANOS:
        return _print_binary(nanos // NANOS)
    return _print_decimal(nanos, exponent_form=family == "DecimalExponent")


def _print_binary(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIXES[power]}"


def _print_decimal(nanos: int, exponent_form: bool) -> str:
    thousands = 0
    while nanos % 1000 == 0 and (exponent_form or thousands < len(_DECIMAL_SUFFIXES) - 1):
        nanos //= 1000
        thousands += 1
    if not exponent_form:
        return f"{nanos}{_DECIMAL_SUFFIXES[thousands]}"
    exponent = 3 * thousands - 9
    return f"{nanos}e{exponent}" if exponent else str(nanos)


# The white space that a JSON string can hold unescaped. Go drops it around a quantity; escaped white space it refuses.
_JSON_SPACES = (
    " \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def trimmed(text: str) -> str:
    """The text of a quantity without the white space that Kubernetes drops around a JSON string."""
    return text.strip(_JSON_SPACES)


def decoding_hook(wanted: type, value: Any) -> Any:
    """For decoders of structs with quantities. msgspec takes NotImplementedError for "I do not know this type"."""
    if wanted is Quantity:
        try:
            return _known[value]
        except (QuantityError, TypeError):
            # White space is rare, so it costs only texts that have some. Other texts, and values of other types, fail again.
            return Quantity.parse(trimmed(value) if type(value) is str else value)
    raise NotImplementedError(wanted)
