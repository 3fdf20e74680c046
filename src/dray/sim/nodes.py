"""Nodes for a cluster in one process: real agents with drivers, or simulated nodes that only report pods as running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from dray.api import codec
from dray.api.meta import OwnerReference
from dray.api.resource import ResourceSlice, ResourceSliceSpec
from dray.client import SLICES, Client
from dray.driver import Driver, DriverPaths, RunningDriver
from dray.driver.slices import Publisher, index_of, plan_pool
from dray.features import FeatureGates
from dray.kubelet.node import NodeDescription
from dray.kubelet.runtime.process import ProcessRuntime
from dray.kubelet.server import Kubelet, KubeletOptions
from dray.kubelet.simulated_kubelets import SimulatedKubelets
from dray.sim.node_pools import NodePool
from dray.telemetry import Registry

log = logging.getLogger(__name__)

# Up to here every node is a real agent with drivers of its own; beyond, nodes are simulated.
MOST_REAL_NODES = 10
WRITES_AT_ONCE = 16
REGISTRATION_LOOKS = 250


# How many nodes have all they need.
Tell = Callable[[int], None]


def _nobody(done: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class NodesOptions:
    pool: NodePool
    root: Path
    gates: FeatureGates
    cluster_ca: bytes = b""

    def descriptions(self) -> list[NodeDescription]:
        return self.pool.descriptions(self.gates)


class RealNodes:
    """Node agents with the process runtime, and one instance of every driver on each."""

    def __init__(self, client: Client, options: NodesOptions) -> None:
        self._client = client
        self._options = options
        self.kubelets: list[Kubelet] = []
        self.drivers: list[RunningDriver] = []
        # The metrics of each node's agent.
        self.registries: dict[str, Registry] = {}
        self._runtimes: list[ProcessRuntime] = []

    async def start(self, tell: Tell = _nobody) -> None:
        tell(0)
        await asyncio.gather(*(self._start_node(each) for each in self._options.descriptions()))

    async def _start_node(self, description: NodeDescription) -> None:
        # Short paths: a socket's may not be longer than 107 characters.
        root = self._options.root / description.name
        cdi_dir = root / "cdi"
        options = KubeletOptions(
            description, root, (cdi_dir,), self._options.gates, cluster_ca=self._options.cluster_ca
        )
        runtime = ProcessRuntime(root, self._client.clock)
        self._runtimes.append(runtime)
        kubelet = Kubelet(self._client.named("kubelet"), options, runtime)
        await kubelet.start()
        self.kubelets.append(kubelet)
        self.registries[f"kubelet/{description.name}"] = kubelet.metrics.registry
        paths = DriverPaths(root, cdi_dir)
        await asyncio.gather(
            *(self._start_driver(each, description.name, paths) for each in self._options.pool.make_drivers())
        )

    async def _start_driver(self, made: Driver, node_name: str, paths: DriverPaths) -> None:
        driver = RunningDriver(made, self._client.named(f"driver-{made.name}"), node_name, paths)
        self.drivers.append(driver)
        await driver.start()
        await driver.published()
        # A pod that comes now must not find a driver that its node does not know yet.
        for _ in range(REGISTRATION_LOOKS):
            if driver.server.is_registered:
                break
            await self._client.clock.sleep(0.02)

    async def stop(self) -> None:
        """End everything, containers included: their directories go away with the cluster."""
        await asyncio.gather(*(driver.stop() for driver in self.drivers))
        await asyncio.gather(*(kubelet.stop() for kubelet in self.kubelets))
        for runtime in self._runtimes:
            for uid in await runtime.known_pods():
                await runtime.stop_pod(uid)


class SimulatedNodes:
    """Nodes without processes or sockets; devices are published once, as the drivers describe them."""

    def __init__(self, client: Client, options: NodesOptions) -> None:
        self._client = client
        self._options = options
        self._descriptions = options.descriptions()
        self._kubelets = SimulatedKubelets(client.named("kubelet"), self._descriptions)
        # Simulated nodes have no agents.
        self.registries: dict[str, Registry] = {}

    async def start(self, tell: Tell = _nobody) -> None:
        """`tell` is called with the number of nodes that have all they need."""
        await self._kubelets.start()
        if not self._descriptions:
            return
        drivers = self._options.pool.make_drivers()
        templates = {each.name: PoolTemplate.of(each, self._descriptions[0].name) for each in drivers}
        existing: dict[tuple[str, str], list[ResourceSlice]] = {}
        for each in (await self._client.list(SLICES)).items:
            existing.setdefault((each.spec.driver, each.spec.node_name or ""), []).append(each)
        limit = asyncio.Semaphore(WRITES_AT_ONCE)
        done = count(1)

        async def publish(node_name: str) -> None:
            async with limit:
                owner = self._owner(node_name)
                for driver in drivers:
                    template, there = templates[driver.name], existing.get((driver.name, node_name), [])
                    if template is not None and template.is_published(node_name, there):
                        continue
                    if template is None or there:
                        await self._publish(driver, node_name, owner, there)
                        continue
                    for body in template.slices_for(node_name, owner):
                        await self._client.raw("POST", SLICES.path(), body=body)
                tell(next(done))

        await asyncio.gather(*(publish(each.name) for each in self._descriptions))

    def _owner(self, node_name: str) -> OwnerReference:
        uid = self._kubelets.uid_of(node_name)
        return OwnerReference(api_version="v1", kind="Node", name=node_name, uid=uid, controller=True)

    async def _publish(
        self, driver: Driver, node_name: str, owner: OwnerReference, existing: Sequence[ResourceSlice]
    ) -> None:
        """The node's pools, where some of them may be there already."""
        for pool in driver.pools(node_name):
            plan = plan_pool(Publisher(driver.name, node_name, owner), pool, existing)
            for each in plan.deletes:
                await self._client.delete(SLICES, each.metadata.name)
            for each in plan.updates:
                await self._client.update(SLICES, each)
            for each in plan.creates:
                await self._client.create(SLICES, each)

    async def stop(self) -> None:
        await self._kubelets.stop()


