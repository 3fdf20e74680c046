"""A real kubelet with containerd runs pods with interfaces that `dray driver net` serves."""

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.driver.net.namespaces import Namespace, made_host, measured_mbit
from tests.driver.net.namespaces import why_not as why_no_namespaces
from tests.driver.net.pods import state_of
from tests.e2e import containerd
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.processes import Process
from tests.e2e.test_processes import EXAMPLES
from tests.peer.binaries import why_not
from tests.peer.test_real_kubelet import NODE, RealNode

pytestmark = pytest.mark.torture


class RealNetNode(RealNode):
    """The same node with the net driver alone; `network` stands for its network."""

    def __init__(self, folder: Path, network: Namespace) -> None:
        super().__init__(folder)
        self.network = network
        self.containerd = Containerd(folder / "c", folder / "cdi", has_pod_network=True)
        config = ("--kubeconfig", str(self.kubeconfig), "--node-name", NODE, "--cdi-dir", str(folder / "cdi"))
        options = ("--interface", "eth[12]", "--share", "eth2", "--network-namespace", str(network.path))
        self.net = Process(folder, "net", "driver", "net", *config, "--kubelet-root", str(self.root), *options)
        self.drivers = (self.net,)

    def run(self, manifest: str, *pods: str) -> None:
        text = (EXAMPLES / manifest).read_text()
        text = text.replace("image: busybox", f"image: {IMAGE}\n      imagePullPolicy: Never")
        self.kubectl("apply", "-f", "-", text=text)
        for pod in pods:
            self.wait(lambda pod=pod: self.pod(pod).get("phase") == "Running", f"{pod} to run")

    def claim(self, name: str) -> dict:
        return json.loads(self.kubectl("get", "resourceclaim", name, "-o", "json"))

    def network_of(self, claim: str) -> Namespace:
        uid = self.claim(claim)["metadata"]["uid"]
        return Namespace(self.root / f"plugins/dra.net/namespaces/{uid}-0")


@pytest.fixture
def node():
    if missing := why_not("kubelet") or containerd.why_no_pod_network() or why_no_namespaces():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="dray-r", ignore_cleanup_errors=True) as name, made_host() as network:
        node = RealNetNode(Path(name), network)
        try:
            node.start()
            yield node
        finally:
            node.stop()


def test_a_real_kubelet_runs_pods_with_interfaces(node: RealNetNode) -> None:
    before = state_of(node.network)
    node.run("net/shares.yaml", "slow-share", "fast-share")
    slow, fast = node.network_of("slow-share"), node.network_of("fast-share")
    rates = measured_mbit(slow, fast, "10.79.0.2"), measured_mbit(fast, slow, "10.79.0.1")
    print("a share of 10 Mbit/s sends {:.2f} and receives {:.2f}".format(*rates))
    assert rates == (pytest.approx(10, rel=0.2), pytest.approx(10, rel=0.2))
    node.wait(lambda: node.claim("slow-share")["status"].get("devices"), "the driver to tell of the interface")
    [device] = node.claim("slow-share")["status"]["devices"]
    print(json.dumps(device))
    assert device["networkData"]["ips"] == ["10.79.0.1/24"]

    node.run("net/whole.yaml", "whole-interface")
    assert "eth1" not in node.network.interfaces()
    node.wait(lambda: re.search(r"^ *net1:", node.kubectl("logs", "whole-interface"), re.MULTILINE), "output")
    print(node.kubectl("logs", "whole-interface"))

    node.net.kill()
    node.kubectl("delete", "pod", "slow-share", "fast-share", "whole-interface", "--wait=false")
    node.net.start()
    node.wait(lambda: not node.claims(), "claims to be given back by the driver's next life")
    assert state_of(node.network) == before
    refused = re.findall(r"[^\n]* is forbidden: [^\n]*", node.kubelet.log.read_text())
    assert not refused
