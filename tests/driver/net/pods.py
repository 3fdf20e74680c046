"""Claims for interfaces as the kit hands them to the driver, and processes in namespaces of their own that stand for containers."""

import re
import subprocess
from pathlib import Path

from tests.driver.net.namespaces import Namespace

from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.driver import AllocatedDevice, ClaimReference, ClaimToPrepare, DeviceConfig
from dray.driver.net.devices import InterfaceChoice
from dray.driver.net.links import read_links

WHOLE = InterfaceChoice(include=("eth*",), exclude=("*-port",))
SHARED = InterfaceChoice(include=("eth*",), exclude=("*-port",), shared=("eth2", "br0"))


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


class Pod(Namespace):
    """A process in a network namespace of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep 1000"], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.pid = self._process.pid
        super().__init__(Path(f"/proc/{self.pid}/ns/net"))

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