class Nodes:
    """The nodes of several pools, started and stopped together."""

    def __init__(self, parts: Sequence[RealNodes | SimulatedNodes]) -> None:
        self._parts = parts

    @property
    def kubelets(self) -> list[Kubelet]:
        return [kubelet for part in self._parts if isinstance(part, RealNodes) for kubelet in part.kubelets]

    @property
    def drivers(self) -> list[RunningDriver]:
        return [driver for part in self._parts if isinstance(part, RealNodes) for driver in part.drivers]

    @property
    def registries(self) -> dict[str, Registry]:
        return {name: registry for part in self._parts for name, registry in part.registries.items()}

    async def start(self, tell: Tell = _nobody) -> None:
        """`tell` is called with the number of nodes that have all they need."""
        done = [0] * len(self._parts)

        def tell_of(number: int, count: int) -> None:
            done[number] = count
            tell(sum(done))

        await asyncio.gather(*(part.start(partial(tell_of, number)) for number, part in enumerate(self._parts)))

    async def stop(self) -> None:
        await asyncio.gather(*(part.stop() for part in self._parts))


def make_nodes(
    client: Client, pools: Sequence[NodePool], root: Path, gates: FeatureGates, cluster_ca: bytes = b""
) -> Nodes:
    """Pools that do not say it have simulated nodes if they are too many together."""
    are_many = sum(pool.count for pool in pools if pool.simulated is None) > MOST_REAL_NODES
    return Nodes(
        [
            (SimulatedNodes if (are_many if pool.simulated is None else pool.simulated) else RealNodes)(
                client, NodesOptions(pool, root, gates, cluster_ca)
            )
            for pool in pools
        ]
    )


_SHARED = ("devices", "sharedCounters")


@dataclass(frozen=True, slots=True)
class PoolTemplate:
    """Slices as documents; what is the same on every node is in them as bytes."""

    slices: tuple[dict[str, Any], ...]
    specs: tuple[ResourceSliceSpec, ...]
    # Numbers of specs, and long lists of slices that were compared with them: lists that are equal are mostly one object.
    compared: dict[tuple[int, int, int], tuple[object, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, driver: Driver, node_name: str) -> PoolTemplate | None:
        """None for a driver that says more of a node than its name: such a driver has to be asked for each."""
        pools, others = list(driver.pools(node_name)), list(driver.pools("another-node"))
        if [replace(each, name="") for each in pools] != [replace(each, name="") for each in others]:
            return None
        if any(pool.name != node_name for pool in pools):
            return None
        publisher = Publisher(driver.name, node_name)
        planned = [each for pool in pools for each in plan_pool(publisher, pool, ()).creates]
        return cls(tuple(_template(codec.to_document(each)) for each in planned), tuple(each.spec for each in planned))

    def is_published(self, node_name: str, existing: Sequence[ResourceSlice]) -> bool:
        """Whether these slices of the node are all that there is to publish."""
        if len(existing) != len(self.specs):
            return False
        numbered = sorted(existing, key=lambda each: each.metadata.name)
        return all(
            index_of(each) == number and self._is_equal(number, each.spec, node_name)
            for number, each in enumerate(numbered)
        )

    def _is_equal(self, number: int, found: ResourceSliceSpec, node_name: str) -> bool:
        wanted = self.specs[number]
        wanted = structs.replace(wanted, node_name=node_name, pool=structs.replace(wanted.pool, name=node_name))
        key = (number, id(found.devices), id(found.shared_counters))
        if key in self.compared:
            wanted = structs.replace(wanted, devices=found.devices, shared_counters=found.shared_counters)
        if found != wanted:
            return False
        self.compared[key] = (found.devices, found.shared_counters)
        return True

    def slices_for(self, node_name: str, owner: OwnerReference) -> Iterator[bytes]:
        owners = [msgspec.to_builtins(owner)]
        for each in self.slices:
            metadata = {"generateName": f"{each['metadata']['generateName']}{node_name}-", "ownerReferences": owners}
            pool = {**each["spec"]["pool"], "name": node_name}
            spec = {**each["spec"], "nodeName": node_name, "pool": pool}
            yield msgspec.json.encode({**each, "metadata": metadata, "spec": spec})


def _template(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    encoded = {name: msgspec.Raw(msgspec.json.encode(spec[name])) for name in _SHARED if spec.get(name)}
    return {**document, "spec": {**spec, **encoded}}
