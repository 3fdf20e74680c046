"""Every mix of Dray's and Kubernetes' control planes binds all pods of five kinds of workload, and gives no device away twice."""

import itertools
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.apiserver.exchanges import Server
from tests.peer.binaries import why_not
from tests.peer.control_plane import BINARIES, ControlPlane
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.torture

NODES, DEVICES, PODS = 20, 10, 30
WORKLOADS = ("plain", "selector", "match", "shares", "partitions")
RESOURCE = "/apis/resource.k8s.io/v1"


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        self._server = Server(kubeconfig)
        self._headers = {"Authorization": f"Bearer {self._server.token}"} if self._server.token else {}

    def patch(self, path: str, body: dict) -> dict:
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def call(self, method: str, path: str, body: dict | None = None, media_type: str = "application/json") -> dict:
        headers = self._headers | {"Content-Type": media_type}
        data = json.dumps(body).encode() if body is not None else None
        answer = self._server.pool.request(method, self._server.url + path, body=data, headers=headers)
        assert answer.status < 300, f"{method} {path}: {answer.data[:300]!r}"
        return answer.json()

    def items(self, path: str) -> list[dict]:
        return self.call("GET", path)["items"]


@pytest.mark.parametrize("mix", ["".join(each) for each in itertools.product("DK", repeat=3)])
def test_all_pods_are_bound_and_no_device_is_given_away_twice(mix: str) -> None:
    if missing := why_not(*BINARIES) if "K" in mix else why_not():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="dray-mix", ignore_cleanup_errors=True) as name:
        plane = ControlPlane(Path(name), mix)
        try:
            plane.start()
            for workload in WORKLOADS:
                bound = run_workload(Api(plane.kubeconfig), workload, plane)
                print(f"{mix} {workload}: {bound} of {PODS} pods bound")
        finally:
            plane.stop()


def run_workload(api: Api, workload: str, plane: ControlPlane) -> int:
    """In a namespace, with a driver and on nodes of its own: what one workload takes is not missing in the next."""
    driver = f"{workload}.example.com"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": workload}})
    for number in range(NODES):
        add_node(api, f"{workload}-{number}", driver, workload)
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    api.call("POST", f"{RESOURCE}/deviceclasses", {"metadata": {"name": workload}, "spec": {"selectors": [selector]}})
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": requests(workload, driver)}}}
    api.call("POST", f"{RESOURCE}/namespaces/{workload}/resourceclaimtemplates", template)
    for number in range(PODS):
        api.call("POST", f"/api/v1/namespaces/{workload}/pods", workload_pod(f"p{number}", workload))

    def bound() -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in api.items(f"/api/v1/namespaces/{workload}/pods"))

    eventually_blocking(lambda: bound() == PODS, lambda: f"{workload}: {bound()} bound\n{plane.logs()}", 120)
    claims = api.items(f"{RESOURCE}/namespaces/{workload}/resourceclaims")
    given = Counter(
        (each["pool"], each["device"], each.get("shareID"))
        for claim in claims
        for each in claim["status"]["allocation"]["devices"]["results"]
    )
    assert given.most_common(1)[0][1] == 1, f"{workload}: given away twice"
    return bound()


def add_node(api: Api, name: str, driver: str, workload: str) -> None:
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    node = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "workload": workload}},
        "status": {"capacity": room, "allocatable": room, "conditions": ready},
    }
    api.call("POST", "/api/v1/nodes", node)

    def is_open() -> bool:
        """A control plane taints nodes that are new; here nobody else would take the taint away."""
        if not api.call("GET", f"/api/v1/nodes/{name}")["spec"].get("taints"):
            return True
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        return False

    eventually_blocking(is_open, f"{name} to have no taints")
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2 if workload == "partitions" else 1}
    spec = {"driver": driver, "nodeName": name, "pool": pool}
    if workload == "partitions":
        counters = {"mem": {"value": f"{10 * DEVICES}Gi"}}
        shared = spec | {"sharedCounters": [{"name": "card", "counters": counters}]}
        api.call("POST", f"{RESOURCE}/resourceslices", {"metadata": {"name": f"{name}-counters"}, "spec": shared})
    devices = [workload_device(number, workload) for number in range(DEVICES)]
    api.call("POST", f"{RESOURCE}/resourceslices", {"metadata": {"name": name}, "spec": spec | {"devices": devices}})


def workload_device(number: int, workload: str) -> dict:
    attributes = {
        "model": {"string": "b60"},
        "driverVersion": {"version": "1.2.3"},
        "root": {"string": f"pci{number % 2}"},
    }
    device = {"name": f"dev-{number}", "attributes": attributes, "capacity": {"memory": {"value": "24480Mi"}}}
    if workload == "shares":
        return device | {"allowMultipleAllocations": True}
    if workload == "partitions":
        return device | {"consumesCounters": [{"counterSet": "card", "counters": {"mem": {"value": "10Gi"}}}]}
    return device


def requests(workload: str, driver: str) -> dict:
    exactly: dict = {"deviceClassName": workload}
    if workload == "selector":
        own, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
        text = f'{own}.model == "b60" && {capacity}.memory.compareTo(quantity("16Gi")) >= 0'
        text += f' && {own}.driverVersion.compareTo(semver("1.0.0")) > 0'
        exactly["selectors"] = [{"cel": {"expression": text}}]
    if workload == "shares":
        exactly["capacity"] = {"requests": {"memory": "4Gi"}}
    if workload == "match":
        five = [{"name": f"r{number}", "exactly": exactly} for number in range(5)]
        return {"requests": five, "constraints": [{"matchAttribute": f"{driver}/root"}]}
    return {"requests": [{"name": "r", "exactly": exactly}]}


def workload_pod(name: str, workload: str) -> dict:
    container = {"name": "c", "image": "pause", "resources": {"claims": [{"name": "d"}]}}
    claims = [{"name": "d", "resourceClaimTemplateName": "t"}]
    # Only the nodes of its own workload have its devices.
    spec = {"containers": [container], "resourceClaims": claims, "nodeSelector": {"workload": workload}}
    return {"metadata": {"name": name}, "spec": spec}
