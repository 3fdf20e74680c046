"""The address of the server in the `kubernetes` Service, on a store that takes no writes for a while."""

import json
from pathlib import Path

import pytest
from tests.waiting import eventually

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.watch.stored_object import object_key
from dray.clock import SimulatedClock
from dray.store.errors import StoreUnavailable
from dray.store.sqlite import SqliteStore

SERVICE = object_key("", "services", "default", "kubernetes")
ENDPOINTS = object_key("", "endpoints", "default", "kubernetes")


async def test_what_somebody_deletes_is_made_again(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    running = await start_server(store, ServerOptions(tmp_path), clock)
    await running.listen("127.0.0.1", 0)
    endpoints = await store.get(ENDPOINTS)
    old = await store.get(SERVICE)
    assert endpoints is not None
    assert old is not None
    await store.delete(SERVICE, old.revision)

    async def is_back() -> bool:
        await clock.advance(1)
        return await store.get(SERVICE) is not None

    await eventually(is_back, "the service")
    new = await store.get(SERVICE)
    assert new is not None
    assert json.loads(new.value)["metadata"]["uid"] != json.loads(old.value)["metadata"]["uid"]
    assert json.loads(new.value)["spec"] == json.loads(old.value)["spec"]
    assert await store.get(ENDPOINTS) == endpoints
    await running.stop()
    await store.close()


async def test_a_server_that_cannot_write_its_address_listens_and_writes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An etcd without space answers reads only: that must not end a server which has just been started."""
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "dray.db", clock)
    running = await start_server(store, ServerOptions(tmp_path), clock)

    async def refuse(*_: object, **__: object) -> int:
        raise StoreUnavailable("database space exceeded")

    with monkeypatch.context() as without_space:
        without_space.setattr(SqliteStore, "create", refuse)
        without_space.setattr(SqliteStore, "update", refuse)
        url = await running.listen("127.0.0.1", 0)
        await clock.advance(10)
        assert await store.get(ENDPOINTS) is None
    port = int(url.rpartition(":")[2])

    async def is_published() -> bool:
        await clock.advance(1)
        found = await store.get(ENDPOINTS)
        return found is not None and json.loads(found.value)["subsets"][0]["ports"][0]["port"] == port

    await eventually(is_published, "the address")
    await running.stop()
    await store.close()
