"""Claims for interfaces as the kit hands them to the driver, and processes in namespaces of their own that stand for containers."""

import re
import subprocess
import sys
from pathlib import Path

from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.driver import AllocatedDevice, ClaimReference, ClaimToPrepare, DeviceConfig
from dray.driver.net.devices import Choice
from dray.driver.net.links import read_links

WHOLE = Choice(include=("eth*",), exclude=("*-port",))
SHARED = Choice(include=("eth*",), exclude=("*-port",), shared=("eth2", "br0"))


def claim_for(*devices: AllocatedDevice, uid: str = "uid-1") -> ClaimToPrepare:
    metadata = ObjectMeta(name=f"claim-{uid}", namespace="default", uid=uid)
    return ClaimToPrepare(ClaimReference("default", metadata.name, uid), devices, ResourceClaim(metadata=metadata))


def device(name: str, parameters: dict | None = None, *, bandwidth: str = "", share: str = "") -> AllocatedDevice:
    return AllocatedDevice(
        request="net",
        pool="n",
        device=name,
        share_id=share or None,
        consumed_capacity={"bandwidth": Quantity.parse(bandwidth)} if bandwidth else {},
        config=(DeviceConfig("FromClaim", parameters),) if parameters is not None else (),
    )


class Pod:
    """A process in a network namespace of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep 1000"], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.pid = self._process.pid

    def run(self, *command: str, check: bool = True) -> str:
        words = ["nsenter", "--target", str(self.pid), "--net", *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done.stdout

    def ip(self, *arguments: str) -> str:
        return self.run("ip", *arguments)

    def interfaces(self) -> set[str]:
        return set(re.findall(r"^\d+: ([^:@]+)", self.ip("-o", "link"), re.MULTILINE))

    def start_container(self, edits) -> None:
        """What a runtime does before the command of a container: the hooks, with its state."""
        for hook in edits.hooks:
            state = f'{{"ociVersion": "1.0.2", "id": "c", "status": "created", "pid": {self.pid}, "bundle": "/"}}'
            environment = dict(entry.split("=", 1) for entry in hook.env)
            done = subprocess.run(
                [hook.path, *hook.args[1:]], input=state, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise HookFailed(done.stderr.strip())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class HookFailed(Exception):
    """What a user reads when a container does not start."""


def state_of(namespace) -> dict[str, tuple]:
    """All that an administrator could tell of the interfaces of a namespace, without counters and numbers of the kernel."""
    links = {
        link.name: (link.type, link.mac, link.mtu, link.is_up, link.alias, link.ipv4, link.ipv6)
        for link in read_links(Path(namespace.path))
    }
    routes = sorted(line.strip() for line in namespace.ip("route").splitlines())
    return {**links, "routes": tuple(re.sub(r" linkdown", "", line) for line in routes)}


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


def echoed(sender: Pod, receiver: Pod, address: str) -> str:
    """What the sender gets back from the receiver at this address."""
    inside = ["nsenter", "--target", str(receiver.pid), "--net", sys.executable, "-c", ECHO]
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as answering:
        assert answering.stdout is not None
        answering.stdout.readline()
        return sender.run(sys.executable, "-c", ASK, address)


def measured_mbit(sender: Pod, receiver: Pod, address: str, seconds: float = 2.0) -> float:
    """What one TCP connection carries, as the receiver counts it."""
    inside = ["nsenter", "--target", str(receiver.pid), "--net", sys.executable, "-c", RECEIVE]
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        receiving.stdout.readline()
        sender.run(sys.executable, "-c", SEND, address, str(seconds))
        return float(receiving.stdout.read())
