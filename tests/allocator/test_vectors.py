"""Recorded answers of Kubernetes 1.37, compared the way a reader would."""

import json
from pathlib import Path
from typing import Any

import pytest

from dray.allocator import scenarios
from dray.allocator.scenarios import World
from dray.api.quantity import Quantity

DATA = Path(__file__).parent / "data"


def lines(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().splitlines()


EXPECTED: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in map(json.loads, lines("expected.ndjson"))}
FAMILIES: dict[str, list[bytes]] = {}
for line in lines("allocator.ndjson"):
    FAMILIES.setdefault(json.loads(line)["name"].split("/")[0], []).append(line)


def plain(value: Any) -> Any:
    """Absent and empty say the same; amounts are numbers."""
    if isinstance(value, dict):
        kept = {key: inner if key == "parameters" else plain(inner) for key, inner in value.items()}
        if "consumedCapacity" in kept:
            kept["consumedCapacity"] = {k: Quantity.parse(v).nanos for k, v in kept["consumedCapacity"].items()}
        return {key: inner for key, inner in kept.items() if key == "parameters" or inner not in (None, [], {})}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def numbered(allocations: list[Any]) -> list[Any]:
    names: dict[str, str] = {}
    for allocation in allocations:
        for result in allocation.get("devices", {}).get("results", []):
            if "shareID" in result:
                result["shareID"] = names.setdefault(result["shareID"], f"share-{len(names) + 1}")
    return allocations


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_recorded_answers(family):
    for line in FAMILIES[family]:
        check(line, EXPECTED[json.loads(line)["name"]])


@pytest.mark.parametrize(
    "pair", list(map(json.loads, lines("found.ndjson"))), ids=lambda pair: pair["scenario"]["name"]
)
def test_answers_that_random_comparison_found(pair):
    """Features that are off, constraints on some alternatives, the limit of devices per claim, derived attributes."""
    check(json.dumps(pair["scenario"]).encode(), pair["expected"])


def check(line: bytes, expected: dict[str, Any]) -> None:
    scenario = scenarios.read_scenario(line)
    replies = scenarios.ask(World(scenario).question(), scenario)
    document = json.loads(json.dumps(scenarios.scenario_document(scenario, replies), default=_raw))
    assert document["outcome"] == expected["outcome"], scenario.name
    ours, theirs = (numbered(plain(one.get("allocations", []))) for one in (document, expected))
    assert ours == theirs, scenario.name


def _raw(value: Any) -> Any:
    return json.loads(bytes(value))


def test_order_of_slices_and_claims_means_nothing():
    for line in FAMILIES["mixed"] + FAMILIES["pool-order"]:
        document = json.loads(line)
        for key in ("slices", "classes", "allocatedClaims"):
            document[key] = document[key][::-1]
        scenario = scenarios.read_scenario(json.dumps(document).encode())
        (answer, _), *_ = scenarios.ask(World(scenario).question(), scenario)
        first = scenarios.read_scenario(line)
        (before, _), *_ = scenarios.ask(World(first).question(), first)
        assert type(answer) is type(before)
        assert getattr(answer, "devices", tuple)() == getattr(before, "devices", tuple)()
