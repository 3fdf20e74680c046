"""`dray apiserver`: flags, files, start and stop."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3
from tests.apiserver.conftest import start_live, stop_live
from tests.apiserver.exchanges import Server

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dray", "apiserver", *words], capture_output=True, text=True, timeout=30
    )


def test_files_are_private_and_sigterm_ends_cleanly(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    assert stat.S_IMODE(live.kubeconfig.stat().st_mode) == 0o600
    assert live.url.startswith("https://127.0.0.1:")
    assert stop_live(live) == 0


def test_open_watches_do_not_delay_the_end(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    server = Server(live.kubeconfig)
    watches = [
        server.pool.request("GET", server.url + "/api/v1/pods?watch=true", preload_content=False) for _ in range(5)
    ]
    started = time.monotonic()
    assert stop_live(live) == 0
    assert time.monotonic() - started < 12
    assert all(watch.read() == b"" for watch in watches)


def test_objects_survive_a_restart_and_a_kill(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    server = Server(live.kubeconfig)
    body = b'{"metadata":{"name":"kept"}}'
    made = server.pool.request("POST", server.url + "/api/v1/namespaces", body=body)
    assert made.status == 201
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait(10)
    again = start_live(tmp_path)
    server = Server(again.kubeconfig)
    found = server.pool.request("GET", server.url + "/api/v1/namespaces/kept")
    assert found.json()["metadata"] == made.json()["metadata"]
    assert stop_live(again) == 0


def test_a_second_server_on_the_same_file_is_refused(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    second = run("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    assert second.returncode == 3
    assert "Error" in second.stderr
    stop_live(live)


def test_a_port_in_use(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    address = live.url.removeprefix("https://")
    second = run("--listen", address, "--data", str(tmp_path / "other"))
    assert second.returncode == 3
    stop_live(live)


@pytest.mark.parametrize(
    "words",
    [
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1:99999"),
        ("--emulate", "1.20"),
        ("--feature-gates", "NoSuchGate=true"),
        ("--feature-gates", "DRADeviceTaints=maybe"),
        ("--runtime-config", "resource.k8s.io/v9=true"),
        ("--runtime-config", "api/all=perhaps"),
        ("--unknown",),
    ],
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2, done.stderr
    assert "Error" in done.stderr


@pytest.mark.parametrize(
    ("config", "served"),
    [
        ("", ["v1"]),
        ("resource.k8s.io/v1beta1=true", ["v1", "v1beta1"]),
        ("api/beta=true", ["v1", "v1beta2", "v1beta1"]),
    ],
)
def test_runtime_config(tmp_path: Path, config: str, served: list[str]) -> None:
    live = start_live(tmp_path, "--runtime-config", config, "--emulate", "1.36")
    server = Server(live.kubeconfig)
    group = server.pool.request("GET", server.url + "/apis/resource.k8s.io").json()
    assert [entry["version"] for entry in group["versions"]] == served
    assert server.pool.request("GET", server.url + "/version").json()["minor"] == "36"
    stop_live(live)


def test_who_comes_without_credentials(tmp_path: Path) -> None:
    live = start_live(tmp_path)
    anonymous = urllib3.PoolManager(cert_reqs="CERT_NONE")
    assert anonymous.request("GET", live.url + "/healthz").status == 200
    assert anonymous.request("GET", live.url + "/api/v1/pods").status in (401, 403)
    stop_live(live)
