"""Answers to quantity vectors: what a text means, how it is written, compared and computed with."""

from collections.abc import Callable
from typing import Any

from dray.api.quantity import Quantity, QuantityError, rewritten

Row = dict[str, Any]

_INT64 = range(-(2**63), 2**63)


def answer(row: Row) -> Row:
    return _ANSWERS[row["op"]](row)


def _parse(row: Row) -> Row:
    text = row["input"]
    try:
        quantity = Quantity.ZERO if text is None else Quantity.parse(text)
    except QuantityError:
        return {"ok": False}
    answered: Row = {"ok": True, "canonical": str(quantity)}
    for field, number in (("value", quantity.value()), ("milli", quantity.milli())):
        if number in _INT64:
            answered[field] = number
    if isinstance(text, str) and (printed := rewritten(text)) != answered["canonical"]:
        answered["printed"] = printed
    return answered


def _compare(row: Row) -> Row:
    a, b = Quantity.parse(row["a"]), Quantity.parse(row["b"])
    return {"cmp": (a > b) - (a < b)}


def _compute(operation: Callable[[Quantity, Quantity], Quantity]) -> Callable[[Row], Row]:
    return lambda row: {"canonical": str(operation(Quantity.parse(row["a"]), Quantity.parse(row["b"])))}


_ANSWERS: dict[str, Callable[[Row], Row]] = {
    "parse": _parse,
    "json": _parse,
    "cmp": _compare,
    "add": _compute(lambda a, b: a + b),
    "sub": _compute(lambda a, b: a - b),
    "mul": _compute(lambda a, b: a * b),
    "mulInt": lambda row: {"canonical": str(Quantity.parse(row["a"]) * row["b"])},
}
