"""The DaemonSets of the drivers of real devices run: a real kubelet and containerd, an image of Dray, the rights that the manifests give and no others.

Only places are changed in the manifests: the folders of this kubelet and of this containerd, and the network that stands for that of the node. There is no
service proxy, so the address of the API server is told in the environment.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dray.api.cpuset import parse_cpu_list
from tests.driver.net.namespaces import Namespace, made_host, measured_mbit
from tests.driver.net.namespaces import why_not as why_no_namespaces
from tests.driver.net.pods import state_of
from tests.e2e import containerd
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.test_processes import EXAMPLES
from tests.peer.binaries import why_not
from tests.peer.dray_image import ROOT, make_dray_image
from tests.peer.test_cpus_of_containers import CLAIMS, CLASSES
from tests.peer.test_cpus_of_containers import POD as CPU_POD
from tests.peer.test_real_kubelet import NODE, RealNode

pytestmark = [pytest.mark.torture, pytest.mark.timeout(600)]

DRAY_IMAGE = "dray.local/dray:1"
SERVER = "10.88.80.1"
SYSTEM = "dray-system"


class DaemonSetNode(RealNode):
    """A node without drivers; they come as DaemonSets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SERVER)
        self.containerd = Containerd(folder / "c", folder / "cdi", has_nri=True, has_pod_network=True)
        self.drivers = ()

    def start(self) -> None:
        super().start()
        archive = self.folder / "dray.tar"
        make_dray_image(archive, DRAY_IMAGE)
        imported = self.containerd.ctr("images", "import", str(archive))
        assert imported.returncode == 0, imported.stderr
        archive.unlink()

    def deploy(self, name: str, *, places: dict[str, str], more: tuple[str, ...] = ()) -> None:
        """The objects of `deploy/NAME`, without Dray's other parts."""
        text = self.kubectl("kustomize", str(ROOT / "deploy" / name))
        for place, here in places.items():
            text = text.replace(place, here)
        documents = [each for each in yaml.safe_load_all(text) if self._is_needed(each, name)]
        for each in documents:
            if each["kind"] == "DaemonSet":
                self._adapt(each["spec"]["template"]["spec"]["containers"], more)
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def _is_needed(self, document: dict, name: str) -> bool:
        is_driver = document["metadata"]["name"].startswith("dray-driver")
        if document["kind"] == "DaemonSet":
            return document["metadata"]["name"] == f"dray-driver-{name}"
        return document["kind"] == "Namespace" or is_driver

    def _adapt(self, containers: list[dict], more: tuple[str, ...]) -> None:
        host, _, port = self._url.removeprefix("https://").partition(":")
        for each in containers:
            each |= {"image": DRAY_IMAGE, "imagePullPolicy": "Never"}
            each["args"] += ["--kubelet-root", str(self.root), "--cdi-dir", str(self.folder / "cdi"), *more]
            server = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
            each["env"] = each["env"] + [{"name": key, "value": value} for key, value in server.items()]

    @property
    def places(self) -> dict[str, str]:
        folders = {
            "/var/lib/kubelet": self.root,
            "/var/run/cdi": self.folder / "cdi",
            "/var/run/nri": self.folder / "c",
        }
        return {place: str(here) for place, here in folders.items()}

    def wait_for_slices(self, *drivers: str) -> None:
        def published() -> bool:
            found = self.kubectl("get", "resourceslices", "-o", "jsonpath={.items[*].spec.driver}").split()
            return set(drivers) <= set(found)

        self.wait(published, f"slices of {', '.join(drivers)}")

    def run(self, text: str, *pods: str) -> None:
        text = text.replace("image: busybox", f"image: {IMAGE}\n      imagePullPolicy: Never")
        self.kubectl("apply", "-f", "-", text=text)
        for pod in pods:
            self.wait(lambda pod=pod: self.pod(pod).get("phase") == "Running", f"{pod} to run")

    def driver_pods(self) -> list[dict]:
        return json.loads(self.kubectl("get", "pods", "-n", SYSTEM, "-o", "json"))["items"]

    def driver_logs(self) -> str:
        names = [pod["metadata"]["name"] for pod in self.driver_pods()]
        each = (self.kubectl("logs", "-n", SYSTEM, name, "--all-containers", check=False) for name in names)
        return "\n".join(each)

    def logs(self) -> str:
        shown = self.kubectl("get", "pods,daemonsets,resourceclaims,events", "-A", "-o", "wide", check=False)
        return super().logs() + shown + self.driver_logs()[-3000:]

    def refusals(self) -> list[str]:
        """Requests of the drivers that their roles do not allow."""
        text = self.kubectl("get", "--raw", "/metrics")
        return [line for line in text.splitlines() if 'code="403"' in line and "resource.k8s.io" in line]


@contextmanager
def _address_of_server() -> Iterator[None]:
    subprocess.run(["ip", "addr", "add", f"{SERVER}/32", "dev", "lo"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "addr", "del", f"{SERVER}/32", "dev", "lo"], check=False)


