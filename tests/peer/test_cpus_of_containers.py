"""Containers of a real containerd stay on the CPUs of their claims, and all others off them: with Dray's node agent and with a real kubelet.

The driver sets CPUs over NRI, which containerd has from 1.7 on.
"""

import json
import os
import re
import tempfile
import time
from pathlib import Path

import pytest

from dray.api.cpuset import parse_cpu_list
from tests.e2e import containerd
from tests.e2e.containerd import IMAGE, Containerd
from tests.e2e.processes import DRAY, Process
from tests.peer.binaries import why_not
from tests.peer.test_real_kubelet import NODE, RealNode

pytestmark = pytest.mark.torture

CLASSES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.cpu}
spec: {selectors: [{cel: {expression: device.driver == "dra.cpu"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.memory}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.memory" && !device.attributes["dra.memory"].hugeTLB'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-cpu}
spec:
  spec:
    devices:
      requests:
      - {name: cpus, exactly: {deviceClassName: dra.cpu, capacity: {requests: {dra.cpu/cpu: "1"}}}}
      - {name: memory, exactly: {deviceClassName: dra.memory, capacity: {requests: {dra.memory/size: 64Mi}}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  {claims}
  containers:
  - name: main
    image: {image}
    imagePullPolicy: Never
    command: [sh, -c, 'env; cat /proc/self/status; echo ready; while :; do :; done']
    env: {env}
    resources: {resources}
"""
CLAIMS = "resourceClaims: [{name: cpus, resourceClaimTemplateName: one-cpu}]"


class CpuNode(RealNode):
    """A node with the drivers of CPUs and memory, and a containerd that asks them."""

    def __init__(self, folder: Path, agent: str) -> None:
        super().__init__(folder)
        self.containerd = Containerd(folder / "c", folder / "cdi", has_nri=True)
        config = ("--kubeconfig", str(self.kubeconfig), "--node-name", NODE, "--cdi-dir", str(folder / "cdi"))
        nri = ("--nri-socket", str(folder / "c/nri.sock"))
        root = ("--kubelet-root", str(self.root))
        self.driver = Process(folder, "cpu", "driver", "cpu", *config, *root, *nri, "--reserved-cpus", "0")
        memory = Process(folder, "memory", "driver", "memory", *config, *root, *nri)
        self.drivers = (self.driver, memory)
        for driver in self.drivers:
            # As in the DaemonSet: root, with no right of root beyond its own files.
            driver.program = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *DRAY)
        if agent == "dray":
            runtime = ("--runtime", f"cri://{self.containerd.socket}", "--healthz-port", "0")
            self.kubelet = Process(folder, "kubelet", "kubelet", *config, "--root-dir", str(self.root), *runtime)

    def start_pod(self, name: str, *, claims: str = "", env: str = "[]") -> None:
        resources = "{claims: [{name: cpus}]}" if claims else "{}"
        text = POD.format(name=name, image=IMAGE, claims=claims, env=env, resources=resources)
        self.kubectl("apply", "-f", "-", text=text)
        self.wait(lambda: "ready" in self.kubectl("logs", name, check=False), f"output of {name}")

    def logs(self) -> str:
        return super().logs() + self.kubectl("get", "pods,resourceclaims,events", "-o", "wide", check=False)

    def pid(self, name: str) -> int:
        """The process of the pod's container, on the machine."""
        id_ = self.container(name)[0].removeprefix("containerd://")
        tasks = dict(line.split()[:2] for line in self.containerd.ctr("tasks", "ls").stdout.splitlines()[1:])
        return int(tasks[id_])

    def allowed(self, name: str) -> set[int]:
        return _status(Path(f"/proc/{self.pid(name)}/status").read_text(), "Cpus_allowed_list")

    def ran_on(self, name: str, seconds: float) -> set[int]:
        """The CPUs on which the pod's process was seen."""
        stat = Path(f"/proc/{self.pid(name)}/stat")
        seen, until = set(), time.monotonic() + seconds
        while time.monotonic() < until:
            seen.add(int(stat.read_text().rpartition(")")[2].split()[36]))
            time.sleep(0.002)
        return seen


def _status(text: str, field: str) -> set[int]:
    return parse_cpu_list(re.search(rf"^{field}:\s*(\S+)$", text, re.MULTILINE)[1])


@pytest.fixture(params=["dray", "kubernetes"])
def node(request):
    if missing := (request.param == "kubernetes" and why_not("kubelet")) or containerd.why_not_1_7():
        pytest.skip(missing)
    if os.cpu_count() < 2:
        pytest.skip("this machine has only one CPU")
    with tempfile.TemporaryDirectory(prefix="dray-u", ignore_cleanup_errors=True) as name:
        node = CpuNode(Path(name), request.param)
        try:
            node.start()
            node.kubectl("apply", "-f", "-", text=CLASSES)
            yield node
        finally:
            node.stop()


def test_a_claimed_cpu_has_one_user_whatever_is_killed(node: CpuNode) -> None:
    everything = set(range(os.cpu_count()))
    node.start_pod("early")
    assert node.allowed("early") == everything

    node.start_pod("pinned", claims=CLAIMS)
    output = node.kubectl("logs", "pinned")
    (mine,) = _status(output, "Cpus_allowed_list")
    assert _status(output, "Mems_allowed_list") == {0}
    rest = everything - {mine}
    assert (node.allowed("early"), node.allowed("pinned")) == (rest, {mine})
    assert mine not in node.ran_on("early", 2.0)
    assert node.ran_on("pinned", 1.0) == {mine}
    grant = re.search(r"^(DRA_CPU_GRANT_\w+)=", output, re.MULTILINE)[1]
    forged = [{"name": grant, "value": "x" * 32}, {"name": grant.replace("CPU_GRANT", "CPUSET"), "value": str(mine)}]
    node.start_pod("late", env=json.dumps(forged))
    assert node.allowed("late") == rest, "a variable in a pod's spec gives no CPUs"

    node.driver.kill()
    node.start_pod("meanwhile")
    node.driver.start()
    node.wait(lambda: node.allowed("meanwhile") == rest, "the driver to see to a container that came while it was away")
    assert node.allowed("pinned") == {mine}

    node.containerd.restart()
    node.containerd.ctr(
        "tasks", "kill", "--signal", "SIGKILL", node.container("pinned")[0].removeprefix("containerd://")
    )
    node.wait(lambda: node.container("pinned")[1] == 1 and node.pid("pinned"), "the container to be started again")
    node.wait(lambda: node.allowed("pinned") == {mine}, "its CPU")

    node.kubectl("delete", "pod", "pinned")
    node.wait(lambda: node.allowed("early") == everything, "the CPU to be given back")
    assert node.allowed("meanwhile") == everything
