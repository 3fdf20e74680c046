"""Parts of a cluster as real processes, for tests that kill and restart them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import urllib3

from tests.apiserver.exchanges import Server
from tests.waiting import eventually_blocking

DRAY = (sys.executable, "-m", "dray")


class Process:
    """One `dray` command; its output goes to a file."""

    program: tuple[str, ...] = DRAY

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.program, *self.arguments], stdout=output, stderr=output, start_new_session=True
            )

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        try:
            os.kill(self._process.pid, number)
            self._process.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """As a power cut would."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class ClusterOfProcesses:
    """API server, controllers, scheduler, one node agent and drivers, each a process of its own."""

    def __init__(
        self,
        folder: Path,
        port: int,
        drivers: tuple[str, ...] = ("gpu",),
        kubelet_options: tuple[str, ...] = (),
        driver_options: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.node_root = folder / "n"
        self.cdi = folder / "cdi"
        self._ready = folder / "ready"
        self._server: Server | None = None
        config = ("--kubeconfig", str(self.kubeconfig))
        node = ("--node-name", "worker")
        self.apiserver = Process(
            folder,
            "apiserver",
            "apiserver",
            "--listen",
            f"127.0.0.1:{port}",
            "--data",
            str(folder / "data"),
            *config,
            "--ready-file",
            str(self._ready),
        )
        self.controllers = Process(
            folder, "controllers", "controller-manager", *config, "--secure-port", "0", "--no-leader-elect"
        )
        self.scheduler = Process(folder, "scheduler", "scheduler", *config, "--secure-port", "0", "--no-leader-elect")
        self.kubelet = Process(
            folder,
            "kubelet",
            "kubelet",
            *config,
            *node,
            "--root-dir",
            str(self.node_root),
            "--cdi-dir",
            str(self.cdi),
            "--healthz-port",
            "0",
            *kubelet_options,
        )
        self.drivers = {
            name: Process(
                folder,
                f"driver-{name}",
                "driver",
                name,
                *config,
                *node,
                "--kubelet-root",
                str(self.node_root),
                "--cdi-dir",
                str(self.cdi),
                *driver_options,
            )
            for name in drivers
        }

    @property
    def parts(self) -> list[Process]:
        return [self.apiserver, self.controllers, self.scheduler, self.kubelet, *self.drivers.values()]

    def start(self) -> None:
        self.start_apiserver()
        self.controllers.start()
        self.scheduler.start()
        self.kubelet.start()
        wait_until(lambda: self.ask("/api/v1/nodes/worker"), "the node to register", self)
        for driver in self.drivers.values():
            driver.start()

    def start_apiserver(self) -> None:
        self._ready.unlink(missing_ok=True)
        self.apiserver.start()
        wait_until(self._ready.exists, "the API server to be ready", self)

    def stop(self) -> None:
        for part in reversed(self.parts):
            part.stop()
        for state in self.node_root.glob("pods/*/containers/*/state.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.killpg(json.loads(state.read_text())["pid"], signal.SIGKILL)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}\n{self.logs()}")
        return done.stdout if done.returncode == 0 else done.stderr

    def ask(self, path: str) -> dict[str, Any]:
        """The document at a path of the API, empty if there is none now. For asking often: kubectl takes its time to start."""
        if self._server is None:
            self._server = Server(self.kubeconfig)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
                answer = self._server.pool.request("GET", self._server.url + path)
        except urllib3.exceptions.HTTPError:
            return {}
        return answer.json() if answer.status == 200 else {}

    def logs(self) -> str:
        return "\n".join(f"--- {part.name}\n{part.log.read_text()[-1500:]}" for part in self.parts if part.log.exists())


def wait_until(holds, what: str, cluster: ClusterOfProcesses, timeout_s: float = 40.0) -> None:
    eventually_blocking(holds, lambda: f"{what}\n{cluster.logs()}", timeout_s)
