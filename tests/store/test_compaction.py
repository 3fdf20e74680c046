"""Forgetting by the clock."""

import asyncio
from pathlib import Path

from tests.waiting import eventually, let_others_run

from dray.clock import SimulatedClock
from dray.store.compaction import keep_history
from dray.store.sqlite import SqliteStore


async def test_history_is_between_one_and_two_intervals_deep(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    keeping = asyncio.create_task(keep_history(store, clock, 300))
    await let_others_run()
    first = await store.create("/a", b"1")
    await clock.advance(300)
    await store.create("/later", b"")
    await let_others_run(20)
    assert await store.compacted_revision() == 0
    second = await store.update("/a", b"2", first)
    await clock.advance(300)
    await eventually(store.compacted_revision, "a compaction")
    assert await store.compacted_revision() == first
    await clock.advance(300)

    async def is_deeper() -> bool:
        return await store.compacted_revision() > first

    await eventually(is_deeper, "the next compaction")
    assert await store.compacted_revision() == second
    keeping.cancel()
    await store.close()