@pytest.fixture
def node():
    if missing := why_not("kubelet") or containerd.why_no_pod_network() or why_no_namespaces():
        pytest.skip(missing)
    if os.cpu_count() < 2:
        pytest.skip("this machine has only one CPU")
    with tempfile.TemporaryDirectory(prefix="dray-s", ignore_cleanup_errors=True) as name, _address_of_server():
        node = DaemonSetNode(Path(name))
        try:
            node.start()
            yield node
        finally:
            node.stop()


def test_the_daemonset_of_cpus_and_memory(node: DaemonSetNode) -> None:
    node.deploy("cpu", places=node.places)
    node.wait_for_slices("dra.cpu", "dra.memory")
    node.kubectl("apply", "-f", "-", text=CLASSES)
    everything = set(range(os.cpu_count()))
    no_claim = {"image": IMAGE, "claims": "", "env": "[]", "resources": "{}"}
    node.run(CPU_POD.format(name="early", **no_claim), "early")
    with_claim = no_claim | {"claims": CLAIMS, "resources": "{claims: [{name: cpus}]}"}
    node.run(CPU_POD.format(name="pinned", **with_claim), "pinned")
    node.wait(lambda: "ready" in node.kubectl("logs", "pinned", check=False), "output of pinned")
    mine = _cpus(node.kubectl("logs", "pinned"))
    assert len(mine) == 1
    assert allowed(node, "early") == everything - mine
    assert {each["status"]["phase"] for each in node.driver_pods()} == {"Running"}

    node.kubectl("delete", "pod", "-n", SYSTEM, "--all")
    node.run(CPU_POD.format(name="late", **no_claim), "late")
    node.wait(lambda: allowed(node, "late") == everything - mine, "the driver's next pod to keep others off")
    node.kubectl("delete", "pod", "pinned")
    node.wait(lambda: allowed(node, "early") == everything, "the CPU to be given back")
    assert not node.refusals()


def allowed(node: DaemonSetNode, pod: str) -> set[int]:
    id_ = node.container(pod)[0].removeprefix("containerd://")
    tasks = dict(line.split()[:2] for line in node.containerd.ctr("tasks", "ls").stdout.splitlines()[1:])
    return _cpus(Path(f"/proc/{tasks[id_]}/status").read_text())


def _cpus(status: str) -> set[int]:
    return parse_cpu_list(re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)[1])


def test_the_daemonset_of_interfaces(node: DaemonSetNode) -> None:
    with made_host() as network, _process_in(network) as pid:
        before = state_of(network)
        options = ("--interface", "eth[12]", "--share", "eth2")
        node.deploy("net", places=node.places | {"/proc/1/ns/net": f"/proc/{pid}/ns/net"}, more=options)
        node.wait_for_slices("dra.net")
        node.run((EXAMPLES / "net/shares.yaml").read_text(), "slow-share", "fast-share")
        slow, fast = (network_of(node, name) for name in ("slow-share", "fast-share"))
        rate = measured_mbit(slow, fast, "10.79.0.2")
        print(f"a share of 10 Mbit/s sends {rate:.2f}")
        assert rate == pytest.approx(10, rel=0.2)
        node.wait(lambda: status_of(node, "slow-share"), "the driver to tell of the interface")
        [device] = status_of(node, "slow-share")
        assert device["networkData"]["ips"] == ["10.79.0.1/24"]
        node.run((EXAMPLES / "net/whole.yaml").read_text(), "whole-interface")
        assert "eth1" not in network.interfaces()

        node.kubectl("delete", "pod", "-n", SYSTEM, "--all")
        node.wait(lambda: len(node.driver_pods()) == 1 and is_running(node.driver_pods()[0]), "the driver's next pod")
        node.wait_for_slices("dra.net")
        node.kubectl("delete", "pod", "slow-share", "fast-share", "whole-interface", "--wait=false")
        node.wait(lambda: not node.claims(), "claims to be given back")
        assert state_of(network) == before
        assert not node.refusals()


@contextmanager
def _process_in(network: Namespace) -> Iterator[int]:
    with subprocess.Popen(network.inside("sh", "-c", "echo; exec sleep 1000"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def network_of(node: DaemonSetNode, pod: str) -> Namespace:
    id_ = node.container(pod)[0].removeprefix("containerd://")
    tasks = dict(line.split()[:2] for line in node.containerd.ctr("tasks", "ls").stdout.splitlines()[1:])
    return Namespace(Path(f"/proc/{tasks[id_]}/ns/net"))


def status_of(node: DaemonSetNode, claim: str) -> list[dict]:
    found = json.loads(node.kubectl("get", "resourceclaim", claim, "-o", "json"))
    return found["status"].get("devices") or []


def is_running(pod: dict) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def test_the_daemonset_of_nvidia_cards_starts_and_says_that_there_is_no_card(node: DaemonSetNode) -> None:
    root = node.folder / "driver-root"
    root.mkdir()
    node.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true")
    node.deploy("nvidia", places=node.places | {"/run/nvidia/driver": str(root)})
    node.wait(lambda: "NVML cannot be used on this machine" in node.driver_logs(), "the driver's words")
