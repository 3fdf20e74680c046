"""What Kubernetes stores although it has no effect: the server says so in a warning, and `dray lint` in an error."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import CLAIMS, Client
from tests.builders.manifests import a_claim, a_device, a_slice, a_template

from dray.api.manifests import read_manifests
from dray.apiserver.assembly import ServerOptions, start_server
from dray.features import FeatureGates
from dray.store.sqlite import SqliteStore
from dray.validation.lint import lint

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
BOTH = {"matchAttribute": "d.example.com/numa", "distinctAttribute": "d.example.com/slot"}
SECOND = "ignored, because matchAttribute is set in the same constraint; write two constraints"


def template_with_both() -> dict[str, Any]:
    made = a_template("c")
    made["spec"]["spec"]["devices"]["constraints"] = [BOTH]
    return made


def slice_with(policy: dict[str, Any]) -> dict[str, Any]:
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    return a_slice("c", a_device("d", allowMultipleAllocations=True, capacity=capacity))


IGNORED = [
    pytest.param(
        CLAIMS, a_claim("c", constraints=[BOTH]), f"spec.devices.constraints[0].distinctAttribute: {SECOND}", id="claim"
    ),
    pytest.param(
        TEMPLATES, template_with_both(), f"spec.spec.devices.constraints[0].distinctAttribute: {SECOND}", id="template"
    ),
    pytest.param(
        SLICES,
        slice_with({}),
        "spec.devices[0].capacity[memory].requestPolicy: ignored, because it has no default; "
        "set a default or leave the policy out",
        id="policy",
    ),
]


@pytest.mark.parametrize(("path", "manifest", "text"), IGNORED)
async def test_the_server_takes_it_and_warns(server: Client, path: str, manifest: dict[str, Any], text: str) -> None:
    created = await server.post(path, manifest)
    assert (created.status, created.warnings) == (201, [text])
    labelled = created.body | {"metadata": created.body["metadata"] | {"labels": {"a": "b"}}}
    updated = await server.send("PUT", f"{path}/c", labelled)
    assert (updated.status, updated.warnings) == (200, [text])


@pytest.mark.parametrize(("path", "manifest", "text"), IGNORED)
def test_lint_calls_it_an_error(path: str, manifest: dict[str, Any], text: str) -> None:
    (read,) = read_manifests(json.dumps(manifest).encode())
    (finding,) = lint(read, FeatureGates.default())
    assert finding.severity == "error"
    assert f"{finding.path}: {finding.message}" == text


@pytest.mark.parametrize("policy", [{"default": "0"}, {"default": "1Gi", "validRange": {"min": "1Gi"}}])
async def test_a_policy_with_a_default_is_no_cause_for_warnings(server: Client, policy: dict[str, Any]) -> None:
    created = await server.post(SLICES, slice_with(policy))
    assert (created.status, created.warnings) == (201, [])


@pytest.fixture
async def off(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "store.db")
    gates = FeatureGates.default().without("DRAConsumableCapacity")
    running = await start_server(store, ServerOptions(tmp_path, gates))
    yield Client(running, store)
    await running.stop()
    await store.close()


async def test_nothing_is_said_about_what_the_server_drops(off: Client) -> None:
    created = await off.post(CLAIMS, a_claim("c", constraints=[BOTH]))
    assert (created.status, created.warnings) == (201, [])
    assert created.body["spec"]["devices"]["constraints"] == [{"matchAttribute": "d.example.com/numa"}]
