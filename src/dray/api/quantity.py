"""Exact Kubernetes quantities: "1500m", "40Gi", "1e3".

A quantity is a whole number of nano-units (Kubernetes keeps nothing smaller) and the family it prints in.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]


class QuantityError(ValueError):
    """The text is not a quantity."""


class Quantity:
    """Immutable, hashable and ordered by amount alone; `1000m == 1`."""

    __slots__ = ("_text", "format", "nanos")

    ZERO: ClassVar[Quantity]

    nanos: int
    format: Format

    def __init__(self, nanos: int, format: Format = "DecimalSI") -> None:
        object.__setattr__(self, "nanos", nanos)
        object.__setattr__(self, "format", format)


Quantity.ZERO = Quantity(0)
