"""Every file in `examples/` on a running cluster: it becomes what its comment says. Programs are run."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dray.accounting import NodeLedger, PodRef, pod_demand
from dray.client import ApiError
from dray.client.rest import APPLY_PATCH
from dray.client.transport import Call
from dray.testing import NodePool, cluster
from tests.waiting import eventually_blocking

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FEATURES = EXAMPLES / "features"


@pytest.fixture(scope="module")
def running():
    # The driver of CPUs publishes those of this machine.
    pool = NodePool(count=3, cpu=str(max(8, os.cpu_count() or 0)), devices=("gpu", "cpu", "nic"))
    with cluster([pool]) as running:
        running.apply(EXAMPLES / "gpu/classes.yaml")
        yield running


class Example:
    """Applies example files, and takes away again what they made."""

    def __init__(self, running):
        self.cluster = running
        self._applied = []

    def apply(self, name):
        file = EXAMPLES / name
        self._applied += [each for each in yaml.safe_load_all(file.read_text()) if each]
        self.cluster.apply(file)

    def running_devices(self, pod, namespace="default"):
        """Just the names of the devices, once the pod runs."""
        self.cluster.wait_until_running(pod, namespace)
        return [each.rpartition("/")[2] for each in self.cluster.devices_of(pod, namespace)]

    def printed(self, pod, *words):
        """What the pod's container wrote, through the API server as kubectl reads it, once all of `words` are in it."""
        text = ""

        def all_are_there():
            nonlocal text
            answer = self.cluster.run(self.cluster.client.raw("GET", f"/api/v1/namespaces/default/pods/{pod}/log"))
            text = answer.body.decode()
            return all(text.count(word) >= times for word, times in Counter(words).items())

        eventually_blocking(all_are_there, lambda: f"{pod} to print all of {words}: {text!r}")
        return text

    def take_away(self):
        for document in reversed(self._applied):
            self._delete(document)
        pods = [each for each in self._applied if each["kind"] == "Pod"]
        for pod in pods:
            self.cluster.wait_until_gone(pod["metadata"]["name"], pod["metadata"].get("namespace", "default"))

    def _delete(self, document):
        kind, name = document["kind"].lower(), document["metadata"]["name"]
        namespace = document["metadata"].get("namespace", "default")
        plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
        prefix = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
        namespaced = kind in ("pod", "resourceclaim", "resourceclaimtemplate")
        where = f"{prefix}/namespaces/{namespace}/{plural}" if namespaced else f"{prefix}/{plural}"
        try:
            self.cluster.run(self.cluster.client.raw("DELETE", f"{where}/{name}"))
        except ApiError as error:
            if not error.is_not_found:
                raise


@pytest.fixture
def example(running):
    example = Example(running)
    yield example
    example.take_away()


# --- by device ----------------------------------------------------------------------------------------------------------


def test_one_gpu(example):
    example.apply("gpu/one-gpu.yaml")
    assert example.running_devices("one-gpu") == ["gpu-0"]
    example.printed("one-gpu", "GPU_DEVICE_GPU_0=gpu-0")


def test_two_partitions_of_one_card(example):
    example.apply("gpu/partitions.yaml")
    devices = example.running_devices("two-partitions")
    assert len(devices) == 2
    assert len({device.split("-")[1] for device in devices}) == 1
    assert example.printed("two-partitions", *["TIME_SLICE=Long"] * 2).count("TIME_SLICE=Long") == 2


def test_the_best_gpu_there_is(example, running):
    example.apply("gpu/first-available.yaml")
    example.running_devices("best-gpu")
    (claim,) = running.claims_of("best-gpu")
    assert claim.status.allocation.devices.results[0].request == "gpu/card"


def test_nine_cards_of_eight(example, running):
    example.apply("gpu/too-many.yaml")
    assert "cannot allocate all claims" in running.wait_until_unschedulable("too-many")


