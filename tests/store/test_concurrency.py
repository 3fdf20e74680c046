"""Many writers, no lost update, no write half done."""

import asyncio
import json

from tests.waiting import let_others_run

from dray.store.errors import Conflict
from dray.store.interface import Precondition, Put, Store


async def increment(store: Store, key: str) -> int:
    """Add one by compare-and-set; answers how often it had to try."""
    tries = 0
    while True:
        tries += 1
        entry = await store.get(key)
        assert entry is not None
        try:
            await store.update(key, str(int(entry.value) + 1).encode(), entry.revision)
        except Conflict:
            continue
        return tries


async def test_no_increment_is_lost(store: Store) -> None:
    await store.create("/counter", b"0")

    async def work() -> None:
        for _ in range(10):
            await increment(store, "/counter")

    await asyncio.gather(*(work() for _ in range(12)))
    entry = await store.get("/counter")
    assert entry is not None
    assert entry.value == b"120"


async def test_two_stores_on_one_etcd_lose_nothing_either(open_store, kind: str) -> None:  # type: ignore[no-untyped-def]
    one = await open_store()
    other = await open_store() if kind == "etcd" else one
    await one.create("/counter", b"0")

    async def work(store: Store) -> None:
        for _ in range(10):
            await increment(store, "/counter")

    await asyncio.gather(*(work(store) for store in (one, other) for _ in range(5)))
    entry = await other.get("/counter")
    assert entry is not None
    assert entry.value == b"100"


async def test_a_create_succeeds_for_exactly_one_of_many(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.create("/one", str(number).encode()) for number in range(20)), return_exceptions=True
    )
    assert sum(isinstance(answer, int) for answer in answers) == 1


async def test_transfers_between_keys_keep_the_sum(store: Store) -> None:
    """Multi-key compare-and-set: concurrent transfers never create or destroy anything, seen from any list."""
    keys = [f"/account/{number}" for number in range(4)]
    for key in keys:
        await store.create(key, b"100")

    async def transfer(source: str, target: str) -> None:
        while True:
            found = await store.get_many([source, target])
            try:
                await store.commit(
                    [
                        Put(source, json.dumps(int(found[source].value) - 1).encode()),
                        Put(target, json.dumps(int(found[target].value) + 1).encode()),
                    ],
                    [Precondition(key, found[key].revision) for key in (source, target)],
                )
            except Conflict:
                continue
            return

    async def work(number: int) -> None:
        for step in range(8):
            await transfer(keys[(number + step) % 4], keys[(number + step + 1) % 4])

    async def audit() -> None:
        for _ in range(20):
            page = await store.list("/account/")
            assert sum(int(entry.value) for entry in page.entries) == 400
            await let_others_run(3)

    await asyncio.gather(audit(), *(work(number) for number in range(6)))
