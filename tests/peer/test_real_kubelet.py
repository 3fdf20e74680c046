"""A real kubelet with containerd on Dray's API server: devices of Dray's drivers and of Kubernetes' test driver, and restarts.

The kubelet has the credentials of a node and nothing more, speaks protobuf, and asks the server for its serving certificate. The containerd on
the PATH has to be 1.7 or later, since earlier ones know no CDI.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e import containerd
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.processes import DRAY, Process
from tests.e2e.test_processes import EXAMPLES, free_port
from tests.peer.binaries import Binary, why_not
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.torture

NODE = "real-1"
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
failSwapOn: false
containerRuntimeEndpoint: unix://{socket}
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 100Mi}}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {authority}}}}}
authorization: {{mode: Webhook}}
serverTLSBootstrap: true
port: {port}
healthzPort: {health_port}
podLogsDir: {folder}/logs
nodeStatusUpdateFrequency: 5s
"""
OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: test-driver}
spec: {selectors: [{cel: {expression: device.driver == "test-driver.cdi.k8s.io"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: both}
spec:
  spec:
    devices:
      requests:
      - {name: card, exactly: {deviceClassName: gpu}}
      - {name: other, exactly: {deviceClassName: test-driver}}
      config:
      - requests: [other]
        opaque: {driver: test-driver.cdi.k8s.io, parameters: {greeting: hello}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: devices, resourceClaimTemplateName: both}}]
  containers:
  - name: main
    image: {image}
    imagePullPolicy: Never
    command: [sh, -c, 'env; echo ready; exec sleep 1000']
    resources: {{claims: [{{name: devices}}]}}
"""


class RealNode:
    """`dray up` without nodes, and a kubelet, containerd and two drivers beside it."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self.root = folder, folder / "kubelet"
        self.kubeconfig, self._node_kubeconfig = folder / "kubeconfig", folder / "node.kubeconfig"
        self.containerd = Containerd(folder / "c", folder / "cdi")
        self._url = f"https://{address}:{free_port()}"
        self._ready = folder / "ready"
        up = ("--nodes", "0", "--listen", self._url.removeprefix("https://"), "--data", str(folder / "data"))
        self.server = Process(
            folder, "up", "up", *up, "--kubeconfig", str(self.kubeconfig), "--ready-file", str(self._ready)
        )
        flags = (f"--config={folder}/kubelet.yaml", f"--kubeconfig={self._node_kubeconfig}")
        flags += (f"--hostname-override={NODE}", f"--root-dir={self.root}", f"--cert-dir={folder}/certificates")
        self.kubelet = Binary(folder, "kubelet", "kubelet", *flags)
        config = ("--kubeconfig", str(self.kubeconfig), "--node-name", NODE, "--cdi-dir", str(folder / "cdi"))
        self.drivers = (
            Process(folder, "gpu", "driver", "gpu", *config, "--kubelet-root", str(self.root)),
            Binary(
                folder,
                "test-driver",
                "dra-test-driver",
                "kubelet-plugin",
                *config,
                f"--datadir={self.root}/plugins",
                f"--plugin-registration-path={self.root}/plugins_registry",
            ),
        )

    def start(self) -> None:
        self.containerd.start()
        self.start_server()
        self._make_credentials()
        text = CONFIG.format(
            socket=self.containerd.socket,
            authority=self.folder / "data/pki/ca.crt",
            port=free_port(),
            health_port=free_port(),
            folder=self.folder,
        )
        (self.folder / "kubelet.yaml").write_text(text)
        self.kubelet.start()
        self.wait(self.is_node_ready, "the node to be ready")
        (self.root / "plugins/test-driver.cdi.k8s.io").mkdir(parents=True)
        for driver in self.drivers:
            driver.start()

    def start_server(self) -> None:
        self._ready.unlink(missing_ok=True)
        self.server.start()
        self.wait(self._ready.exists, "the server to be ready")

    def _make_credentials(self) -> None:
        identity = ("--user", f"system:node:{NODE}", "--group", "system:nodes", "-o", str(self._node_kubeconfig))
        server = ("--data", str(self.folder / "data"), "--server", self._url)
        subprocess.run([*DRAY, "kubeconfig", *server, *identity], check=True)

    def stop(self) -> None:
        for part in (*self.drivers, self.kubelet, self.server):
            part.stop()
        self.containerd.stop()

    def kubectl(self, *arguments: str, text: str = "", check: bool = True) -> str:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def is_node_ready(self) -> bool:
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "node", NODE, "-o", path, check=False) == "True"

    def wait(self, holds, what: str, within_s: float = 120.0) -> None:
        eventually_blocking(holds, lambda: f"{what}\n{self.logs()}", within_s)

    def logs(self) -> str:
        parts = (self.server, self.kubelet, *self.drivers)
        return "\n".join(f"--- {part.name}\n{part.log.read_text()[-2500:]}" for part in parts if part.log.exists())

    # --- pods

    def run_pod(self, name: str) -> None:
        self.kubectl("apply", "-f", "-", text=POD.format(name=name, image=IMAGE))
        self.wait(lambda: self.pod(name).get("phase") == "Running", f"{name} to run")
        self.wait(lambda: "ready" in self.kubectl("logs", name, check=False), f"output of {name}")

    def pod(self, name: str) -> dict:
        text = self.kubectl("get", "pod", name, "-o", "json", check=False)
        return json.loads(text)["status"] if text else {}

    def container(self, name: str) -> tuple[str, int]:
        [status] = self.pod(name)["containerStatuses"]
        return status["containerID"], status["restartCount"]

    def claims(self) -> list[dict]:
        """The claims that the kubelet has prepared, as its checkpoint says."""
        data = json.loads((self.root / "dra_manager_state").read_text())["Data"]
        return json.loads(data)["ClaimInfoStateList"] or []


@pytest.fixture
def node():
    if missing := why_not("kubelet", "dra-test-driver") or containerd.why_not_1_7():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="dray-r", ignore_cleanup_errors=True) as name:
        node = RealNode(Path(name))
        try:
            node.start()
            node.kubectl("apply", "-f", str(EXAMPLES / "gpu/classes.yaml"))
            node.kubectl("apply", "-f", "-", text=OBJECTS)
            yield node
        finally:
            node.stop()


def test_a_real_kubelet_runs_pods_with_devices_and_survives_restarts(node: RealNode) -> None:
    node.run_pod("first")
    output = node.kubectl("logs", "first")
    assert re.search(r"^GPU_DEVICE", output, re.MULTILINE), "what Dray's driver gives"
    assert re.search(r"^user_greeting=hello$", output, re.MULTILINE), "what Kubernetes' driver gives"
    before = node.container("first")

    node.kubelet.restart()
    node.run_pod("second")
    assert node.container("first") == before, "a kubelet that restarts leaves containers alone"

    node.server.kill()
    node.start_server()
    node.run_pod("third")
    assert node.container("first") == before
    assert len(node.claims()) == 3

    node.kubectl("delete", "pod", "first", "second", "third")
    node.wait(lambda: not node.claims(), "claims to be given back")
    refused = re.findall(r"[^\n]* is forbidden: [^\n]*", node.kubelet.log.read_text())
    assert not refused, "a node may do what a kubelet needs"
