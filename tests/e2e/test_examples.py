"""The manifests in `examples/`, applied to a running cluster; what containers print is what users would see."""

import time
from pathlib import Path

import pytest

from dray.testing import cluster

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def running():
    with cluster(nodes=2, devices=("gpu", "cpu", "nic")) as running:
        running.apply(EXAMPLES / "gpu/classes.yaml")
        yield running


def printed(running, pod):
    """What the pod's container wrote, through the API server as kubectl reads it."""
    deadline = time.monotonic() + 10
    while True:
        answer = running.run(running.client.raw("GET", f"/api/v1/namespaces/default/pods/{pod}/log"))
        if answer.body or time.monotonic() > deadline:
            return answer.body.decode()
        time.sleep(0.05)


def test_one_gpu(running):
    running.apply(EXAMPLES / "gpu/one-gpu.yaml")
    pod = running.wait_until_running("one-gpu")
    (device,) = running.devices_of("one-gpu")
    assert device == f"gpu.example.com/{pod.spec.node_name}/gpu-0"
    assert "GPU_DEVICE_GPU_0=gpu-0" in printed(running, "one-gpu")


def test_two_partitions_of_one_card(running):
    running.apply(EXAMPLES / "gpu/partitions.yaml")
    running.wait_until_running("two-partitions")
    devices = [each.rpartition("/")[2] for each in running.devices_of("two-partitions")]
    assert len({device.split("-")[1] for device in devices}) == 1
    assert len(devices) == 2
    assert printed(running, "two-partitions").count("TIME_SLICE=Long") == 2


def test_the_best_gpu_there_is(running):
    running.apply(EXAMPLES / "gpu/first-available.yaml")
    running.wait_until_running("best-gpu")
    (claim,) = running.claims_of("best-gpu")
    assert claim.status.allocation.devices.results[0].request == "gpu/card"


def test_pinned_cpus_count_in_the_pods_demand(running):
    running.apply(EXAMPLES / "cpu/pinned-cpus.yaml")
    pod = running.wait_until_running("pinned")
    (status,) = pod.status.node_allocatable_resource_claim_statuses
    assert {name: str(amount) for name, amount in status.resources.items()} == {"cpu": "1"}
    lines = dict(
        line.replace("\t", "").split("=" if "=" in line else ":", 1) for line in printed(running, "pinned").splitlines()
    )
    cpuset = next(value for key, value in lines.items() if key.startswith("DRA_CPUSET_"))
    assert lines["Cpus_allowed_list"] == cpuset


def test_bandwidth_on_two_rails(running):
    running.apply(EXAMPLES / "nic/bandwidth.yaml")
    running.wait_until_running("two-rails")
    text = printed(running, "two-rails")
    assert "NIC_NIC_0_BANDWIDTH=5G" in text
    assert "NIC_NIC_1_BANDWIDTH=5G" in text
    (claim,) = running.claims_of("two-rails")
    assert all(result.share_id for result in claim.status.allocation.devices.results)


def test_deleting_pods_gives_everything_back(running):
    names = ["one-gpu", "two-partitions", "best-gpu", "pinned", "two-rails"]
    for name in names:
        running.delete_pod(name)
    for name in names:
        running.wait_until_gone(name)
    running.wait_until(
        lambda: (
            not running.run(running.client.raw("GET", "/apis/resource.k8s.io/v1/resourceclaims")).body.count(b'"uid"')
        ),
        "all claims to be gone",
    )
    for kubelet in running.nodes.kubelets:
        assert list(kubelet.claims.cache) == []
