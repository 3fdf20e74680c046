"""Every part a process of its own, driven with kubectl; and any of them killed at any time."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.e2e.processes import ClusterOfProcesses, wait_until
from tests.torture.etcd_cluster import free_port

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

if shutil.which("kubectl") is None:
    pytest.fail("kubectl is not on the PATH; these tests need it", pytrace=False)


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="dray-e", ignore_cleanup_errors=True) as folder:
        cluster = ClusterOfProcesses(Path(folder), free_port(), ("gpu", "cpu", "nic"))
        try:
            cluster.start()
            cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/classes.yaml"))
            drivers = {"gpu.example.com", "dra.cpu", "nic.example.com"}
            wait_until(lambda: drivers <= published(cluster), "all drivers to publish", cluster)
            yield cluster
        finally:
            cluster.stop()


RESOURCES = "/apis/resource.k8s.io/v1"


def published(cluster):
    slices = cluster.ask(f"{RESOURCES}/resourceslices").get("items", ())
    return {each["spec"]["driver"] for each in slices}


def phase(cluster, pod):
    found = cluster.ask(f"/api/v1/namespaces/default/pods/{pod}")
    return found["status"]["phase"] if found else ""


def is_gone(cluster, pod):
    pods = cluster.ask("/api/v1/namespaces/default/pods").get("items")
    return pods is not None and pod not in {each["metadata"]["name"] for each in pods}


def checkpoint(cluster):
    try:
        data = json.loads((cluster.node_root / "dra_manager_state").read_text())["Data"]
    except FileNotFoundError:
        return []
    return json.loads(data)["ClaimInfoStateList"] or []


def is_clean(cluster):
    """No claims in the API, none in the agent's checkpoint, none with the drivers, no CDI files."""
    prepared = [json.loads(path.read_text())["claims"] for path in cluster.node_root.glob("plugins/*/prepared.json")]
    return (
        cluster.ask(f"{RESOURCES}/resourceclaims").get("items") == []
        and not checkpoint(cluster)
        and not any(prepared)
        and not list(cluster.cdi.glob("*"))
    )


def test_pods_of_all_three_drivers_see_their_devices(cluster):
    manifests = {"gpu/one-gpu.yaml": "one-gpu", "cpu/pinned-cpus.yaml": "pinned", "nic/bandwidth.yaml": "two-rails"}
    for manifest in manifests:
        cluster.kubectl("apply", "-f", str(EXAMPLES / manifest))
    for pod in manifests.values():
        wait_until(lambda pod=pod: phase(cluster, pod) == "Running", f"{pod} to run", cluster)
    expected = {"one-gpu": "GPU_DEVICE_GPU_0=gpu-0", "pinned": "DRA_CPUSET_", "two-rails": "NIC_NIC_1_BANDWIDTH=5G"}
    for pod, text in expected.items():
        wait_until(
            lambda pod=pod, text=text: text in cluster.kubectl("logs", pod), f"{text} in the output of {pod}", cluster
        )
    cluster.kubectl("delete", "pod", *manifests.values(), "--wait=true")
    wait_until(lambda: is_clean(cluster), "everything to be given back", cluster)


@pytest.mark.parametrize("part", ["kubelet", "driver", "apiserver"])
def test_killed_while_a_pod_runs(cluster, part):
    cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
    wait_until(lambda: phase(cluster, "one-gpu") == "Running", "the pod to run", cluster)
    uid = cluster.kubectl("get", "pod", "one-gpu", "-o", "jsonpath={.metadata.uid}")
    kill(cluster, part)
    wait_until(lambda: "gpu.example.com" in published(cluster), "devices to be published again", cluster)
    assert (
        cluster.kubectl("get", "pod", "one-gpu", "-o", "jsonpath={.metadata.uid} {.status.phase}") == f"{uid} Running"
    )
    cluster.kubectl("delete", "pod", "one-gpu", "--wait=true")
    wait_until(lambda: is_clean(cluster), "everything to be given back", cluster)


@pytest.mark.parametrize("part", ["kubelet", "driver", "apiserver"])
def test_killed_while_a_pod_starts_and_while_it_ends(cluster, part):
    cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
    kill(cluster, part)
    wait_until(lambda: phase(cluster, "one-gpu") == "Running", "the pod to run", cluster, 90)
    cluster.kubectl("delete", "pod", "one-gpu", "--wait=false")
    kill(cluster, part)
    wait_until(lambda: is_gone(cluster, "one-gpu"), "the pod to be gone", cluster, 90)
    wait_until(lambda: is_clean(cluster), "everything to be given back", cluster, 90)


def test_a_force_deleted_pod_leaves_nothing(cluster):
    cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
    wait_until(lambda: phase(cluster, "one-gpu") == "Running", "the pod to run", cluster)
    cluster.kubectl("delete", "pod", "one-gpu", "--force", "--grace-period=0")
    wait_until(lambda: is_clean(cluster), "everything to be given back", cluster)


def kill(cluster, part):
    if part == "driver":
        cluster.drivers["gpu"].restart()
    elif part == "kubelet":
        cluster.kubelet.restart()
    else:
        cluster.apiserver.kill()
        cluster.start_apiserver()


TALKER = """
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: any
    command: [sh, -c, 'echo first; sleep 2; echo second; echo third; [ -e %s ] || { touch %s; exit 3; }; exec sleep 1000']
"""


@pytest.fixture
def for_all_users():
    """A folder in which pods may write: they have users of their own."""
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


def test_logs_as_kubectl_asks_for_them(cluster, for_all_users):
    flag = for_all_users / "was-here"
    manifest = cluster.folder / "talker.yaml"
    manifest.write_text(TALKER % (flag, flag))
    cluster.kubectl("apply", "-f", str(manifest))

    def logs(*options):
        return cluster.kubectl("logs", "talker", *options, check=False)

    wait_until(lambda: "third" in logs("--previous"), "the first container to end", cluster)
    wait_until(lambda: "third" in logs(), "the second container to speak", cluster)
    assert logs() == logs("--previous") == "first\nsecond\nthird\n"
    assert logs("--tail=1") == "third\n"
    assert logs("--limit-bytes=8") == "first\nse"
    stamped = logs("--timestamps").splitlines()
    times = [line.partition(" ")[0] for line in stamped]
    assert [line.partition(" ")[2] for line in stamped] == ["first", "second", "third"]
    assert times == sorted(times)
    assert times[0][:10] == time.strftime("%Y-%m-%d", time.gmtime())
    assert logs(f"--since-time={times[1]}") == "second\nthird\n"
    assert logs("--since=1h") == "first\nsecond\nthird\n"
    wait_until(lambda: logs("--since=1s") == "", "a second without words", cluster)
    following = subprocess.Popen(
        ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "logs", "talker", "-f", "--tail=1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout.readline() == "third\n"
    cluster.kubectl("delete", "pod", "talker", "--wait=true")
    assert following.wait(30) == 0, "following ends with the container"
    assert "not found" in logs()


def test_what_is_said_about_a_pod(cluster):
    cluster.kubectl("apply", "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
    wait_until(lambda: phase(cluster, "one-gpu") == "Running", "the pod to run", cluster)
    wait_until(lambda: "Started" in cluster.kubectl("describe", "pod", "one-gpu"), "its events", cluster)
    text = cluster.kubectl("describe", "pod", "one-gpu")
    for line in ("Container created", "Container started", "already present on machine and can be accessed by the pod"):
        assert line in text
    cluster.kubectl("delete", "pod", "one-gpu", "--wait=true")
    wait_until(lambda: is_clean(cluster), "everything to be given back", cluster)
