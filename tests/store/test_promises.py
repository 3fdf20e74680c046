"""What every store promises: single keys, lists, multi-key commits."""

import asyncio
from contextlib import aclosing

import pytest

from dray.store import etcd, sqlite
from dray.store.errors import AlreadyExists, Compacted, Conflict, FutureRevision, NotFound
from dray.store.interface import Delete, Page, Precondition, Put, Store


def keys_of(page: Page) -> list[str]:
    return [entry.key for entry in page.entries]


async def test_a_created_key_is_read_back_with_its_revision(store: Store) -> None:
    revision = await store.create("/a/x", b"1")
    entry = await store.get("/a/x")
    assert entry is not None
    assert (entry.key, entry.value, entry.revision, entry.created) == ("/a/x", b"1", revision, revision)
    assert await store.current_revision() == revision


async def test_an_update_keeps_when_the_key_was_created(store: Store) -> None:
    created = await store.create("/a/x", b"1")
    updated = await store.update("/a/x", b"2", created)
    entry = await store.get("/a/x")
    assert entry is not None
    assert updated > created
    assert (entry.value, entry.revision, entry.created) == (b"2", updated, created)


async def test_creating_twice_is_refused_and_changes_nothing(store: Store) -> None:
    revision = await store.create("/a/x", b"1")
    with pytest.raises(AlreadyExists, match="/a/x"):
        await store.create("/a/x", b"2")
    entry = await store.get("/a/x")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"1", revision)
    assert await store.current_revision() == revision


async def test_a_stale_update_or_delete_is_refused(store: Store) -> None:
    first = await store.create("/a/x", b"1")
    await store.update("/a/x", b"2", first)
    with pytest.raises(Conflict) as conflict:
        await store.update("/a/x", b"3", first)
    assert conflict.value.keys == ("/a/x",)
    with pytest.raises(Conflict):
        await store.delete("/a/x", first)
    entry = await store.get("/a/x")
    assert entry is not None
    assert entry.value == b"2"


async def test_updating_or_deleting_nothing_says_so(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.update("/a/x", b"1", 7)
    with pytest.raises(NotFound):
        await store.delete("/a/x", 7)


async def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    first = await store.create("/a/x", b"1")
    await store.delete("/a/x", first)
    assert await store.get("/a/x") is None
    again = await store.create("/a/x", b"2")
    entry = await store.get("/a/x")
    assert entry is not None
    assert entry.created == again


async def test_get_many_leaves_out_what_is_missing(store: Store) -> None:
    await store.create("/a/x", b"1")
    await store.create("/a/z", b"3")
    found = await store.get_many(["/a/x", "/a/y", "/a/z"])
    assert {key: entry.value for key, entry in found.items()} == {"/a/x": b"1", "/a/z": b"3"}
    assert await store.get_many([]) == {}


async def test_a_list_is_in_key_order_and_stops_at_its_prefix(store: Store) -> None:
    for key in ("/pods/b", "/pods/a", "/podsets/a", "/pods/c", "/pod"):
        await store.create(key, key.encode())
    assert keys_of(await store.list("/pods/")) == ["/pods/a", "/pods/b", "/pods/c"]


async def test_pages_of_one_list_are_at_one_revision(store: Store) -> None:
    for number in range(5):
        await store.create(f"/a/{number}", b"old")
    first = await store.list("/a/", limit=2)
    assert (keys_of(first), first.remaining) == (["/a/0", "/a/1"], 3)
    third = await store.get("/a/3")
    assert third is not None
    await store.update("/a/3", b"new", third.revision)
    await store.create("/a/9", b"new")
    await store.delete("/a/4", (await store.get_many(["/a/4"]))["/a/4"].revision)
    rest = await store.list("/a/", limit=2, start_after="/a/1", revision=first.revision)
    assert (keys_of(rest), rest.remaining, rest.revision) == (["/a/2", "/a/3"], 1, first.revision)
    assert rest.entries[1].value == b"old"
    last = await store.list("/a/", limit=2, start_after="/a/3", revision=first.revision)
    assert (keys_of(last), last.remaining) == (["/a/4"], 0)


async def test_all_entries_come_in_pages_of_one_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "READ_CHUNK", 2)
    monkeypatch.setattr(etcd, "RANGE_CHUNK", 2)
    for number in range(5):
        await store.create(f"/a/{number}", b"old")
    revision = await store.create("/b/0", b"another prefix")
    found: list[str] = []
    async with aclosing(store.pages("/a/")) as pages:
        async for page in pages:
            assert page.revision == revision
            assert len(page.entries) <= 2
            found += keys_of(page)
            assert {entry.value for entry in page.entries} <= {b"old"}
            if len(found) == 2:
                await store.create("/a/9", b"new")
                fourth = await store.get("/a/3")
                assert fourth is not None
                await store.update("/a/3", b"new", fourth.revision)
    assert found == [f"/a/{number}" for number in range(5)]
    async with aclosing(store.pages("/nothing/")) as pages:
        assert [keys_of(page) async for page in pages] == [[]]


