"""What Kubernetes answered to the same requests."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import Live
from tests.apiserver.exchanges import Server, run_group

RECORDED = Path(__file__).parent / "data" / "http.ndjson"

# Kubernetes answers 500 to these mistakes of a client; we answer 400 with the same text.
CLIENT_MISTAKES = {"metadata/resource-version", "watches/watch-bad-rv", "pods/bind-no-target"}
# The refusal goes on with a dump of Go structs.
GO_DUMPS = {"pods/env-change", "pods/node-name-change", "pods/claims-change"}


@pytest.fixture(scope="module")
def outcome(live: Live) -> dict[str, list[str]]:
    """What differs, by group and step. Groups do not depend on each other, so they run side by side."""
    groups: dict[str, list[Any]] = {}
    for line in RECORDED.read_text().splitlines():
        record = json.loads(line)
        groups.setdefault(record["group"], []).append(record)
    server = Server(live.kubeconfig)

    def run(names: list[str]) -> dict[str, list[str]]:
        return {
            f"{name}/{record['step']}": wrong
            for name in names
            for record, wrong in run_group(server, groups[name], False)
        }

    # These allocate the same device, one after the other.
    allocating = ["claim-status", "watches", "old-versions"]
    chains = [allocating, *([name] for name in groups if name not in allocating)]
    with ThreadPoolExecutor(8) as pool:
        return {step: wrong for found in pool.map(run, chains) for step, wrong in found.items()}


def test_all_were_sent(outcome: dict[str, list[str]]) -> None:
    assert len(outcome) == 493


def test_status_codes_are_those_of_kubernetes(outcome: dict[str, list[str]]) -> None:
    other = {step for step, wrong in outcome.items() if any(line.startswith("status:") for line in wrong)}
    assert other == CLIENT_MISTAKES


def test_answers_match(outcome: dict[str, list[str]]) -> None:
    unmatched = {step: wrong for step, wrong in outcome.items() if wrong}
    unexpected = {step: wrong for step, wrong in unmatched.items() if step not in CLIENT_MISTAKES | GO_DUMPS}
    assert not unexpected, Counter(step.partition("/")[0] for step in unexpected)
    assert set(unmatched) == CLIENT_MISTAKES | GO_DUMPS  # a step that matches by now leaves its list
