"""A large cluster, as a person with a dump would run it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders.manifests import a_class
from tests.explain.manifests import gpu, gpu_node, gpu_request, gpu_slice
from tests.sim.random_clusters import RESOURCE

NODES = 5_000
PODS = 20_000
DEVICES = 8


def a_large_dump() -> dict[str, Any]:
    items: list[dict[str, Any]] = [a_class()]
    for number in range(NODES):
        name = f"node-{number}"
        items.append(gpu_node(name))
        items.append(gpu_slice(name, [gpu(f"gpu-{device}") for device in range(DEVICES)]))
    claim = {"devices": {"requests": [gpu_request(count=4)]}}
    metadata = {"name": "four", "namespace": "default"}
    items.append(
        {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": claim}}
    )
    for number in range(PODS):
        resources = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number}", "namespace": "default"},
                "spec": {
                    "containers": [{"name": "main", "image": "x", "resources": resources}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "four"}],
                },
            }
        )
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_five_thousand_nodes_and_twenty_thousand_pods(tmp_path: Path) -> None:
    dump, report = tmp_path / "dump.json", tmp_path / "report.html"
    dump.write_text(json.dumps(a_large_dump()))
    command = [sys.executable, "-m", "dray", "simulate", "-f", str(dump), "-o", "json", "--report", str(report)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False)
    took_s = time.monotonic() - started
    assert done.stderr == b""
    summary = json.loads(done.stdout)["summary"]
    assert (summary["scheduled"], summary["unschedulable"]) == (2 * NODES, PODS - 2 * NODES)
    assert took_s < 300
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * 1024 * 1024
    assert report.stat().st_size < 5_000_000
