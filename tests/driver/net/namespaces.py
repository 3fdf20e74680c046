"""Network namespaces of the real kernel for tests: one that stands for the machine, and programs that talk from one to another."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_numbers = itertools.count()


def why_not() -> str:
    """Why no network namespaces can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "not on this machine: ip (Debian: iproute2)"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return f"the kernel makes no network namespaces: {done.stderr.strip()}" if done.returncode else ""


class Namespace:
    """A network namespace, by its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--net={self.path}", *command]

    def run(self, *command: str) -> str:
        return _run(*self.inside(*command))

    def ip(self, *arguments: str) -> str:
        return self.run("ip", *arguments)

    def interfaces(self) -> set[str]:
        return {line.split(": ")[1].partition("@")[0] for line in self.ip("-o", "link").splitlines()}


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


@contextmanager
def made_host() -> Iterator[Namespace]:
    """Stands for the machine, whose own interfaces are never touched: a bridge, and interfaces whose other ends are its ports."""
    name = f"dray-{os.getpid()}-{next(_numbers)}"
    _run("ip", "netns", "add", name)
    host = Namespace(Path("/run/netns") / name)
    try:
        host.ip("link", "add", "br0", "type", "bridge")
        for each in ("eth1", "eth2"):
            host.ip("link", "add", each, "type", "veth", "peer", "name", f"{each}-port")
            host.ip("link", "set", f"{each}-port", "master", "br0")
        for each in ("lo", "br0", "eth1-port", "eth2-port", "eth2"):
            host.ip("link", "set", each, "up")
        yield host
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


RECEIVE = """
import socket, time
with socket.create_server(("", 5001)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    connection.recv(1)
    began, received = time.monotonic(), 0
    while found := connection.recv(1 << 16):
        received += len(found)
        last = time.monotonic()
print(received * 8 / (last - began) / 1e6)
"""
SEND = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
with socket.create_connection((sys.argv[1], 5001), timeout=10) as connection:
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 14))
"""


ECHO = """
import socket
with socket.create_server(("", 5002)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    connection.sendall(connection.recv(100))
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5002), timeout=10) as connection:
    connection.sendall(b"hello")
    print(connection.recv(100).decode(), end="")
"""


def echoed(sender: Namespace, receiver: Namespace, address: str) -> str:
    """What the sender gets back from the receiver at this address."""
    inside = receiver.inside(sys.executable, "-c", ECHO)
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as answering:
        assert answering.stdout is not None
        answering.stdout.readline()
        return sender.run(sys.executable, "-c", ASK, address)


def measured_mbit(sender: Namespace, receiver: Namespace, address: str, seconds: float = 2.0) -> float:
    """What one TCP connection carries, as the receiver counts it."""
    inside = receiver.inside(sys.executable, "-c", RECEIVE)
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        receiving.stdout.readline()
        sender.run(sys.executable, "-c", SEND, address, str(seconds))
        return float(receiving.stdout.read())
