"""The controllers on the embedded server: pods with claim templates get their claims, live and go."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from report import Report

from dray.api.core import Pod
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client import (
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    TEMPLATES,
    Answer,
    Call,
    Client,
    Informers,
    InProcessTransport,
)
from dray.controllers.claims import ClaimController
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import ControllerManager
from dray.store.sqlite import SqliteStore

PODS_MADE = 2000
LIVES = 300
ROUNDS = 3
AT_ONCE = 16
FINALIZER = "resource.kubernetes.io/delete-protection"


class Counting:
    """Counts the writes that pass."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.calls = 0
        self.writes = 0

    async def request(self, call: Call) -> Answer:
        self.calls += 1
        self.writes += call.method != "GET"
        return await self._inner.request(call)


@dataclass(frozen=True, slots=True)
class Round:
    seconds: float
    processor_seconds: float
    writes_per_pod: float
    idle_requests: int


def run(report: Report) -> None:
    """The best of a few rounds counts: the rest is what else the machine was doing."""
    rounds = [_round() for _ in range(ROUNDS)]
    best = min(rounds, key=lambda item: item.seconds)
    report.record(f"claims for {PODS_MADE} pods from templates", round(best.seconds, 2), "s", limit=5.0)
    report.record(f"claims for {PODS_MADE} pods, processor time", round(best.processor_seconds, 2), "s")
    most = max(item.writes_per_pod for item in rounds)
    report.record("writes per pod with one template", round(most, 3), "writes", limit=2.0)
    report.record(
        "requests of an idle claim controller", max(item.idle_requests for item in rounds), "requests", limit=0
    )

    lives = [_life() for _ in range(ROUNDS)]
    report.record("a pod's life, all controllers, processor time", round(min(item[0] for item in lives), 2), "ms")
    report.record("writes in a pod's life", round(min(item[1] for item in lives), 2), "writes", limit=5.0)
    report.record("reads in a pod's life", round(min(item[2] for item in lives), 2), "reads", limit=0.1)


def _life() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_lives(Path(directory)))


def _round() -> Round:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_claims_from_templates(Path(directory)))


async def _claims_from_templates(directory: Path) -> Round:
    store = SqliteStore(directory / "state.db")
    running = await start_server(store, ServerOptions(directory))
    transport = InProcessTransport(running.server.handle, partial(Request, user=LOOPBACK))
    client, wire = Client(transport), Counting(transport)
    await _prepare(client)
    informers = Informers(Client(wire))
    controller = ClaimController(ControllerContext(informers.client, informers))
    informers.start()
    await informers.synced()
    for number in range(PODS_MADE):
        await client.create(PODS, _pod(number))
    async with asyncio.timeout(60):
        while len(informers.of(PODS)) < PODS_MADE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    started, cpu = time.perf_counter(), time.process_time()
    working = asyncio.create_task(controller.run())
    async with asyncio.timeout(120):
        while sum(bool(pod.status.resource_claim_statuses) for pod in informers.of(PODS)) < PODS_MADE:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    await asyncio.sleep(0.2)
    before = wire.calls
    await asyncio.sleep(0.5)
    outcome = Round(seconds, cpu_seconds, wire.writes / PODS_MADE, wire.calls - before)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await informers.stop()
    await running.stop()
    await store.close()
    return outcome


async def _lives(directory: Path) -> tuple[float, float, float]:
    """Created, given claims, allocated, bound, run, deleted, collected: processor time, writes and reads for each."""
    store = SqliteStore(directory / "state.db")
    running = await start_server(store, ServerOptions(directory))
    transport = InProcessTransport(running.server.handle, partial(Request, user=LOOPBACK))
    client, wire = Client(transport), Counting(transport)
    await _prepare(client)
    await client.create(NODES, _node())
    informers = Informers(Client(wire))
    manager = ControllerManager(ControllerContext(informers.client, informers))
    working = asyncio.create_task(manager.run())
    await manager.ready.wait()
    await asyncio.sleep(1.0)  # What the controllers put into a new cluster is not a pod's cost.
    calls, writes, cpu = wire.calls, wire.writes, time.process_time()
    pods, claims = informers.of(PODS), informers.of(CLAIMS)
    for number in range(LIVES):
        await client.create(PODS, _pod(number))
    await _until(lambda: sum(bool(pod.status.resource_claim_statuses) for pod in pods) == LIVES)
    hands = asyncio.Semaphore(AT_ONCE)
    await asyncio.gather(*(_run(client, pod, hands) for pod in pods))
    await _until(lambda: all(pod.status.phase == "Running" for pod in pods))
    await asyncio.gather(*(_end(client, pod, hands) for pod in pods))
    await _until(lambda: not len(pods) and not len(claims))
    cpu, writes = time.process_time() - cpu, wire.writes - writes
    reads = wire.calls - calls - writes
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await running.stop()
    await store.close()
    return cpu / LIVES * 1000, writes / LIVES, reads / LIVES


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _run(client: Client, pod: Pod, hands: asyncio.Semaphore) -> None:
    """As a scheduler and a node agent would do it."""
    async with hands:
        name = pod.status.resource_claim_statuses[0].resource_claim_name or ""
        await client.patch(CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}}, "ns")
        claim = await client.get_document(CLAIMS, name, "ns")
        device = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": pod.metadata.name}
        user = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        claim["status"] = {"allocation": {"devices": {"results": [device]}}, "reservedFor": [user]}
        await client.update_status(CLAIMS, claim)
        await client.bind(pod, "node")
        patch = {"status": {"phase": "Running"}}
        await client.patch(PODS, pod.metadata.name, patch, "ns", subresource="status")


async def _end(client: Client, pod: Pod, hands: asyncio.Semaphore) -> None:
    async with hands:
        await client.delete(PODS, pod.metadata.name, "ns", grace_seconds=0)


def _node() -> dict[str, Any]:
    room = {"pods": str(PODS_MADE), "cpu": "1000", "memory": "1Ti"}
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready], "allocatable": room, "capacity": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": status}


async def _prepare(client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "ns"}}
    await client.create(SERVICE_ACCOUNTS, account)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "template", "namespace": "ns"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    await client.create(TEMPLATES, template)


def _pod(number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "image", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "namespace": "ns", "labels": {"app": "bench"}},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
        },
    }
