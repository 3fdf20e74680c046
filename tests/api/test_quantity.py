import json
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.quantity import Quantity, QuantityError, rewritten
from dray.testing.vectors import answer_quantity

RECORDED = [
    json.loads(line, parse_float=str)
    for line in (Path(__file__).parent / "data" / "quantity.ndjson").read_text().splitlines()
]
parse = Quantity.parse


def recorded(*operations: str) -> list[object]:
    return [pytest.param(row, id=row["name"]) for row in RECORDED if row["op"] in operations]


@pytest.mark.parametrize("row", recorded("parse", "json"))
def test_reads_and_prints_like_kubernetes(row):
    if not row["ok"]:
        with pytest.raises(QuantityError):
            parse(row["input"])
        return
    quantity = Quantity.ZERO if row["input"] is None else parse(row["input"])
    answer = {"canonical": str(quantity), "value": quantity.value(), "milli": quantity.milli()}
    assert {key: row[key] for key in answer if key in row} == {key: answer[key] for key in answer if key in row}


@pytest.mark.parametrize("row", [r for r in recorded("parse") if "canonical" in r.values[0]])
def test_writes_texts_back_like_kubernetes(row):
    assert rewritten(row["input"]) == row.get("printed", row["canonical"])


@pytest.mark.parametrize("row", recorded("cmp"))
def test_compares_by_amount(row):
    a, b = parse(row["a"]), parse(row["b"])
    assert (a > b) - (a < b) == row["cmp"]
    assert (a == b) == (row["cmp"] == 0)
    assert (a >= b) == (row["cmp"] >= 0)
    assert (a <= b) == (row["cmp"] <= 0)


OPERATIONS = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "mulInt": "__mul__"}


@pytest.mark.parametrize("row", recorded(*OPERATIONS))
def test_computes_exactly(row):
    b = row["b"] if row["op"] == "mulInt" else parse(row["b"])
    assert str(getattr(parse(row["a"]), OPERATIONS[row["op"]])(b)) == row["canonical"]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("9" * 10_000_000, id="ten-megabytes-of-digits"),
        pytest.param("1e999999999", id="huge-exponent"),
        pytest.param("1e" + "9" * 500, id="exponent-beyond-64-bits"),
        pytest.param("1e-" + "9" * 500, id="negative-exponent-beyond-64-bits"),
        pytest.param("١", id="arabic-digit"),
        pytest.param(float("nan"), id="nan"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param(True, id="boolean"),
        pytest.param([], id="list"),
        pytest.param(10**600, id="integer-of-600-digits"),
    ],
)
def test_refuses_what_is_not_a_quantity(bad):
    with pytest.raises(QuantityError):
        parse(bad)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP x", max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert parse(str(quantity)) == quantity
    assert parse(rewritten(text)) == quantity
    assert str(parse(str(quantity))) == str(quantity)


quantities = st.builds(
    Quantity,
    st.integers(min_value=-(10**30), max_value=10**30),
    st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]),
)


@given(quantities, quantities)
def test_arithmetic_agrees_with_fractions(a, b):
    assert (a + b).nanos == a.nanos + b.nanos
    assert a - b + b == a
    assert (a - b).nanos == -(b - a).nanos
    assert abs(Fraction((a * b).nanos) - Fraction(a.nanos * b.nanos, 10**9)) < 1
    assert abs((a * b).nanos) * 10**9 >= abs(a.nanos * b.nanos)
    assert a.value() == parse(str(a)).value() or abs(a.value()) >= 2**63 - 1
    assert abs(a.value()) * 10**9 >= abs(a.nanos) > (abs(a.value()) - 1) * 10**9 or a.nanos == 0


def test_is_a_value():
    a = parse("1")
    assert parse("1") is a
    assert hash(parse("1000m")) == hash(a)
    assert pickle.loads(pickle.dumps(parse("40Gi"))) == parse("40Gi")
    assert a != "1"
    assert not Quantity.ZERO
    assert a
    with pytest.raises(AttributeError):
        a.nanos = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        pytest.param(" 1Gi ", "1Gi", id="spaces"),
        pytest.param("\u30005", "5", id="wide-space"),
        pytest.param("\t1Gi", None, id="a-tab-is-always-escaped-in-json"),
        pytest.param("1 Gi", None, id="space-inside"),
    ],
)
def test_json_strings_are_trimmed_like_in_go(text, amount):
    row = answer_quantity({"op": "json", "input": text})
    assert row == {"ok": False} if amount is None else row["canonical"] == amount