def test_pinned_cpus_count_in_the_pods_demand(example, running):
    example.apply("cpu/pinned-cpus.yaml")
    pod = running.wait_until_running("pinned")
    (status,) = pod.status.node_allocatable_resource_claim_statuses
    assert {name: str(amount) for name, amount in status.resources.items()} == {"cpu": "1"}
    text = example.printed("pinned", "DRA_CPUSET_", "Cpus_allowed_list", "\n", "\n")
    values = dict(line.replace("\t", "").replace(":", "=", 1).split("=", 1) for line in text.splitlines())
    cpuset = next(value for key, value in values.items() if key.startswith("DRA_CPUSET_"))
    assert values["Cpus_allowed_list"] == cpuset


def test_a_core_for_one_pod(example, running):
    """In this cluster pods bind themselves; `tests/kubelet/test_cpusets.py` has CPU sets of the kernel."""
    example.apply("cpu/neighbours.yaml")
    for name in ("with-a-core", "neighbour"):
        running.wait_until_running(name)
    assert re.search(r"may run on CPUs \S+, seen on: \d", example.printed("with-a-core", "seen on"))
    example.printed("neighbour", "seen on")


def test_bandwidth_on_two_rails(example, running):
    example.apply("nic/bandwidth.yaml")
    example.running_devices("two-rails")
    example.printed("two-rails", "NIC_NIC_0_BANDWIDTH=5G", "NIC_NIC_1_BANDWIDTH=5G")
    (claim,) = running.claims_of("two-rails")
    assert all(result.share_id for result in claim.status.allocation.devices.results)


# --- by feature ---------------------------------------------------------------------------------------------------------


def test_structured_parameters(example):
    example.apply("features/structured-parameters.yaml")
    devices = example.running_devices("structured")
    assert devices in (["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"], ["gpu-4", "gpu-5"], ["gpu-6", "gpu-7"])
    assert example.printed("structured", *["TIME_SLICE=Long"] * 2).count("TIME_SLICE=Long") == 2


def test_consumable_capacity(example, running):
    example.apply("features/consumable-capacity.yaml")
    assert example.running_devices("share-a") == example.running_devices("share-b") == ["nic-3"]
    example.printed("share-a", "BANDWIDTH=20G")
    example.printed("share-b", "BANDWIDTH=30G")
    assert len({running.pod(name).spec.node_name for name in ("share-a", "share-b")}) == 1


def test_partitionable_devices(example):
    example.apply("features/partitionable-devices.yaml")
    devices = example.running_devices("partitions")
    assert all("1g-35gb" in device for device in devices)
    assert len({device.split("-")[1] for device in devices}) == 1


def test_prioritized_list(example, running):
    example.apply("features/prioritized-list.yaml")
    example.running_devices("second-choice")
    (claim,) = running.claims_of("second-choice")
    assert claim.status.allocation.devices.results[0].request == "gpu/half"


def test_admin_access(example):
    example.apply("features/admin-access.yaml")
    assert example.running_devices("monitor", "device-monitoring") == [f"gpu-{number}" for number in range(8)]
    example.apply("gpu/one-gpu.yaml")
    assert example.running_devices("one-gpu") == ["gpu-0"]


def test_device_taints_and_eviction(example, running):
    example.apply("features/device-taints.yaml")
    assert example.running_devices("repair") == ["gpu-7"]
    assert "cannot allocate all claims" in running.wait_until_unschedulable("careful")
    example.apply("features/eviction.yaml")
    running.wait_until_gone("repair")


def test_binding_conditions(example, running):
    example.apply("features/binding-conditions.yaml")
    running.wait_until(lambda: running.claims_of("attached")[0].status.allocation is not None, "the claim's allocation")
    assert not running.pod("attached").spec.node_name
    met = yaml.safe_load((FEATURES / "binding-conditions-met.yaml").read_text())
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/attached/status"
    query = {"fieldManager": "chassis", "force": "true"}
    call = Call("PATCH", path, query, json.dumps(met).encode(), APPLY_PATCH)
    assert running.run(running.client.transport.request(call)).status == 200
    assert example.running_devices("attached") == ["slot-0"]


def test_extended_resources(example, running):
    example.apply("features/extended-resources.yaml")
    pod = running.wait_until_running("extended")
    status = pod.status.extended_resource_claim_status
    assert status.resource_claim_name.startswith("extended-extended-resources-")
    example.printed("extended", "GPU_DEVICE_GPU_0=gpu-0")


