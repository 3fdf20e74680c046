"""What only the etcd store has: URLs, TLS, users, several servers, leases, a cluster that goes away and comes back."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import Etcd
from tests.waiting import eventually, let_others_run

from dray.apiserver.security.certificates import Authority, Pair
from dray.clock import SimulatedClock
from dray.store.errors import Compacted, StoreError, StoreRefuses, StoreUnavailable, ValueTooLarge
from dray.store.etcd import NUDGE_S, EtcdStore
from dray.store.interface import Page, Store
from dray.store.store_url import (
    StoreAddress,
    open_store,
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("etcd://h:1", {"endpoints": ("h:1",), "prefix": "/dray", "tls": False}),
        ("etcd://a:1,b:2,c:3/team", {"endpoints": ("a:1", "b:2", "c:3"), "prefix": "/team"}),
        ("etcds://h:1", {"tls": True}),
        ("etcd://u%40x:p%3Aw@h:1", {"user": "u@x", "password": "p:w", "endpoints": ("h:1",)}),
    ],
)
def test_urls(url: str, expected: dict[str, Any]) -> None:
    address = StoreAddress.parse(url)
    assert {name: getattr(address, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://", "HOST:PORT"),
        ("etcd://host", "HOST:PORT"),
        ("etcd://h:1?ca=/does/not/exist", "cannot read /does/not/exist"),
        ("etcd://h:1?wrong=1", "unknown option wrong"),
        ("sqlite:", "give a file"),
        ("postgres://h", "not an etcd URL"),
    ],
)
async def test_bad_urls_say_what_is_wrong(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=says):
        await open_store(url, tmp_path)


async def test_nobody_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"etcd at 127\.0\.0\.1:1"):
        await open_store("etcd://127.0.0.1:1", tmp_path)


async def test_prefixes_do_not_see_each_other(etcd_address: str, tmp_path: Path) -> None:
    one = await open_store(f"etcd://{etcd_address}/one", tmp_path)
    other = await open_store(f"etcd://{etcd_address}/one1", tmp_path)
    await one.create("/a/x", b"1")
    assert await other.get("/a/x") is None
    assert "/a/x" not in [entry.key for entry in (await other.list("/")).entries]
    await one.close()
    await other.close()


async def test_another_server_sees_writes_and_watches_them(etcd_address: str, tmp_path: Path) -> None:
    one = await open_store(f"etcd://{etcd_address}/shared", tmp_path)
    other = await open_store(f"etcd://{etcd_address}/shared", tmp_path)
    start = await one.create("/a/0", b"")
    async with contextlib.aclosing(other.watch("/a/", start)) as batches:
        revision = await one.create("/a/1", b"1")
        changes = []
        while not changes:
            changes += (await asyncio.wait_for(anext(batches), 30)).changes
    assert [(change.key, change.revision) for change in changes] == [("/a/1", revision)]
    assert await other.current_revision() == revision
    await one.close()
    await other.close()


async def test_writes_of_other_users_of_the_etcd_do_not_hold_up_a_watch(etcd_address: str, tmp_path: Path) -> None:
    """Who reads waits until the watch has reached the current revision, even if that is somebody else's."""
    ours = await open_store(f"etcd://{etcd_address}/ours", tmp_path)
    theirs = await open_store(f"etcd://{etcd_address}/theirs", tmp_path)
    start = await ours.create("/a/0", b"")
    await theirs.create("/a/foreign", b"")
    wanted = await ours.current_revision()
    assert wanted > start
    async with contextlib.aclosing(ours.watch("/a/", start)) as batches:
        reached, changes = start, []
        while reached < wanted:
            batch = await asyncio.wait_for(anext(batches), 30)
            reached = batch.revision
            changes += batch.changes
    assert changes == []
    await ours.close()
    await theirs.close()


