"""`dray explain`, `cel`, `devices` and `top` as a user runs them: a process each, against a cluster of 500 nodes with 104,000 devices.

A row has the elapsed time of the best of some runs, which has the limit, then its processor time and that of the server meanwhile, and the time
that the command takes to load. Python keeps what it has compiled: without that, each run would compile the commands again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from report import Report

NODES = 500
RUNS = 5
LIMIT_S = 0.5
READY_S = 300.0
DRIVER = "gpu.example.com"
NO_SUCH_MODEL = f'device.attributes["{DRIVER}"].model == "none"'
# Waiting pods and their requests: more partitions than a node has room for, and a model that nobody publishes.
WAITING: dict[str, tuple[dict[str, Any], ...]] = {
    "too-many": ({"count": 32},) * 3,
    "wrong-model": ({"count": 30, "selectors": [{"cel": {"expression": NO_SUCH_MODEL}}]},),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "explain a pod that wants too much": ("explain", "pod/too-many"),
    "explain a pod with a wrong selector": ("explain", "pod/wrong-model"),
    "cel": ("cel", NO_SUCH_MODEL),
    "devices": ("devices",),
    "top": ("top", "--once"),
}


def run(report: Report, nodes: int = NODES, runs: int = RUNS) -> None:
    with tempfile.TemporaryDirectory(prefix="dray-tools-") as folder, _cluster(Path(folder), nodes) as cluster:
        for document in _objects():
            cluster.apply(document)
        for name, arguments in COMMANDS.items():
            best = min((cluster.run(*arguments) for _ in range(runs)), key=lambda each: each.elapsed_s)
            report.record(name, best.elapsed_s, "s", LIMIT_S)
            report.record(f"{name}: processor time", best.own_s, "s")
            report.record(f"{name}: of the server", best.server_s, "s")
            loaded = min((cluster.run(arguments[0], "--help") for _ in range(runs)), key=lambda each: each.own_s)
            report.record(f"{name}: to load", loaded.own_s, "s")


@dataclass(frozen=True, slots=True)
class Taken:
    elapsed_s: float
    own_s: float
    server_s: float


@dataclass(frozen=True, slots=True)
class ToolCluster:
    server: int
    kubeconfig: Path

    def run(self, *arguments: str) -> Taken:
        """Exit code 1 is an answer, too: the pod waits, nothing matches."""
        place = () if "--help" in arguments else ("--kubeconfig", str(self.kubeconfig))
        begun, own, server = time.perf_counter(), _children_s(), _process_s(self.server)
        done = subprocess.run([*_dray(), *arguments, *place], capture_output=True, env=_environment(), check=False)
        assert done.returncode in (0, 1), done.stderr.decode()
        return Taken(time.perf_counter() - begun, _children_s() - own, _process_s(self.server) - server)

    def apply(self, document: dict[str, Any]) -> None:
        subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), "apply", "-f", "-"],
            input=msgspec.json.encode(document), capture_output=True, check=True,
        )  # fmt: skip


@contextmanager
def _cluster(folder: Path, nodes: int) -> Iterator[ToolCluster]:
    ready, kubeconfig = folder / "ready", folder / "kubeconfig"
    places = ("--data", folder / "data", "--kubeconfig", kubeconfig, "--ready-file", ready)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*_dray(), "up", "--nodes", str(nodes), "--devices", "gpu", *map(str, places)],
            stdout=log, stderr=log, env=_environment(),
        )  # fmt: skip
    try:
        end = time.monotonic() + READY_S
        while not ready.exists():
            assert server.poll() is None and time.monotonic() < end, (folder / "log").read_text()  # noqa: PT018
            time.sleep(0.1)
        yield ToolCluster(server.pid, kubeconfig)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _dray() -> tuple[str, ...]:
    return (sys.executable, "-m", "dray")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _process_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _objects() -> list[dict[str, Any]]:
    """A class, and two pods that wait for devices of it."""
    resource = "resource.k8s.io/v1"
    of_driver = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    found = [_named(resource, "DeviceClass", DRIVER, {"selectors": [of_driver]})]
    for pod, wanted in WAITING.items():
        requests = [
            {"name": f"gpus-{number}", "exactly": {"deviceClassName": DRIVER, **each}}
            for number, each in enumerate(wanted)
        ]
        found.append(_named(resource, "ResourceClaimTemplate", pod, {"spec": {"devices": {"requests": requests}}}))
        containers = [{"name": "main", "image": "busybox"}]
        claims = [{"name": "gpus", "resourceClaimTemplateName": pod}]
        found.append(_named("v1", "Pod", pod, {"containers": containers, "resourceClaims": claims}))
    return found


def _named(api_version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} if kind == "DeviceClass" else {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