def test_node_allocatable_resources(example, running):
    expected = {"add-per-claim": 1300, "add-per-reference": 2300, "max": 2000, "consume-from": 1000}
    example.apply("features/node-allocatable.yaml")
    for name in expected:
        assert running.wait_until_running(name).spec.node_name == "node-3"
    ledger = NodeLedger("node-3")
    for name in expected:
        pod = running.pod(name)
        ledger.add(PodRef.of(pod), pod_demand(pod))
    taken = dict.fromkeys(expected, 0)
    for row in ledger.why("cpu"):
        taken[row.pods[0].name] += row.quantity.milli()
    assert taken == expected


def test_attributes_through_the_downward_api(example):
    example.apply("features/downward-api.yaml")
    example.running_devices("informed")
    example.printed("informed", "MODEL=H200", "PCIE_ROOT=pci0000:0")


def test_device_status_and_health(example, running):
    example.apply("features/device-status.yaml")
    running.wait_until_running("healthy")

    def health():
        statuses = running.run(running.client.raw("GET", "/api/v1/namespaces/default/pods/healthy"))
        (container,) = yaml.safe_load(statuses.body)["status"]["containerStatuses"]
        return [line["health"] for each in container.get("allocatedResourcesStatus", []) for line in each["resources"]]

    running.wait_until(lambda: health() == ["Healthy"], "the card's health", state=lambda: str(health()))


def test_list_attributes(example):
    example.apply("features/list-attributes.yaml")
    assert example.running_devices("same-switch") == ["port-0", "port-1"]


def test_derived_attributes(example):
    example.apply("features/derived-attributes.yaml")
    assert example.running_devices("one-half") == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def test_compatibility_groups(example, running):
    example.apply("features/compatibility-groups.yaml")
    assert example.running_devices("fast") == ["fast-0"]
    example.apply("features/compatibility-groups-refused.yaml")
    assert "cannot allocate all claims" in running.wait_until_unschedulable("slow")
    running.delete_pod("fast")
    assert example.running_devices("slow") == ["slow-0"]


# --- the rest -----------------------------------------------------------------------------------------------------------


def test_deleting_pods_gives_everything_back(running):
    def claims():
        return running.run(running.client.raw("GET", "/apis/resource.k8s.io/v1/resourceclaims")).body.count(b'"uid"')

    running.wait_until(lambda: not claims(), "all claims to be gone")
    for kubelet in running.nodes.kubelets:
        assert list(kubelet.claims.cache) == []


def test_shares_of_an_nvidia_card_are_accepted(example, running):
    """Their devices need a real card; `docs/hardware/h200.md` has the run."""
    example.apply("nvidia/shares.yaml")
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    stored = running.run(running.client.raw("GET", path)).body
    assert all(f'"name":"{name}"'.encode() in stored for name in ("gpu-40gi", "gpu-80gi", "gpu-whole"))


def test_claims_for_interfaces_are_accepted(example, running):
    """Their devices need root and namespaces; `tests/e2e/test_net.py` runs them."""
    for file in ("net/whole.yaml", "net/shares.yaml"):
        example.apply(file)
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    stored = running.run(running.client.raw("GET", path)).body
    assert all(f'"name":"{name}"'.encode() in stored for name in ("slow-share", "fast-share"))


def test_the_allocator_as_a_library():
    done = subprocess.run([sys.executable, EXAMPLES / "allocate.py"], capture_output=True, text=True, check=True)
    assert "first gets ['gpu-0']" in done.stdout
    assert "second gets ['gpu-2', 'gpu-3']" in done.stdout
    assert "third must wait: cannot allocate all claims" in done.stdout


def test_every_manifest_is_used_here_and_passes_lint():
    text = Path(__file__).read_text()
    manifests = [file.relative_to(EXAMPLES).as_posix() for file in EXAMPLES.rglob("*.yaml")]
    assert [name for name in manifests if name not in text and Path(name).name not in text] == []
    done = subprocess.run([sys.executable, "-m", "dray", "lint", "-f", EXAMPLES], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_manifest_says_what_it_becomes():
    silent = [file.name for file in FEATURES.glob("*.yaml") if "# Becomes: " not in file.read_text()]
    assert silent == []