async def test_no_tick_is_written_for_a_revision_that_the_watch_shows_in_time(
    etcd_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every server would write one for every change of another, and each of these is a change again."""
    clock = SimulatedClock()
    store = await EtcdStore.open(StoreAddress.parse(f"etcd://{etcd_address}/seen-in-time"), clock)
    revision = await store.create("/a/x", b"")
    await eventually(lambda: store._published >= revision, "the watch")
    ticks: list[object] = []

    async def counted(operations: object) -> int:
        ticks.append(operations)
        return revision

    monkeypatch.setattr(store, "commit", counted)
    store._published = revision - 1
    wanted = await store.current_revision()
    await let_others_run(10)
    assert (store._nudging is not None, ticks) == (True, [])
    store._published = wanted
    await clock.advance(NUDGE_S)
    assert (store._nudging, ticks) == (None, [])
    await store.close()


async def test_keys_with_a_time_to_live_vanish_with_their_lease(etcd_address: str, tmp_path: Path) -> None:
    store = await open_store(f"etcd://{etcd_address}/ttl", tmp_path)
    start = await store.create("/e/x", b"1", ttl_s=1)
    await store.create("/e/y", b"2", ttl_s=1)
    await store.create("/e/kept", b"3")
    gone: list[str] = []
    async with contextlib.aclosing(store.watch("/e/", start)) as batches:
        while len(gone) < 2:
            batch = await asyncio.wait_for(anext(batches), 30)
            gone += [change.key for change in batch.changes if change.value is None]
    assert sorted(gone) == ["/e/x", "/e/y"]
    assert await store.get("/e/kept") is not None
    await store.close()


async def test_too_large_a_value_is_refused_as_such(etcd_address: str, tmp_path: Path) -> None:
    store = await open_store(f"etcd://{etcd_address}/large", tmp_path)
    with pytest.raises(ValueTooLarge):
        await store.create("/a", b"x" * 2_000_000)
    await store.close()


async def test_watches_survive_a_restart_of_etcd_and_nothing_acknowledged_is_lost(own_etcd, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    own_etcd.start()
    store = await open_store(f"etcd://{own_etcd.address}", tmp_path)
    start = await store.create("/a/start", b"")
    acknowledged: dict[int, str] = {}
    stop = asyncio.Event()

    async def write(store: Store, writer: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = f"/a/{writer}/{number}"
            try:
                acknowledged[await store.create(key, b"x")] = key
            except StoreError:
                await eventually(own_etcd.answers, "etcd to be back")

    seen: dict[int, str] = {}

    async def watch() -> None:
        async for batch in store.watch("/a/", start):
            for change in batch.changes:
                assert change.revision not in seen
                assert change.revision > max(seen, default=start)
                seen[change.revision] = change.key

    async def more_writes(count: int = 20) -> None:
        before = len(acknowledged)
        await eventually(lambda: len(acknowledged) >= before + count, "acknowledged writes")

    watching = asyncio.create_task(watch())
    writing = [asyncio.create_task(write(store, writer)) for writer in range(4)]
    for _ in range(2):
        await more_writes()
        own_etcd.kill()
        await asyncio.to_thread(own_etcd.start)
        await more_writes()
    stop.set()
    await asyncio.gather(*writing)
    last = max(acknowledged)
    await eventually(lambda: max(seen, default=0) >= last, "the watch to catch up")
    watching.cancel()
    assert acknowledged.items() <= seen.items()
    stored = {entry.revision: entry.key for entry in (await _once_etcd_is_back(store)).entries}
    assert acknowledged.items() <= stored.items()
    await store.close()


async def _once_etcd_is_back(store: Store) -> Page:
    async def page() -> Page | None:
        try:
            return await store.list("/a/")
        except StoreError:
            return None

    found: Page = await eventually(page, "etcd to be back")
    return found


async def test_a_watch_that_missed_a_compaction_is_told(own_etcd, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    own_etcd.start()
    store = await open_store(f"etcd://{own_etcd.address}", tmp_path)
    revision = await store.create("/a", b"")
    for _ in range(5):
        revision = await store.update("/a", b"", revision)
    await store.compact(revision)
    with pytest.raises(Compacted) as error:
        await anext(store.watch("/", 1))
    assert error.value.compacted == revision
    await store.close()


def write_pair(folder: Path, name: str, pair: Pair) -> None:
    (folder / f"{name}.pem").write_bytes(pair.certificate_pem)
    (folder / f"{name}-key.pem").write_bytes(pair.key_pem)


def start_with_tls(own_etcd: Etcd, authority: Authority, folder: Path) -> str:
    """An etcd that wants client certificates; the options of the store's URL that name ours."""
    write_pair(folder, "server", authority.issue_server("etcd", ["127.0.0.1"]))
    write_pair(folder, "client", authority.issue_client("dray", ()))
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    own_etcd.scheme = "https"
    own_etcd.flags = (
        *("--cert-file", str(folder / "server.pem"), "--key-file", str(folder / "server-key.pem")),
        *("--client-cert-auth", "--trusted-ca-file", str(folder / "ca.pem")),
    )
    own_etcd.start()
    own_etcd.until_healthy(
        "--cacert", f"{folder}/ca.pem", "--cert", f"{folder}/client.pem", "--key", f"{folder}/client-key.pem"
    )
    return f"ca={folder}/ca.pem&cert={folder}/client.pem&key={folder}/client-key.pem"


async def test_tls_with_client_certificates(own_etcd: Etcd, tmp_path: Path) -> None:
    files = start_with_tls(own_etcd, Authority.create("etcd-ca"), tmp_path)
    store = await open_store(f"etcd://{own_etcd.address}?{files}", tmp_path)
    assert await store.create("/a", b"1") > 0
    await store.close()
    with pytest.raises(StoreUnavailable):
        await open_store(f"etcd://{own_etcd.address}?ca={tmp_path}/ca.pem", tmp_path)


async def test_renewed_certificates_are_taken_from_their_files(own_etcd: Etcd, tmp_path: Path) -> None:
    files = start_with_tls(own_etcd, Authority.create("etcd-ca"), tmp_path)
    store = await open_store(f"etcd://{own_etcd.address}?{files}", tmp_path)
    revision = await store.create("/a", b"1")
    own_etcd.kill()
    start_with_tls(own_etcd, Authority.create("next-ca"), tmp_path)

    async def is_back() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return await store.update("/a", b"2", revision) > revision
        return False

    await eventually(is_back, "the store to use the renewed certificates")
    await store.close()


async def test_users_and_passwords(own_etcd, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    own_etcd.start()
    own_etcd.control("user", "add", "root:secret")
    own_etcd.control("user", "grant-role", "root", "root")
    own_etcd.control("auth", "enable")
    (tmp_path / "password").write_text("secret\n")
    store = await open_store(f"etcd://root@{own_etcd.address}?password-file={tmp_path}/password", tmp_path)
    revision = await store.create("/a", b"1")
    assert isinstance(store, EtcdStore)
    store._connection._token = "stale.1"
    assert await store.update("/a", b"2", revision) > revision
    await store.close()
    with pytest.raises(StoreRefuses):
        await open_store(f"etcd://root:wrong@{own_etcd.address}", tmp_path)


async def test_another_endpoint_takes_over(etcd_address: str, tmp_path: Path) -> None:
    store = await open_store(f"etcd://127.0.0.1:1,{etcd_address}/over", tmp_path)
    assert await store.create("/a", b"1") > 0
    await store.close()
