"""Following a cluster: everything first, then what changes; nothing at all while nobody looks."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.client import NODES
from dray.dashboard import page_updates as live_module
from dray.dashboard.page_updates import (
    MOST_BEHIND,
    ClusterUpdates,
    PageStream,
    SharedUpdates,
)
from dray.dashboard.use_history import UseHistory
from dray.features import FeatureGates
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.pod_explanation import explain_live_pods
from tests.builders.manifests import a_node
from tests.waiting import eventually

GATES = FeatureGates.default()


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    running = ControlPlane(ControlPlaneOptions(tmp_path, with_controllers=False, with_scheduler=False))
    await running.start()
    yield running
    await running.stop()


async def next_of(messages: AsyncIterator[bytes], event: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            head, _, data = (await anext(messages)).partition(b"\ndata: ")
            if head == f"event: {event}".encode():
                found: dict[str, Any] = json.loads(data)
                return found


async def test_everything_first_then_what_changes(plane: ControlPlane) -> None:
    client = plane.client("test")
    await client.create(NODES, a_node("n1", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    following = ClusterUpdates(client, GATES, explain_live_pods, UseHistory())
    following.start()
    messages = following.follow()
    assert list((await next_of(messages, "snapshot"))["nodes"]) == ["n1"]
    await client.create(NODES, a_node("n2", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    delta = await next_of(messages, "delta")
    assert list(delta) == ["nodes"]
    assert delta["nodes"]["n2"]["ledger"][0][:2] == ["cpu", "4"]
    await client.delete(NODES, "n1")
    assert (await next_of(messages, "delta"))["nodes"] == {"n1": None}
    # Who comes later starts with all of it.
    assert list((await next_of(following.follow(), "snapshot"))["nodes"]) == ["n2"]
    await following.stop()
    assert [message async for message in messages] == []


async def test_a_change_that_changes_nothing_on_the_page_is_not_sent(plane: ControlPlane) -> None:
    client = plane.client("test")
    await client.create(NODES, a_node("n1", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    following = ClusterUpdates(client, GATES, explain_live_pods, UseHistory())
    following.start()
    messages = following.follow()
    await next_of(messages, "snapshot")
    await client.patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}})
    await client.create(NODES, a_node("n2", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    assert list((await next_of(messages, "delta"))["nodes"]) == ["n2"]
    await following.stop()


async def test_a_reader_that_is_far_behind_is_cut_off() -> None:
    follower = PageStream()
    for _ in range(MOST_BEHIND + 1):
        follower.send(b"x")
    assert follower.messages.qsize() == 1
    assert follower.messages.get_nowait() is None


async def test_nobody_looks_nothing_is_watched(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "KEEP_WATCHING_S", 0.05)

    def watches() -> int:
        return sum(len(cache.watchers) for cache in plane.running.server.core.caches())

    before = watches()
    viewing = SharedUpdates(plane.client("test"), GATES, explain_live_pods, UseHistory())
    assert watches() == before
    async with viewing.live() as first:
        await first.ready()
        assert watches() > before
    async with viewing.live() as again:
        assert again is first
    await eventually(lambda: watches() == before, "the watches to end")
    async with viewing.live() as second:
        assert second is not first
        await second.ready()
    await viewing.stop()


async def test_a_server_that_is_gone_is_reported() -> None:
    from dray.client import Client, ServerUnreachable

    class Nobody:
        async def request(self, call: object) -> object:
            raise ServerUnreachable("connection refused")

        def stream(self, call: object) -> object:
            raise ServerUnreachable("connection refused")

        async def close(self) -> None: ...

    following = ClusterUpdates(Client(Nobody()), GATES, explain_live_pods, UseHistory())  # type: ignore[arg-type]
    following.start()
    messages = following.follow()
    async with asyncio.timeout(30):
        while (status := await next_of(messages, "status"))["reachable"]:
            pass
    assert "connection refused" in status["problem"]
    await following.stop()
