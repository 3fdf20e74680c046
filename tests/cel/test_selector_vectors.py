"""Device selectors with the answers that Kubernetes 1.37 recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from dray.api.codec import to_object
from dray.api.resource import Device
from dray.cel import CelDevice, CelRuntimeError, CompileFailure, Environment, compile_selector
from dray.testing.vectors import answer_cel as answer

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "selectors.ndjson").read_text().splitlines()]
FIELDS = ("compile", "result", "admit", "estimate", "cost")


GROUPS = sorted({row["name"].split("/")[0] for row in ROWS})


@pytest.mark.parametrize("group", GROUPS)
def test_answers_are_the_recorded_ones(group: str) -> None:
    wrong = []
    for row in ROWS:
        if row["name"].split("/")[0] != group:
            continue
        given = answer({key: value for key, value in row.items() if key not in FIELDS})
        wanted = {field: row[field] for field in FIELDS if field in row}
        different = {field: (wanted[field], given.get(field)) for field in wanted if given.get(field) != wanted[field]}
        if different:
            wrong.append((row["name"], row["expression"], different))
    assert wrong == []


def result_of(evaluate: Any, device: CelDevice) -> Any:
    try:
        return evaluate(device)
    except CelRuntimeError as problem:
        return problem.message


def test_evaluating_with_and_without_cost_agree() -> None:
    """Counting must not change an answer or an error's text."""
    for row in ROWS:
        program = compile_selector(row["expression"], Environment.devices(stored=True))
        if isinstance(program, CompileFailure):
            continue
        document = dict(row["device"])
        device = CelDevice.of(document.pop("driver"), to_object(document, Device))
        exact = program.evaluate_with_cost(device).value
        expected = exact.message if isinstance(exact, CelRuntimeError) else exact
        assert result_of(program.evaluate, device) == expected, row["expression"]


@pytest.mark.parametrize(
    ("expression", "compiles"),
    [
        pytest.param("duration(1) == null", False, id="no-duration-from-a-number"),
        pytest.param(".true", False, id="a-dot-before-a-literal"),
        pytest.param('[,].includes("a")', True, id="an-empty-list-may-have-a-comma"),
        pytest.param('timestamp(0).getHours("-25:00") == 23', True, id="an-offset-of-more-than-a-day"),
        pytest.param('{duration("1h"): 1}[duration("1h")] == 1', False, id="no-index-by-a-duration"),
        pytest.param("{timestamp(0): 1}[timestamp(0)] == 1", False, id="no-index-by-a-timestamp"),
        pytest.param("{null: 1}[null] == 1", False, id="no-index-by-null"),
        pytest.param('{b"a": 1}[b"a"] == 1', False, id="no-index-by-bytes"),
        pytest.param("{2: 1}.a == 1", True, id="a-field-of-a-map-with-other-keys"),
        pytest.param("[1].all(.y, true)", True, id="a-dot-before-a-loop-variable"),
        pytest.param("[1].all(.y, .y == 1)", False, id="a-loop-variable-with-a-dot-cannot-be-named"),
    ],
)
def test_answers_found_by_random_expressions(expression: str, compiles: bool) -> None:
    answered = answer({"expression": expression, "device": {"driver": "d.example.com"}})
    assert (answered["compile"] == "ok") == compiles


@pytest.mark.parametrize(
    ("expression", "result"),
    [("{2: 1}.a == 1", "error"), ("[null].isSorted()", "error"), ("[1].map(.y, 1) == [1]", True)],
)
def test_results_found_by_random_expressions(expression: str, result: object) -> None:
    assert answer({"expression": expression, "device": {"driver": "d.example.com"}})["result"] == result
