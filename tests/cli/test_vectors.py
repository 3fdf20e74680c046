import json

import pytest
from click.testing import CliRunner

from dray.cli.vectors import KINDS, vectors
from dray.testing.vectors import ANSWERS


def ask(kind: str, *rows: dict) -> list[dict]:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    result = CliRunner().invoke(vectors, [kind], input=lines)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_quantities_line_by_line():
    assert ask(
        "quantity",
        {"name": "a", "op": "parse", "input": "1.5Gi"},
        {"name": "b", "op": "parse", "input": "x"},
        {"name": "c", "op": "add", "a": "1", "b": "500m"},
    ) == [
        {"name": "a", "ok": True, "canonical": "1536Mi", "value": 1610612736, "milli": 1610612736000},
        {"name": "b", "ok": False},
        {"name": "c", "canonical": "1500m"},
    ]


def test_validation_names_fields_and_undecodable_bodies():
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {}}
    bad = {**claim, "spec": {"devices": {"requests": [{"name": "a"}]}}}
    unknown = {**claim, "colour": "red"}
    answers = ask(
        "validation", *({"name": str(i), "op": "create", "object": o} for i, o in enumerate((claim, bad, unknown)))
    )
    assert [answer["errors"] for answer in answers] == [
        [],
        [{"type": "FieldValueRequired", "field": "spec.devices.requests[0]"}],
        [{"type": "BadRequest", "field": ""}],
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_its_answers(kind):
    assert callable(ANSWERS[kind])


def test_an_unknown_kind_is_wrong_usage():
    assert CliRunner().invoke(vectors, ["nope"]).exit_code == 2
