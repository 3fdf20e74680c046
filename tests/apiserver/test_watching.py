"""Watches: from where they start, what they see, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.apiserver.conftest import CLAIMS, Client, gold_claim

from dray.api.scheme import by_kind
from dray.apiserver import core
from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.watch import kind_cache, watch_requests, watchers
from dray.apiserver.watch.stored_object import REGISTRY
from dray.clock import SimulatedClock
from dray.store.interface import Batch, Delete, Put
from dray.store.sqlite import SqliteStore


async def revision_of(server: Client) -> str:
    answer = await server.get(CLAIMS)
    return str(answer.body["metadata"]["resourceVersion"])


async def test_changes_after_a_revision(server: Client) -> None:
    start = await revision_of(server)
    await server.post(CLAIMS, gold_claim("a"))
    await server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"x": "1"}}})
    await server.send("DELETE", f"{CLAIMS}/a")
    events = await server.watch(f"{CLAIMS}?watch=true&resourceVersion={start}")
    assert await events.take(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    await server.post(CLAIMS, gold_claim("b"))
    assert await events.take(1) == [("ADDED", "b")]
    await events.close()


async def test_a_deleted_object_carries_its_last_state_and_a_new_revision(server: Client) -> None:
    made = (await server.post(CLAIMS, gold_claim("a"))).body
    events = await server.watch(f"{CLAIMS}?watch=true&resourceVersion={made['metadata']['resourceVersion']}")
    await server.send("DELETE", f"{CLAIMS}/a")
    event = await events.next()
    assert event is not None
    assert event["object"]["spec"] == made["spec"]
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    await events.close()


async def test_objects_start_and_stop_to_match(server: Client) -> None:
    events = await server.watch(f"{CLAIMS}?watch=true&labelSelector=keep=yes")
    await server.post(CLAIMS, gold_claim("a"))
    await server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"keep": "yes"}}})
    await server.patch(f"{CLAIMS}/a", {"metadata": {"labels": {"keep": "no"}}})
    assert await events.take(2) == [("ADDED", "a"), ("DELETED", "a")]
    await events.close()


async def test_a_node_sees_its_own_pods_only(server: Client) -> None:
    account = {"metadata": {"name": "default"}}
    await server.post("/api/v1/namespaces/default/serviceaccounts", account)
    mine = await server.watch("/api/v1/pods?watch=true&fieldSelector=spec.nodeName=n1")
    everyone = await server.watch("/api/v1/pods?watch=true")
    for name, node in (("a", "n1"), ("b", "n2")):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
        answer = await server.post("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
        assert answer.status == 201, answer.body
    assert await mine.take(1) == [("ADDED", "a")]
    assert await everyone.take(2) == [("ADDED", "a"), ("ADDED", "b")]
    with pytest.raises(asyncio.TimeoutError):
        await mine.next(timeout_s=0.1)


async def test_a_write_that_changes_nothing_makes_no_event(server: Client) -> None:
    made = (await server.post(CLAIMS, gold_claim("a"))).body
    events = await server.watch(f"{CLAIMS}?watch=true&resourceVersion={made['metadata']['resourceVersion']}")
    again = await server.send("PUT", f"{CLAIMS}/a", made)
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    await server.post(CLAIMS, gold_claim("b"))
    assert await events.take(1) == [("ADDED", "b")]
    await events.close()


async def test_the_past_is_kept_without_its_encoded_lines(server: Client) -> None:
    watched = await server.watch(f"{CLAIMS}?watch=true")
    await server.post(CLAIMS, gold_claim("one"))
    assert [name for _, name in await watched.take(1)] == ["one"]
    past = list(server.core.cache(by_kind("ResourceClaim")).events_after(0))
    assert past
    assert all(event._lines is None for event in past)
    await watched.close()


async def test_events_are_encoded_once(server: Client) -> None:
    streams = [(await server.get(f"{CLAIMS}?watch=true")).stream for _ in range(20)]
    await server.post(CLAIMS, gold_claim("a"))
    chunks = [await stream.__anext__() for stream in streams]
    assert all(chunk is chunks[0] for chunk in chunks)
    for stream in streams:
        await stream.aclose()


async def test_nothing_is_kept_of_watches_that_are_over(server: Client) -> None:
    """Their timeouts, half an hour and more away, ring for nobody."""
    known = []
    for _ in range(20):
        events = await server.watch(f"{CLAIMS}?watch=true&allowWatchBookmarks=true")
        known.append(weakref.ref(next(iter(server.core.cache(by_kind("ResourceClaim")).watchers))))
        await events.close()
    del events
    gc.collect()
    assert [each() for each in known] == [None] * 20


async def test_initial_events_and_their_end(server: Client) -> None:
    await server.post(CLAIMS, gold_claim("a"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = await server.watch(f"{CLAIMS}?{query}")
    assert await events.take(1) == [("ADDED", "a")]
    bookmark = await events.next()
    assert bookmark is not None
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await events.close()


async def test_a_revision_that_was_forgotten_is_an_error_event(server: Client) -> None:
    start = await revision_of(server)
    for name in "abc":
        await server.post(CLAIMS, gold_claim(name))
    await server.store.compact(int(await revision_of(server)))
    for cache in server.core.caches():
        cache.complete_after = await server.store.current_revision()
    events = await server.watch(f"{CLAIMS}?watch=true&resourceVersion={start}")
    event = await events.next()
    assert event is not None
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {start} (")
    assert await events.next() is None


async def test_a_reader_that_does_not_read_is_cut_off(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "MAX_PENDING_BYTES", 5_000)
    slow, quick = await server.watch(f"{CLAIMS}?watch=true"), await server.watch(f"{CLAIMS}?watch=true")
    for number in range(20):
        await server.post(CLAIMS, gold_claim(f"c{number}"))
        await quick.take(1)
    assert await slow.next() is None


async def test_closed_watches_leave_nothing_behind(server: Client) -> None:
    before = server.running.server._watching.open
    for _ in range(50):
        await (await server.watch(f"{CLAIMS}?watch=true")).close()
    assert server.running.server._watching.open == before
    assert sum(len(cache.watchers) for cache in server.core.caches()) == 0


async def test_watches_go_on_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    first = Client(await start_server(store, ServerOptions(tmp_path)), store)
    start = await revision_of(first)
    await first.post(CLAIMS, gold_claim("a"))
    await first.send("DELETE", f"{CLAIMS}/a")
    await first.running.stop()
    await store.close()
    store = SqliteStore(tmp_path / "store.db")
    second = Client(await start_server(store, ServerOptions(tmp_path)), store)
    events = await second.watch(f"{CLAIMS}?watch=true&resourceVersion={start}")
    await second.post(CLAIMS, gold_claim("b"))
    assert await events.take(3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    await second.running.stop()
    await store.close()


async def test_bookmarks_and_timeouts_by_the_clock(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = SqliteStore(tmp_path / "store.db", clock)
    running = await start_server(store, ServerOptions(tmp_path), clock)
    client = Client(running, store)
    events = await client.watch(f"{CLAIMS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=100")
    for _ in range(1020):
        await clock.advance(0.1)
    seen = []
    while (event := await events.next()) is not None:
        seen.append(event["type"])
    assert set(seen) == {"BOOKMARK"}
    assert 2 <= len(seen) <= 4  # about one a minute, and one shortly before the end
    await running.stop()
    await store.close()


async def test_one_stream_is_in_revision_order(server: Client) -> None:
    events = await server.watch(f"{CLAIMS}?watch=true")
    await asyncio.gather(*(server.post(CLAIMS, gold_claim(f"c{number}")) for number in range(60)))
    revisions = []
    for _ in range(60):
        event = await events.next()
        assert event is not None
        revisions.append(int(event["object"]["metadata"]["resourceVersion"]))
    assert revisions == sorted(set(revisions))
    await events.close()


@pytest.mark.parametrize("at_once", [1, 256])
async def test_changes_of_one_revision_are_all_seen(
    server: Client, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """As of keys that expire together in etcd."""
    monkeypatch.setattr(watch_requests, "EVENTS_AT_ONCE", at_once)
    names = ["a", "b", "c"]
    for name in names:
        made = await server.post(CLAIMS, gold_claim(name))
    path = f"{CLAIMS}?watch=1&resourceVersion={made.body['metadata']['resourceVersion']}"
    live = await server.watch(path)
    cache = server.core.cache(by_kind("ResourceClaim"))
    await server.store.commit([Delete(cache.key("default", name)) for name in names], [])
    await server.post(CLAIMS, gold_claim("d"))
    expected = [*(("DELETED", name) for name in names), ("ADDED", "d")]
    assert await live.take(4) == expected
    assert await (await server.watch(path)).take(4) == expected


class SlowFollower(SqliteStore):
    """A store whose changes come to the caches late. Its history has them at once, as etcd's has."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.has_come = asyncio.Event()
        self.has_come.set()

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        async with contextlib.aclosing(super().watch(prefix, after_revision)) as batches:
            async for batch in batches:
                if prefix == REGISTRY:
                    await self.has_come.wait()
                yield batch


