"""Quantities as expressions see them: with the memory of how they were written, which `isInteger` depends on."""

from __future__ import annotations

import re
from functools import lru_cache

from dray.api.quantity import NANOS, Format, Quantity
from dray.cel.values import MAX_INT, MIN_INT, name_type, refuse_other_types

_MAX_DIGITS = 18  # of a decimal number that Kubernetes keeps in 64 bits
_PARTS = re.compile(r"[+-]?([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([numkMGTPE]?)(i?))", re.ASCII).fullmatch
_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


class CelQuantity(Quantity):
    """`scale` is the power of ten of the last written digit; None for what Kubernetes keeps as a big decimal."""

    __slots__ = ("scale",)
    scale: int | None

    def __init__(self, nanos: int, format: Format, scale: int | None) -> None:
        super().__init__(nanos, format)
        object.__setattr__(self, "scale", scale)

    @property
    def whole(self) -> int | None:
        """As an int, if Kubernetes can tell without computing: no fraction digits, within 64 bits."""
        if self.scale is None or (self.scale < 0 and self.nanos):
            return None
        amount = self.nanos // NANOS
        return amount if MIN_INT <= amount <= MAX_INT else None

    @property
    def approximate(self) -> float:
        """As a float: the written digits times a power of ten, so that 0.3 is 3 * 0.1."""
        if self.scale is None:
            return self.nanos / NANOS
        digits = self.nanos // 10 ** (9 + self.scale)
        return float(digits) * float(f"1e{self.scale}")

    def plus(self, other: CelQuantity, sign: int = 1) -> CelQuantity:
        nanos = self.nanos + sign * other.nanos
        format = self.format if self.nanos else other.format
        if self.scale is None or other.scale is None:
            scale = None
        elif not other.nanos:
            scale = self.scale
        else:
            scale = other.scale if not self.nanos else min(self.scale, other.scale)
        return CelQuantity(nanos, format, scale)

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, Format, int | None]]:  # type: ignore[override]
        return CelQuantity, (self.nanos, self.format, self.scale)


name_type(CelQuantity, "kubernetes.Quantity")
refuse_other_types(CelQuantity)


@lru_cache(maxsize=16384)
def parse(text: str) -> CelQuantity:
    """Raises QuantityError."""
    quantity = Quantity.parse(text)
    return CelQuantity(quantity.nanos, quantity.format, _scale(text))


def of_quantity(quantity: Quantity) -> CelQuantity:
    return parse(str(quantity))


def of_int(amount: int) -> CelQuantity:
    return CelQuantity(amount * NANOS, "DecimalSI", 0)


def _scale(text: str) -> int | None:
    found = _PARTS(text) or re.fullmatch(r"[+-]?([0-9]*)(?:\.([0-9]*))?()([KMGTPE])(i)", text, re.ASCII)
    if found is None:
        return None
    whole, fraction, exponent, suffix, binary = found.groups()
    digits, fraction = whole.lstrip("0") or ("0" if whole else ""), fraction or ""
    if binary:
        power = _BINARY[suffix]
        fits = not fraction and 15 - len(digits) - power * 3 // 10 - 1 >= 0
        return 0 if fits else None
    scale = (int(exponent) if exponent else _EXPONENTS[suffix or ""]) - len(fraction)
    return scale if len(digits) + len(fraction) <= _MAX_DIGITS and scale >= -9 else None
