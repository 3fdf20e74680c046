"""The history and the events that the page gets are bounded, and a dump is read through the same client as a cluster."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from dray.api.dra.device_use import UseCounts
from dray.client import Client
from dray.dashboard.dump_transport import DumpTransport
from dray.dashboard.tables import MOST_EVENTS, Tables
from dray.dashboard.use_history import MOST_SAMPLES, UseHistory, UseSample
from dray.dashboard.watched_cluster import WatchedCluster
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.dump import Dump, add_document
from dray.features import FeatureGates
from tests.builders.manifests import a_claim, a_device, a_node, a_pod, a_result, a_slice

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_event(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{number}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Happened",
        "message": f"number {number}",
        "type": "Normal",
        "lastTimestamp": f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z",
    }


def world_of(*documents: dict[str, Any]) -> ClusterObjects:
    dump = Dump()
    for document in documents:
        problem = add_document(dump, document, None)
        assert not problem, problem
    return dump.world()


async def tables_of(world: ClusterObjects, history: UseHistory) -> Tables:
    cluster = WatchedCluster(Client(DumpTransport(world)), FeatureGates.default(), lambda: None)
    cluster.start()
    await cluster.synced()
    tables = Tables(cluster, lambda pod: None, history)
    while cluster.has_changes:
        tables.refresh()
    await cluster.stop()
    return tables


def test_a_dump_is_shown_as_a_cluster_is() -> None:
    world = world_of(
        a_node("n1", {"cpu": "8", "memory": "16Gi", "pods": "10"}),
        a_slice("s", a_device("gpu-0"), a_device("gpu-1"), node="n1", pool="n1"),
        a_claim("c", results=[a_result("gpu-0", pool="n1")]),
        a_pod("waits", claims={"gpu": "c"}),
        an_event(1),
    )
    history = UseHistory()

    async def look() -> dict[str, Any]:
        tables = await tables_of(world, history)
        tables.take_sample(NOW)
        found: dict[str, Any] = json.loads(tables.snapshot())
        return found

    shown = asyncio.run(look())
    assert shown["pools"]["gpu.example.com/n1"]["units"] == {"u": 1, "f": 1}
    assert shown["pods"]["default/waits"]["state"] == "waiting"
    assert shown["events"]["default/event-1"]["message"] == "number 1"
    [sample] = shown["history"].values()
    assert (sample["used"], sample["free"], sample["all"], sample["waiting"]) == (1, 1, 2, 1)


def test_only_the_newest_events_are_kept() -> None:
    world = world_of(*(an_event(number) for number in range(MOST_EVENTS + 40)))
    shown = json.loads(asyncio.run(tables_of(world, UseHistory())).snapshot())["events"]
    assert len(shown) == MOST_EVENTS
    assert "default/event-39" not in shown
    assert "default/event-40" in shown


def test_one_sample_a_minute_and_no_more_than_six_hours() -> None:
    history = UseHistory()

    async def run() -> Tables:
        tables = await tables_of(world_of(), history)
        assert tables.take_sample(NOW) is not None
        assert tables.take_sample(NOW + timedelta(seconds=59)) is None
        for minute in range(1, MOST_SAMPLES + 10):
            assert tables.take_sample(NOW + timedelta(minutes=minute)) is not None
        return tables

    shown = json.loads(asyncio.run(run()).snapshot())["history"]
    assert len(shown) == len(history.samples) == MOST_SAMPLES
    assert min(row["at"] for row in shown.values()) == int((NOW + timedelta(minutes=10)).timestamp())


def test_the_history_outlives_the_watches() -> None:
    history = UseHistory()
    history.add(UseSample(NOW, UseCounts(used=3, free=1, parts=3.0), 2))
    shown = json.loads(asyncio.run(tables_of(world_of(), history)).snapshot())["history"]
    assert [(row["used"], row["waiting"]) for row in shown.values()] == [(3, 2)]