async def test_what_came_from_the_history_does_not_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is behind the history: it brings the same changes a moment later."""
    monkeypatch.setattr(kind_cache, "KEPT_EVENTS", 1)
    store = SlowFollower(tmp_path / "store.db")
    running = await start_server(store, ServerOptions(tmp_path))
    server = Client(running, store)
    start = await revision_of(server)
    for name in ("a", "b"):
        await server.post(CLAIMS, gold_claim(name))
    store.has_come.clear()
    cache = server.core.cache(by_kind("ResourceClaim"))
    a = await store.get(cache.key("default", "a"))
    assert a is not None
    await store.commit([Put(cache.key("default", name), a.value.replace(b'"a"', b'"c"')) for name in ("c", "d")], [])
    events = await server.watch(f"{CLAIMS}?watch=true&resourceVersion={start}")
    store.has_come.set()
    await server.post(CLAIMS, gold_claim("e"))
    assert [await events.take(1) for _ in range(5)] == [[("ADDED", name)] for name in ("a", "b", "c", "c", "e")]
    await events.close()
    await running.stop()


async def test_a_watch_whose_events_cannot_be_encoded_in_time_ends(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await server.send("GET", f"{CLAIMS}?watch=true", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    for name in ("a", "b"):
        await server.post(CLAIMS, gold_claim(name))
    monkeypatch.setattr(core, "LARGE", 0)
    monkeypatch.setattr(core, "DEADLINE_S", 0.0)
    assert [data async for data in answer.stream] == []


async def test_old_versions_share_the_watch(server: Client) -> None:
    old = await server.watch(CLAIMS.replace("/v1/", "/v1beta1/") + "?watch=true")
    await server.post(CLAIMS, gold_claim("a"))
    event = await old.next()
    assert event is not None
    assert json.dumps(event["object"]["spec"]).count("exactly") == 0
    await old.close()
