"""Each etcd member in a network namespace of its own, so that any two of them, or one and the servers, can be kept from each other.

Packets vanish without a word, in one direction or in both, as with a pulled cable or a wrong rule in a firewall. Only root can do that.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess

ROUTER = 254


class MemberNetwork:
    """A bridge with one address for all servers and one for each member."""

    def __init__(self, size: int) -> None:
        chance = random.SystemRandom()
        self._subnet = f"10.{chance.randrange(100, 250)}.{chance.randrange(256)}"
        self._bridge = f"dt{os.getpid()}"
        self._size = size

    def address(self, index: int) -> str:
        return f"{self._subnet}.{index + 1}"

    @property
    def servers(self) -> str:
        """The address from which everything outside the namespaces comes."""
        return f"{self._subnet}.{ROUTER}"

    def namespace(self, index: int) -> str:
        return f"{self._bridge}n{index}"

    def start(self) -> bool:
        """False where that is not allowed."""
        if os.geteuid() != 0 or shutil.which("ip") is None or not _ip("link", "add", self._bridge, "type", "bridge"):
            return False
        done = _ip("address", "add", f"{self.servers}/24", "dev", self._bridge)
        done = done and _ip("link", "set", self._bridge, "up")
        done = done and all(self._add(index) for index in range(self._size))
        if not done:
            self.stop()
        return done

    def _add(self, index: int) -> bool:
        name, outer, inner = self.namespace(index), f"{self._bridge}o{index}", f"{self._bridge}i{index}"
        return (
            _ip("netns", "add", name)
            and _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            and _ip("link", "set", outer, "master", self._bridge, "up")
            and _ip("-n", name, "address", "add", f"{self.address(index)}/24", "dev", inner)
            and _ip("-n", name, "link", "set", inner, "up")
            and _ip("-n", name, "link", "set", "lo", "up")
        )

    def stop(self) -> None:
        for index in range(self._size):
            _ip("netns", "delete", self.namespace(index))
        _ip("link", "delete", self._bridge)

    def cut(self, index: int, address: str) -> None:
        """Nothing that this member sends reaches that address."""
        done = _ip("-n", self.namespace(index), "route", "replace", "blackhole", f"{address}/32")
        assert done, f"{self.namespace(index)} cannot be kept from {address}"

    def heal(self) -> None:
        for index in range(self._size):
            _ip("-n", self.namespace(index), "route", "flush", "type", "blackhole")


def _ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0
