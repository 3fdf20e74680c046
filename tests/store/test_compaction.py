"""Forgetting by the clock."""

import asyncio
from pathlib import Path

import pytest
from tests.waiting import eventually, let_others_run

from dray.clock import SimulatedClock
from dray.store.compaction import keep_history
from dray.store.errors import Compacted
from dray.store.sqlite import SqliteStore


async def test_history_is_between_one_and_two_intervals_deep(tmp_path: Path) -> None:
    """Also where nobody writes: pages of a list that was begun expire there, too."""
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    keeping = asyncio.create_task(keep_history(store, clock, 300))
    await let_others_run()
    first = await store.create("/a", b"1")
    await clock.advance(300)

    async def is_marked() -> bool:
        return await store.current_revision() > first

    await eventually(is_marked, "a mark")
    assert await store.compacted_revision() == 0
    second = await store.update("/a", b"2", first)
    await clock.advance(300)
    await eventually(store.compacted_revision, "a compaction")
    assert first < await store.compacted_revision() < second
    with pytest.raises(Compacted):
        await store.list("/a", revision=first)

    async def is_deeper() -> bool:
        await clock.advance(300)
        return await store.compacted_revision() > second

    await eventually(is_deeper, "the next compaction")
    keeping.cancel()
    await store.close()
