"""The Node object of this machine, and the lease that says it is alive."""

import logging
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from dray import __version__
from dray.api.core import Lease, LeaseSpec, Node, Taint
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.quantity import Quantity
from dray.client import LEASES, NODES, STRATEGIC_PATCH, ApiError, Client
from dray.clock import rfc3339, rfc3339_micro
from dray.features import FeatureGates

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40
RENEW_EVERY_S = 10.0
MAX_PODS = 110


def declared_features(gates: FeatureGates) -> tuple[str, ...]:
    """What the scheduler must know that this agent does, by the names of the gates."""
    return tuple(each for each in ("DRANodeAllocatableResources", "DRAOptionalNodeOperations") if gates.enabled(each))


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """Name, address, labels, taints and capacity of a node."""

    name: str
    capacity: Mapping[str, Quantity]
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    port: int = 0
    runtime: str = "process"
    declared_features: tuple[str, ...] = ()
    # Set when the node is made, and left alone from then on.
    taints: tuple[Taint, ...] = ()

    @classmethod
    def simple(cls, name: str, cpu: str, memory: str, pods: int = MAX_PODS) -> "NodeDescription":
        """A node of round numbers, for clusters that exist on paper."""
        amounts = {"cpu": cpu, "memory": memory, "pods": str(pods)}
        capacity = {resource: Quantity.parse(text) for resource, text in amounts.items()}
        return cls(name, capacity, declared_features=("DRANodeAllocatableResources",), runtime="none")


def machine_capacity() -> dict[str, Quantity]:
    """cpu, memory and pods of the machine this runs on."""
    pages, page_size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    capacity = {
        "cpu": Quantity.parse(str(os.cpu_count() or 1)),
        "memory": Quantity.parse(f"{pages * page_size // 1024}Ki"),
        "pods": Quantity.parse(str(MAX_PODS)),
    }
    for folder in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB"):
        size_kib = int(folder.name.removeprefix("hugepages-").removesuffix("kB"))
        count = int((folder / "nr_hugepages").read_text())
        name = (
            f"hugepages-{size_kib // 1024}Mi" if size_kib < 1024 * 1024 else f"hugepages-{size_kib // 1024 // 1024}Gi"
        )
        capacity[name] = Quantity.parse(f"{size_kib * count}Ki")
    return capacity


def available_memory() -> int:
    """Bytes that processes of this machine could still get without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def _architecture() -> str:
    """As Kubernetes names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def node_document(description: NodeDescription) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": description.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _architecture(),
        **description.labels,
    }
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": description.name, "labels": labels}}
    if description.taints:
        document["spec"] = {"taints": to_builtins(description.taints)}
    return document


ENOUGH_MEMORY = ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
LITTLE_MEMORY = ("MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")


def status_document(
    description: NodeDescription, now: str, problem: str = "", *, has_memory_pressure: bool = False
) -> dict[str, Any]:
    """`problem`: why the node cannot run pods now."""
    amounts = {name: str(quantity) for name, quantity in description.capacity.items()}
    conditions = [
        LITTLE_MEMORY if has_memory_pressure else ENOUGH_MEMORY,
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "False", "KubeletNotReady", problem)
        if problem
        else ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    document: dict[str, Any] = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status, reason, message in conditions
        ],
        "addresses": [
            {"type": "InternalIP", "address": description.address},
            {"type": "Hostname", "address": description.name},
        ],
        "nodeInfo": _node_info(description.runtime),
    }
    if description.port:
        document["daemonEndpoints"] = {"kubeletEndpoint": {"Port": description.port}}
    if description.declared_features:
        document["declaredFeatures"] = sorted(description.declared_features)
    return document


@lru_cache(maxsize=8)
def _node_info(runtime: str) -> dict[str, str]:
    return {
        "machineID": _first_line("/etc/machine-id"),
        "systemUUID": "",
        "bootID": _first_line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _os_image(),
        "containerRuntimeVersion": runtime if "://" in runtime else f"{runtime}://{__version__}",
        "kubeletVersion": f"v1.37.0+dray-{__version__}",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().split("\n")[0]
    except OSError:
        return ""


def _os_image() -> str:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return socket.gethostname()
    names = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return names[0] if names else "Linux"


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def has_memory_pressure(node: Node) -> bool:
    return any(each.type == "MemoryPressure" and each.status == "True" for each in node.status.conditions)


class NodeRegistration:
    """Keeps the Node object and its lease."""

    def __init__(self, client: Client, description: NodeDescription, renew_every_s: float = RENEW_EVERY_S) -> None:
        self._client = client
        self._description = description
        self._renew_every_s = renew_every_s
        self._lease: Lease | None = None
        self._node: Node | None = None
        # Why the node cannot run pods now; told with the next report.
        self.problem = ""
        self.has_memory_pressure = False

    async def register(self) -> Node:
        """Create the Node with its status in one write, or take it over with the labels of now; report it ready."""
        description = self._description
        document = node_document(description)
        status = self._status()
        try:
            self._node = await self._client.create(NODES, {**document, "status": status})
            return self._node
        except ApiError as error:
            if not error.is_already_exists:
                raise
            labels = {"metadata": {"labels": document["metadata"]["labels"]}}
            await self._client.patch(NODES, description.name, labels, patch_type=STRATEGIC_PATCH)
        self._node = await self._report()
        return self._node

    async def _report(self) -> Node:
        return await self._client.patch(
            NODES, self._description.name, {"status": self._status()}, patch_type=STRATEGIC_PATCH, subresource="status"
        )

    def _status(self) -> dict[str, Any]:
        now = rfc3339(self._client.clock.now())
        return status_document(self._description, now, self.problem, has_memory_pressure=self.has_memory_pressure)

    async def refreshed(self) -> Node:
        """The Node as the API has it; reported again if it is ready by now, or not any more, or was taken for dead."""
        node = await self._client.get(NODES, self._description.name)
        is_told = is_ready(node) is not bool(self.problem) and has_memory_pressure(node) is self.has_memory_pressure
        self._node = node if is_told else await self._report()
        return self._node

    async def renew(self) -> None:
        """One heartbeat of the registered node: the lease is renewed, or made if it is not there."""
        assert self._node is not None, "register the node first"
        node = self._node
        now = rfc3339_micro(self._client.clock.now())
        spec = LeaseSpec(
            holder_identity=self._description.name,
            lease_duration_seconds=max(LEASE_DURATION_S, int(self._renew_every_s * 4)),
            renew_time=now,
        )
        try:
            if self._lease is None:
                self._lease = await self._client.find(LEASES, self._description.name, LEASE_NAMESPACE)
            if self._lease is None:
                owner = OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
                metadata = ObjectMeta(name=self._description.name, namespace=LEASE_NAMESPACE, owner_references=(owner,))
                self._lease = await self._client.create(LEASES, Lease(metadata=metadata, spec=spec))
            else:
                self._lease = await self._client.update(LEASES, Lease(metadata=self._lease.metadata, spec=spec))
        except ApiError as error:
            self._lease = None
            if not (error.is_conflict or error.is_not_found or error.is_already_exists):
                log.warning("lease of node %s: %s", self._description.name, error)
