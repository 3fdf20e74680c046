"""A server with controllers in front of it, whose every step a test can bend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dray.client import CLAIMS, EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Client, Informers, Transport
from dray.clock import Clock, RealClock
from dray.controllers.context import ControllerContext
from dray.features import FeatureGates
from dray.telemetry import Registry
from tests.builders.manifests import a_namespace
from tests.controllers.builders import FINALIZER, one_device
from tests.controllers.interleaving import Interleaving
from tests.waiting import eventually

PATIENCE_S = 30.0
QUIET_WRITES = 40


class Cluster:
    """`client` is the tester's own way to the server; the controllers' goes through `wire`."""

    def __init__(self, transport: Transport, gates: FeatureGates | None = None) -> None:
        self.client = Client(transport, user_agent="test")
        self._transport = transport
        self._gates = gates or FeatureGates.default()
        self._tasks: list[asyncio.Task[None]] = []
        self._informers: list[Informers] = []
        self.wire = Interleaving(transport)
        self.registry = Registry()
        self.running: list[Any] = []

    async def start(
        self, *build: Callable[[ControllerContext], Any], gates: FeatureGates | None = None, clock: Clock | None = None
    ) -> Any:
        """Start controllers on a fresh set of informers, as after a restart; gives the (last) controller."""
        client = Client(self.wire, user_agent="controllers")
        informers = Informers(client)
        controllers_client = Client(self.wire, clock=clock or RealClock(), user_agent="controllers")
        context = ControllerContext(controllers_client, informers, gates or self._gates, self.registry)
        controllers = [make(context) for make in build]
        self._informers.append(informers)
        informers.start()
        async with asyncio.timeout(PATIENCE_S):
            await informers.synced()
        for controller in controllers:
            self._tasks.append(asyncio.create_task(controller.run(), name=controller.name))
        self.running += controllers
        return controllers[-1]

    async def prepare(self, build: Callable[[ControllerContext], Any], gates: FeatureGates | None = None) -> Any:
        """A controller with synced informers whose workers do not run: the test calls `sync` itself."""
        client = Client(self.wire, user_agent="controllers")
        informers = Informers(client)
        controller = build(ControllerContext(client, informers, gates or self._gates, self.registry))
        self._informers.append(informers)
        informers.start()
        async with asyncio.timeout(PATIENCE_S):
            await informers.synced()
        return controller

    async def crash(self) -> None:
        """The controllers die on the spot; what they wrote stays."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        informers, self._informers = self._informers, []
        for item in informers:
            await item.stop()
        self.running.clear()

    async def stop(self) -> None:
        await self.crash()

    # --- waiting

    async def eventually(self, question: Callable[[], Awaitable[Any]], patience_s: float = PATIENCE_S) -> Any:
        """The first true answer; an assertion error that shows the last one if there is none in time."""
        return await eventually(question, within_s=patience_s)

    async def later_writes(self, count: int = QUIET_WRITES) -> None:
        """Makes writes that no controller cares for. Each passes the whole server after everything that came before it."""
        reference = {"kind": "Namespace", "name": "default", "namespace": "default"}
        metadata = {"generateName": "later-", "namespace": "default"}
        for _ in range(count):
            await self.client.create(EVENTS, {"metadata": metadata, "involvedObject": reference, "reason": "Later"})

    async def quiet(self) -> None:
        """Waits until the controllers have had nothing to do during many later writes to the server."""
        calm, writes = 0, -1

        async def is_calm() -> bool:
            nonlocal calm, writes
            is_idle = all(c.queue.is_idle for c in self.running if hasattr(c, "queue"))
            calm = calm + 1 if is_idle and len(self.wire.writes) == writes else 0
            writes = len(self.wire.writes)
            await self.later_writes(1)
            return calm > QUIET_WRITES

        await eventually(is_calm, "the controllers to have nothing to do", PATIENCE_S, pause_s=0)

    # --- shorthands

    async def namespace(self, name: str = "ns", **labels: str) -> None:
        await self.client.create(NAMESPACES, a_namespace(name, **labels))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        await self.client.create(SERVICE_ACCOUNTS, account)

    async def pod(self, name: str = "pod", namespace: str = "ns") -> Any:
        return await self.client.find(PODS, name, namespace)

    async def claim(self, name: str = "claim", namespace: str = "ns") -> Any:
        return await self.client.find(CLAIMS, name, namespace)

    async def claims(self, namespace: str = "ns") -> list[Any]:
        return (await self.client.list(CLAIMS, namespace)).items

    async def recorded(self, name: str = "pod", namespace: str = "ns") -> dict[str, str | None]:
        """What the pod's status says about its claims."""
        pod = await self.pod(name, namespace)
        return {item.name: item.resource_claim_name for item in pod.status.resource_claim_statuses} if pod else {}

    async def events(self, reason: str, namespace: str = "ns") -> list[Any]:
        found = (await self.client.list(EVENTS, namespace)).items
        return [event for event in found if event.reason == reason]

    async def set_phase(self, pod: Any, phase: str) -> None:
        metadata = pod.metadata
        patch = {"status": {"phase": phase}}
        await self.client.patch(PODS, metadata.name, patch, metadata.namespace, subresource="status")

    async def allocate(
        self, name: str, *pods: Any, namespace: str = "ns", protect: bool = True, **allocation: Any
    ) -> Any:
        """What a scheduler does: finalizer first, then allocation and reservations in one status write."""
        claim = await self.client.get(CLAIMS, name, namespace)
        if protect and FINALIZER not in claim.metadata.finalizers:
            metadata = msgspec.structs.replace(claim.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER))
            claim = await self.client.update(CLAIMS, msgspec.structs.replace(claim, metadata=metadata))
        consumers = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
        document = await self.client.get_document(CLAIMS, name, namespace)
        allocation.setdefault("device", f"dev-{namespace}-{name}"[:63])
        document["status"] = {"allocation": one_device(**allocation), "reservedFor": consumers}
        return await self.client.update_status(CLAIMS, document)