async def test_pages_that_are_not_read_to_their_end_leave_the_store_usable(store: Store) -> None:
    await store.create("/a/0", b"value")
    async with aclosing(store.pages("/a/")) as pages:
        await anext(pages)
    assert keys_of(await store.list("/a/")) == ["/a/0"]


async def test_a_list_at_every_past_revision_shows_that_moment(store: Store) -> None:
    living: dict[str, bytes] = {}
    moments: list[tuple[int, dict[str, bytes]]] = []
    for step in range(30):
        key = f"/a/{step * 7 % 5}"
        entry = await store.get(key)
        if entry and step % 3 == 0:
            revision = await store.delete(key, entry.revision)
            del living[key]
        else:
            value = str(step).encode()
            revision = await store.commit([Put(key, value)])
            living[key] = value
        moments.append((revision, dict(living)))
    for revision, expected in moments:
        page = await store.list("/a/", revision=revision)
        assert {entry.key: entry.value for entry in page.entries} == expected
        assert page.revision == revision


async def test_a_list_in_the_future_is_refused(store: Store) -> None:
    now = await store.create("/a/x", b"1")
    with pytest.raises(FutureRevision):
        await store.list("/a/", revision=now + 100)


async def test_a_commit_does_all_or_nothing(store: Store) -> None:
    one = await store.create("/a/1", b"1")
    two = await store.create("/a/2", b"2")
    revision = await store.commit(
        [Put("/a/1", b"new"), Delete("/a/2"), Put("/a/3", b"3")],
        [Precondition("/a/1", one), Precondition("/a/2", two), Precondition("/a/3", 0)],
    )
    page = await store.list("/a/")
    assert {entry.key: (entry.value, entry.revision) for entry in page.entries} == {
        "/a/1": (b"new", revision),
        "/a/3": (b"3", revision),
    }
    with pytest.raises(Conflict) as conflict:
        await store.commit(
            [Put("/a/1", b"newer"), Put("/a/4", b"4")],
            [Precondition("/a/1", revision), Precondition("/a/3", 0), Precondition("/a/2", two)],
        )
    assert set(conflict.value.keys) == {"/a/3", "/a/2"}
    assert await store.list("/a/") == page


async def test_deleting_nothing_in_a_commit_is_no_change(store: Store) -> None:
    revision = await store.create("/a/x", b"1")
    assert await store.commit([Delete("/a/none")]) == revision
    assert await store.current_revision() == revision


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([Put("/a", b""), Put("/a", b"")], id="twice"),
        pytest.param([Put("a", b"")], id="no-slash"),
        pytest.param([Put("/a\0b", b"")], id="zero-byte"),
        pytest.param([Put("/a\ud800", b"")], id="not-unicode"),
        pytest.param([Put("/" + "x" * 5000, b"")], id="too-long"),
        pytest.param([Put(f"/{number}", b"") for number in range(129)], id="too-many"),
    ],
)
async def test_nonsense_is_refused_and_disturbs_nobody(store: Store, operations: list[Put]) -> None:
    good = asyncio.ensure_future(store.create("/good", b"1"))
    with pytest.raises(ValueError):
        await store.commit(operations)
    await good
    assert await store.get("/good") is not None
    assert (await store.list("/a")).entries == ()


async def test_keys_may_hold_any_text(store: Store) -> None:
    for key in ("/a/ü", "/a/名", "/a/\U0001f600", "/a/~", "/a/ "):
        await store.create(key, key.encode())
    page = await store.list("/a/")
    assert [entry.key.encode() for entry in page.entries] == [entry.value for entry in page.entries]
    assert len(page.entries) == 5


async def test_compaction_forgets_the_past_and_keeps_the_present(store: Store) -> None:
    first = await store.create("/a/kept", b"1")
    gone = await store.create("/a/gone", b"1")
    second = await store.update("/a/kept", b"2", first)
    await store.delete("/a/gone", gone)
    third = await store.update("/a/kept", b"3", second)
    await store.compact(third)
    with pytest.raises(Compacted):
        await store.list("/a/", revision=second)
    assert await store.compacted_revision() == third
    assert [(entry.key, entry.value) for entry in (await store.list("/a/", revision=third)).entries] == [
        ("/a/kept", b"3")
    ]
    fourth = await store.update("/a/kept", b"4", third)
    assert (await store.list("/a/", revision=third)).entries[0].value == b"3"
    assert (await store.list("/a/", revision=fourth)).entries[0].value == b"4"
    with pytest.raises(Compacted):
        await store.compact(second)
    with pytest.raises(FutureRevision):
        await store.compact(fourth + 1000)
