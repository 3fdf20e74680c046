"""`dray simulate` and a scheduler that runs against the API server come to the same placements."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dray.api import scheme
from dray.client import (
    CLAIMS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Client,
    Informers,
)
from dray.explain.cluster_objects import ClusterObjects
from dray.scheduler.queue import QueueName
from dray.scheduler.service import SchedulerService
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.simulation import Simulation
from tests.sim.random_clusters import random_cluster
from tests.waiting import eventually

KINDS = {
    "Node": NODES,
    "Pod": PODS,
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": TEMPLATES,
    "ResourceSlice": SLICES,
    "DeviceClass": DEVICE_CLASSES,
    "PriorityClass": PRIORITY_CLASSES,
}
BUSY = (QueueName.ACTIVE, QueueName.BACKOFF, QueueName.IN_FLIGHT)
Placement = dict[str, tuple[str, tuple[str, ...]]]


async def live_and_simulated(seed: int, path: Path) -> tuple[Placement, Placement]:
    plane = ControlPlane(ControlPlaneOptions(data=path, with_scheduler=False))
    await plane.start()
    try:
        client = plane.client("test")
        await _create(client, random_cluster(seed))
        await _claims_are_made(client)
        simulation = Simulation(
            ClusterObjects.of([obj for kind in KINDS.values() for obj in (await client.list(kind)).items])
        )
        await simulation.settle()
        simulated = {
            row.pod.metadata.name: (row.pod.spec.node_name, _devices(row.claims)) for row in simulation.placed()
        }
        return await _scheduled_live(client), simulated
    finally:
        await plane.stop()


async def _create(client: Client, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        kind = KINDS[document["kind"]]
        namespace = "default" if scheme.by_kind(document["kind"]).namespaced else ""
        await client.create(kind, document, namespace)
        if document["kind"] == "Node":
            # New nodes start out tainted until their node agent reports; here they are ready at once.
            taints = document["spec"]["taints"]
            await client.patch(NODES, document["metadata"]["name"], {"spec": {"taints": taints}})


async def _claims_are_made(client: Client) -> None:
    async def are_made() -> bool:
        pods = (await client.list(PODS)).items
        return all(
            {entry.name for entry in pod.spec.resource_claims if entry.resource_claim_template_name}
            <= {row.name for row in pod.status.resource_claim_statuses}
            for pod in pods
        )

    await eventually(are_made, "claims from templates")


async def _scheduled_live(client: Client) -> Placement:
    """Everything but pods is known before the first pod is, so that pods queue up in the order of their names."""
    informers = Informers(client)
    for kind in (CLAIMS, DEVICE_CLASSES, SLICES, TAINT_RULES, NAMESPACES, NODES):
        informers.of(kind)
    informers.start()
    await informers.synced()
    service = SchedulerService(client, informers=informers)
    task = asyncio.create_task(service.run())
    await asyncio.sleep(0)
    informers.start()
    try:
        await _is_settled(service)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await informers.stop()
    claims = {claim.metadata.name: claim for claim in (await client.list(CLAIMS)).items}
    placements: Placement = {}
    for pod in (await client.list(PODS)).items:
        names = {row.name: row.resource_claim_name for row in pod.status.resource_claim_statuses}
        used = [claims[entry.resource_claim_name or names[entry.name] or ""] for entry in pod.spec.resource_claims]
        placements[pod.metadata.name] = (pod.spec.node_name, _devices(used))
    return placements


async def _is_settled(service: SchedulerService) -> None:
    await asyncio.wait_for(service.ready.wait(), 20)
    queue = service.scheduler.queue
    quiet = 0

    def is_quiet() -> bool:
        nonlocal quiet
        # An error is tried again for ever; the second time it will not go away any more.
        busy = any(entry.where in BUSY and entry.errors_in_a_row < 2 for entry in queue.waiting())
        quiet = 0 if busy or service._bindings else quiet + 1
        return quiet > 10

    await eventually(is_quiet, "the live scheduler to settle", pause_s=0.02)


def _devices(claims: Any) -> tuple[str, ...]:
    return tuple(
        f"{claim.metadata.name}: {row.request} {row.pool}/{row.device}"
        for claim in claims
        if claim.status.allocation is not None
        for row in claim.status.allocation.devices.results
    )


@pytest.fixture(autouse=True)
def one_binding_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a pod meets a shared claim that is just being written is a matter of microseconds, in Kubernetes too."""
    monkeypatch.setattr("dray.scheduler.service.MOST_BINDINGS", 1)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 198])
async def test_simulation_agrees_with_the_live_scheduler(seed: int, tmp_path: Path) -> None:
    live, simulated = await live_and_simulated(seed, tmp_path)
    assert simulated == live


@pytest.mark.torture
@pytest.mark.timeout(1800)
async def test_simulation_agrees_on_two_hundred_clusters(tmp_path: Path) -> None:
    for seed in range(100, 300):
        live, simulated = await live_and_simulated(seed, tmp_path / str(seed))
        assert simulated == live, f"cluster {seed}"
