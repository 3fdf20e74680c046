"""Follows a pod through the program and compares the files that take part with the journey in docs/architecture.md."""

import re
import sys
from pathlib import Path

import pytest

import dray
from dray.testing import Cluster, cluster

ROOT = Path(dray.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

# Rooms that are asked on the way, and modules that every room may use.
ASKED = ("api/", "validation/", "cel/", "allocator/", "accounting/", "testing/")
GROUND = frozenset(path.name for path in ROOT.glob("*.py"))
# Controllers that see every pod and have nothing to do with this one.
BYSTANDERS = re.compile(r"controllers/(?!claims/)|kubelet/(simulated_kubelets|runtime/none)\.py")

OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: traveller}
spec:
  terminationGracePeriodSeconds: 0
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
  containers: [{name: main, image: x, command: [sleep, "60"], resources: {claims: [{name: gpu}], requests: {cpu: 100m}}}]
"""


def journey() -> str:
    text = PAGE.read_text()
    start = text.index("## The journey of a pod")
    return text[start : text.index("## What must always hold")]


def named() -> set[str]:
    """The last part of every path that the journey names."""
    return {
        path.rpartition("/")[2] for path in re.findall(r"`([\w/]+\.py)`", journey()) if not path.startswith("tests/")
    }


def files_of_a_life(running: Cluster) -> set[str]:
    seen: set[str] = set()

    def follow(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    async def switch(profiler):
        sys.setprofile(profiler)

    running.run(switch(follow))
    try:
        running.apply(POD)
        running.wait_until_running("traveller")
        running.delete_pod("traveller")
        running.wait_until_gone("traveller", timeout_s=60)
    finally:
        running.run(switch(None))
    return seen


@pytest.fixture(scope="module")
def files() -> set[str]:
    with cluster(nodes=1, devices=("gpu",)) as running:
        running.apply(OBJECTS)
        return files_of_a_life(running)


def is_on_the_way(path: str) -> bool:
    return not (path.startswith(ASKED) or path in GROUND or BYSTANDERS.match(path) or path.endswith("__init__.py"))


def test_every_file_on_the_way_is_named(files):
    assert "scheduler/cycle.py" in files
    assert sorted(path for path in files if is_on_the_way(path) and Path(path).name not in named()) == []


def test_the_journey_names_only_files_that_exist():
    existing = {path.name for path in ROOT.rglob("*.py")}
    assert sorted(named() - existing) == []
