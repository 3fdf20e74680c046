"""Pods with network interfaces: every part a process of its own, a network namespace in place of the machine's network.

The same story with containers as local processes and with containerd: packets between two pods, the rate of a share, a driver that is
killed, and an interface that is on the host again as it was.
"""

import json
import tempfile
from pathlib import Path

import pytest

from tests.driver.net.namespaces import Namespace, made_host, measured_mbit
from tests.driver.net.namespaces import why_not as why_no_namespaces
from tests.driver.net.pods import state_of
from tests.e2e import containerd
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.processes import ClusterOfProcesses, wait_until
from tests.e2e.test_processes import EXAMPLES, RESOURCES, checkpoint, free_port, phase, published

if why_no_namespaces():
    pytest.skip(why_no_namespaces(), allow_module_level=True)

OPTIONS = ("--interface", "eth[12]", "--share", "eth2")
# busybox is on the machine and in the image.
TALK = """
apiVersion: v1
kind: Pod
metadata: {{name: talker}}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: net, resourceClaimName: {claim}}}]
  containers:
  - name: main
    image: {image}
    command: [busybox, sh, -c, 'until echo hello | busybox nc -w 2 {address} 5002; do busybox sleep 0.2; done; exec busybox sleep 1000']
    resources: {{claims: [{{name: net}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: listener}}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: net, resourceClaimName: {other}}}]
  containers:
  - name: main
    image: {image}
    command: [busybox, sh, -c, 'busybox nc -l -p 5002; exec busybox sleep 1000']
    resources: {{claims: [{{name: net}}]}}
"""


class NetCluster(ClusterOfProcesses):
    """A node with the net driver; `network` stands for the node's."""

    network: Namespace
    runtime: Containerd | None = None

    def apply(self, text: str) -> None:
        """As it stands, with an image that the node has."""
        (self.folder / "applied.yaml").write_text(text.replace("image: busybox", f"image: {IMAGE}"))
        self.kubectl("apply", "-f", str(self.folder / "applied.yaml"))

    def claim(self, name: str) -> dict:
        return self.ask(f"{RESOURCES}/namespaces/default/resourceclaims/{name}")

    def network_of(self, claim: str) -> Namespace:
        """The network of the pod that has the claim, as long as the driver keeps it."""
        uid = self.claim(claim)["metadata"]["uid"]
        return Namespace(self.node_root / f"plugins/dra.net/namespaces/{uid}-0")

    def run(self, *pods: str) -> None:
        for pod in pods:
            wait_until(lambda pod=pod: phase(self, pod) == "Running", f"{pod} to run", self, 90)

    def delete(self, *pods: str) -> None:
        self.kubectl("delete", "pod", *pods, "--wait=true", "--timeout=60s")
        wait_until(lambda: not checkpoint(self), "claims to be given back", self, 60)


@pytest.fixture(params=["process", pytest.param("containerd", marks=pytest.mark.torture)])
def cluster(request):
    with tempfile.TemporaryDirectory(prefix="dray-n", ignore_cleanup_errors=True) as name, made_host() as network:
        folder = Path(name)
        options = ("--isolation", "auto") if request.param == "process" else ()
        runtime = None
        if request.param == "containerd":
            if why := containerd.why_no_pod_network():
                pytest.skip(why)
            runtime = Containerd(folder / "c", folder / "cdi", has_pod_network=True)
            options = ("--runtime", f"cri://{runtime.socket}")
        driver_options = (*OPTIONS, "--network-namespace", str(network.path))
        cluster = NetCluster(folder, free_port(), ("net",), options, driver_options)
        cluster.network, cluster.runtime = network, runtime
        try:
            if runtime is not None:
                runtime.start()
            cluster.start()
            wait_until(lambda: "dra.net" in published(cluster), "the driver to publish", cluster)
            yield cluster
        finally:
            cluster.stop()
            if runtime is not None:
                runtime.stop()


def test_pods_with_interfaces(cluster: NetCluster):
    before = state_of(cluster.network)
    cluster.apply((EXAMPLES / "net/shares.yaml").read_text())
    cluster.run("slow-share", "fast-share")
    check_network_data(cluster, "slow-share", "10.79.0.1/24")
    slow, fast = cluster.network_of("slow-share"), cluster.network_of("fast-share")
    rates = measured_mbit(slow, fast, "10.79.0.2"), measured_mbit(fast, slow, "10.79.0.1")
    print("a share of 10 Mbit/s sends {:.2f} and receives {:.2f}".format(*rates))
    assert rates == (pytest.approx(10, rel=0.2), pytest.approx(10, rel=0.2))
    cluster.delete("slow-share", "fast-share")

    names = {"claim": "slow-share", "other": "fast-share", "address": "10.79.0.2", "image": IMAGE}
    cluster.apply(TALK.format(**names))
    cluster.run("talker", "listener")
    wait_until(lambda: cluster.kubectl("logs", "listener") == "hello\n", "one pod to hear the other", cluster)
    cluster.drivers["net"].kill()
    cluster.kubectl("delete", "pod", "talker", "listener", "--wait=false")
    cluster.drivers["net"].start()
    wait_until(lambda: not checkpoint(cluster), "claims to be given back by the driver's next life", cluster, 90)
    assert state_of(cluster.network) == before

    cluster.apply((EXAMPLES / "net/whole.yaml").read_text())
    cluster.run("whole-interface")
    assert "eth1" not in cluster.network.interfaces()
    wait_until(lambda: "net1" in cluster.kubectl("logs", "whole-interface"), "the pod to see it", cluster)
    print(cluster.kubectl("logs", "whole-interface"))
    cluster.drivers["net"].kill()
    cluster.kubectl("delete", "pod", "whole-interface", "--wait=false")
    cluster.drivers["net"].start()
    wait_until(lambda: not checkpoint(cluster), "the claim to be given back", cluster, 90)
    assert state_of(cluster.network) == before


def check_network_data(cluster: NetCluster, name: str, address: str) -> None:
    def devices():
        return cluster.claim(name).get("status", {}).get("devices")

    wait_until(devices, "the driver to tell of the interface", cluster)
    [device] = devices()
    assert (device["driver"], device["device"]) == ("dra.net", "eth2")
    assert device["networkData"]["interfaceName"] == "net1"
    assert device["networkData"]["ips"] == [address]
    assert len(device["networkData"]["hardwareAddress"].split(":")) == 6
    print(json.dumps(device))
