"""The claim controller on the embedded server: pods with claim templates get their claims."""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from report import Report

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.exchange import Request
from dray.apiserver.identity import LOOPBACK
from dray.client import (
    NAMESPACES,
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
from dray.controllers.context import Context
from dray.store.sqlite import SqliteStore

PODS_MADE = 2000


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


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_claims_from_templates(report, Path(directory)))


async def _claims_from_templates(report: Report, directory: Path) -> None:
    store = SqliteStore(directory / "state.db")
    running = await start_server(store, ServerOptions(directory))
    transport = InProcessTransport(running.server.handle, partial(Request, user=LOOPBACK))
    client, wire = Client(transport), Counting(transport)
    await _prepare(client)
    informers = Informers(Client(wire))
    controller = ClaimController(Context(informers.client, informers))
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
    report.record(f"claims for {PODS_MADE} pods from templates", round(seconds, 2), "s", limit=5.0)
    report.record(f"claims for {PODS_MADE} pods, processor time", round(cpu_seconds, 2), "s")
    report.record("writes per pod with one template", round(wire.writes / PODS_MADE, 3), "writes", limit=2.0)
    await asyncio.sleep(0.2)
    before = wire.calls
    await asyncio.sleep(0.5)
    report.record("requests of an idle claim controller", wire.calls - before, "requests", limit=0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await informers.stop()
    await running.stop()
    await store.close()


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
