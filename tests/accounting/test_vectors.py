"""Recorded answers of Kubernetes 1.37."""

import json
from pathlib import Path

import pytest

from dray.api.quantity import Quantity
from dray.testing.vectors import answer_podrequests

RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "podrequests.ndjson").read_text().splitlines()
]


def amounts(texts: dict[str, str]) -> dict[str, int]:
    return {name: Quantity.parse(text).nanos for name, text in texts.items()}


@pytest.mark.parametrize("recorded", RECORDED, ids=[line["name"] for line in RECORDED])
def test_kubernetes_answers(recorded):
    question = {key: recorded[key] for key in ("name", "pod", "options")}
    answer = answer_podrequests(question)
    assert amounts(answer["requests"]) == amounts(recorded["requests"])
    assert amounts(answer["limits"]) == amounts(recorded["limits"])
    assert answer["qosClass"] == recorded["qosClass"]
