"""Recorded answers of the real implementation: the same fields, for the same reasons, in the same order."""

import json
from pathlib import Path

import pytest

from dray.testing.vectors import answer_validation as answer

DATA = Path(__file__).parent / "data"
RECORDED = [
    json.loads(line)
    for name in ("validation.ndjson", "validation_more.ndjson")
    for line in (DATA / name).read_text().splitlines()
]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["name"])
def test_reports_the_recorded_errors(row):
    question = {key: value for key, value in row.items() if key != "errors"}
    assert answer(question)["errors"] == row["errors"]


FOUND = [json.loads(line) for line in (DATA / "validation_found.ndjson").read_text().splitlines()]


@pytest.mark.parametrize("row", FOUND, ids=lambda row: row["name"])
def test_reports_the_errors_of_random_objects(row):
    """Objects found by changing recorded ones at random and asking Kubernetes 1.37; the order is not compared."""
    question = {key: value for key, value in row.items() if key != "errors"}
    answered = {(error["type"], error["field"]) for error in answer(question)["errors"]}
    assert answered == {(error["type"], error["field"]) for error in row["errors"]}
