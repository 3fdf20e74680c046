"""The SQLite store: durable writes, reads, lists, watches. What a write costs, and how many fit into a second."""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

from report import Report

from dray.store.interface import Put
from dray.store.sqlite import SqliteStore

VALUE = b"x" * 2048
CLIENTS = 32
OBJECTS = 5000


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as directory:
        asyncio.run(_run(report, Path(directory)))


async def _run(report: Report, directory: Path) -> None:
    store = SqliteStore(directory / "dray.db")
    await _writes(report, store)
    await _reads(report, store)
    await _watches(report, store)
    await _compaction(report, store)
    await store.close()
    started = time.perf_counter()
    await SqliteStore(directory / "dray.db").close()
    report.record(f"open a file of {OBJECTS} objects", (time.perf_counter() - started) * 1e3, "ms", 200)


async def _writes(report: Report, store: SqliteStore) -> None:
    waits: list[float] = []

    async def client(number: int) -> None:
        for index in range(OBJECTS // CLIENTS):
            started = time.perf_counter()
            await store.create(f"/objects/{number:02}/{index:05}", VALUE)
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    rate = len(waits) / (time.perf_counter() - started)
    waits.sort()
    report.record(f"durable creates of 2 KB, {CLIENTS} clients", rate, "/s", 2000, at_least=True)
    report.record(f"p99 of a create, {CLIENTS} clients", waits[len(waits) * 99 // 100] * 1e3, "ms", 80)
    best = min([await _timed(store.commit([Put("/alone", VALUE)])) for _ in range(100)])
    report.record("one durable write alone, best", best * 1e3, "ms")


async def _reads(report: Report, store: SqliteStore) -> None:
    rounds = []
    for _ in range(7):
        started = time.perf_counter()
        for index in range(200):
            await store.get(f"/objects/01/{index % 100:05}")
        rounds.append((time.perf_counter() - started) / 200 * 1e6)
    report.record("get", min(rounds), "us", 50)
    page = await store.list("/objects/")
    best = min([await _timed(store.list("/objects/")) for _ in range(5)])
    report.record(f"list {len(page.entries)} objects", best * 1e3, "ms", 150)
    best = min([await _timed(store.list("/objects/", revision=page.revision - 50)) for _ in range(5)])
    report.record(f"list {len(page.entries)} objects at an earlier revision", best * 1e3, "ms", 300)


async def _watches(report: Report, store: SqliteStore) -> None:
    """Replay of everything that happened, and how soon a live change arrives."""
    now = await store.current_revision()
    started = time.perf_counter()
    async with contextlib.aclosing(store.watch("/objects/", 0)) as batches:
        async for batch in batches:
            if batch.revision >= now:
                break
    report.record("replay of one change", (time.perf_counter() - started) / now * 1e6, "us", 50)
    delays = []
    async with contextlib.aclosing(store.watch("/objects/", now)) as batches:
        for index in range(50):
            writing = asyncio.ensure_future(store.create(f"/objects/live/{index}", VALUE))
            await anext(batches)
            arrived = time.perf_counter()
            await writing
            delays.append(abs(time.perf_counter() - arrived))
    report.record("a watch hears of a write before its writer does, by", min(delays) * 1e6, "us")


async def _compaction(report: Report, store: SqliteStore) -> None:
    revision = await store.commit([Put("/hot", VALUE)])
    for _ in range(1000):
        revision = await store.update("/hot", VALUE, revision)
    took = await _timed(store.compact(revision))
    report.record("forget 1,000 replaced values", took * 1e3, "ms", 500)


async def _timed(awaitable: object) -> float:
    started = time.perf_counter()
    await awaitable  # type: ignore[misc]
    return time.perf_counter() - started
