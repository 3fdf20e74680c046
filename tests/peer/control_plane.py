"""A control plane of Dray's parts and Kubernetes' parts, in any mix."""

import subprocess
from pathlib import Path

import urllib3

from tests.apiserver.exchanges import Server
from tests.e2e.processes import Process
from tests.e2e.test_processes import free_port
from tests.peer.binaries import Binary
from tests.waiting import eventually_blocking

GATES = ",".join(
    f"{gate}=true"
    for gate in (
        "AllBeta",
        "DRANodeAllocatableResources",
        "DRAResourcePoolStatus",
        "DRAPartitionableDevicesType",
        "DRAListTypeAttributes",
    )
)
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{token: admintoken}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 5000}}
"""
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class ControlPlane:
    """`mix` has a letter each for API server, scheduler and controllers: D for Dray's, K for Kubernetes'."""

    def __init__(self, folder: Path, mix: str) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._parts: list[Process] = []
        self._mix = mix
        self._port = free_port()

    def start(self) -> None:
        api, scheduler, controllers = self._mix
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        if api == "K":
            self._start_kubernetes_api(key)
        else:
            self._start_dray_api()
        self._start(self._dray_controllers() if controllers == "D" else self._kubernetes_controllers(key))
        self._start(self._dray_scheduler() if scheduler == "D" else self._kubernetes_scheduler())

    def stop(self) -> None:
        for part in reversed(self._parts):
            part.stop()

    def logs(self) -> str:
        return "\n".join(f"--- {part.name}\n{part.log.read_text()[-1500:]}" for part in self._parts)

    def _start(self, part: Process) -> None:
        self._parts.append(part)
        part.start()

    # --- API servers

    def _start_dray_api(self) -> None:
        ready = self.folder / "ready"
        options = ["--listen", f"127.0.0.1:{self._port}", "--data", str(self.folder / "data")]
        options += ["--kubeconfig", str(self.kubeconfig), "--ready-file", str(ready)]
        self._start(Process(self.folder, "apiserver", "apiserver", *options, "--runtime-config", "api/all=true"))
        eventually_blocking(ready.exists, self.logs, 60)

    def _start_kubernetes_api(self, key: Path) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        store = ["--data-dir", str(self.folder / "etcd"), "--client-url", client, "--peer-url", peer]
        self._start(Binary(self.folder, "etcd", "etcd", *store))
        tokens = self.folder / "tokens.csv"
        tokens.write_text("admintoken,admin,admin,system:masters\n")
        self.kubeconfig.write_text(KUBECONFIG.format(port=self._port))
        options = {
            "etcd-servers": client,
            "secure-port": self._port,
            "bind-address": "127.0.0.1",
            "cert-dir": self.folder / "certificates",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "token-auth-file": tokens,
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "runtime-config": "api/all=true",
            "feature-gates": GATES,
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        self._start(Binary(self.folder, "apiserver", "kube-apiserver", *flags))
        eventually_blocking(self._is_ready, self.logs, 120)

    def _is_ready(self) -> bool:
        server = Server(self.kubeconfig)
        headers = {"Authorization": f"Bearer {server.token}"}
        try:
            return server.pool.request("GET", f"{server.url}/readyz", headers=headers, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    # --- the others

    def _dray_controllers(self) -> Process:
        options = ["--kubeconfig", str(self.kubeconfig), "--no-leader-elect", "--secure-port", "0"]
        return Process(self.folder, "controllers", "controller-manager", *options)

    def _kubernetes_controllers(self, key: Path) -> Process:
        options = {
            "kubeconfig": self.kubeconfig,
            "secure-port": free_port(),
            "leader-elect": "false",
            "kube-api-qps": 5000,
            "kube-api-burst": 5000,
            "service-account-private-key-file": key,
            # Nobody sends heartbeats for the nodes of these tests.
            "controllers": "*,-node-lifecycle-controller",
            "feature-gates": "AllBeta=true",
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        return Binary(self.folder, "controllers", "kube-controller-manager", *flags)

    def _dray_scheduler(self) -> Process:
        options = ["--kubeconfig", str(self.kubeconfig), "--no-leader-elect", "--secure-port", "0"]
        return Process(self.folder, "scheduler", "scheduler", *options)

    def _kubernetes_scheduler(self) -> Process:
        config = self.folder / "scheduler.yaml"
        config.write_text(SCHEDULER.format(kubeconfig=self.kubeconfig))
        flags = [f"--config={config}", f"--secure-port={free_port()}", f"--feature-gates={GATES}"]
        return Binary(self.folder, "scheduler", "kube-scheduler", *flags)
