"""Follows a pod through the program and compares the files that take part with the journey in docs/architecture.md."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dray
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.store.sqlite import SqliteStore
from dray.testing import Cluster, cluster
from tests.waiting import let_others_run

ROOT = Path(dray.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

# Rooms that are asked on the way, and modules that every room may use. Errors take part only when two writes meet.
ASKED = (
    "api/",
    "validation/",
    "cel/",
    "allocator/",
    "accounting/",
    "testing/",
    "apiserver/errors.py",
    "client/errors.py",
)
GROUND = frozenset(path.name for path in ROOT.glob("*.py"))
# Controllers that see every pod and have nothing to do with this one, and what happens now and then whether there are pods or not: the heart of a
# node beats, and the server looks whether its address is there.
BYSTANDERS = re.compile(
    r"controllers/(?!claims/)|kubelet/(node|simulated_kubelets|runtime/none)\.py|apiserver/security/api_service\.py"
)

# A newcomer should see the whole way in an hour.
MOST_FILES = 87
MOST_FILES_OF_A_POST = 24

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


def remember_files(seen: set[str]) -> Callable[[object, str, object], None]:
    def follow(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    return follow


def live(running: Cluster) -> None:
    running.apply(POD)
    running.wait_until_running("traveller")
    running.delete_pod("traveller")
    running.wait_until_gone("traveller", timeout_s=60)


def files_of_a_life(running: Cluster) -> set[str]:
    """Those of both a second and a third life: before, parts of the cluster may still be starting."""
    live(running)
    return _followed_life(running) & _followed_life(running)


def _followed_life(running: Cluster) -> set[str]:
    seen: set[str] = set()

    async def switch(profiler):
        sys.setprofile(profiler)

    running.run(switch(remember_files(seen)))
    try:
        live(running)
    finally:
        running.run(switch(None))
    return seen


@contextmanager
def followed() -> Iterator[set[str]]:
    seen: set[str] = set()
    sys.setprofile(remember_files(seen))
    try:
        yield seen
    finally:
        sys.setprofile(None)


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


def test_the_way_stays_short(files):
    assert len([path for path in files if is_on_the_way(path)]) <= MOST_FILES


async def test_a_post_passes_few_files_of_the_server(tmp_path):
    running = await start_server(SqliteStore(tmp_path / "store.db"), ServerOptions(data=tmp_path))

    async def post(path: str, document: dict[str, object]) -> int:
        headers = {"content-type": "application/json"}
        body = json.dumps(document).encode()
        return (await running.server.handle(Request("POST", path, "", headers, body, user=LOOPBACK))).status

    def pod(name: str) -> dict[str, object]:
        spec = {"containers": [{"name": "c", "image": "x"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    namespace = "/api/v1/namespaces/default"
    try:
        await post(f"{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        assert await post(f"{namespace}/pods", pod("first")) == 201
        with followed() as files:
            assert await post(f"{namespace}/pods", pod("second")) == 201
            await let_others_run(10)
    finally:
        await running.stop()
    of_the_server = {path for path in files if path.startswith("apiserver/")}
    assert "apiserver/write/object_writer.py" in of_the_server
    assert len(of_the_server) <= MOST_FILES_OF_A_POST
