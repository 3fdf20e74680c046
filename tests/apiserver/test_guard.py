"""No device to two claims, no capacity and no counter overdrawn, whoever writes at the same time."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders.manifests import a_claim, a_result, a_slice
from tests.waiting import let_others_run

from dray.apiserver.errors import ApiError
from dray.apiserver.guard.claim_guard import ClaimGuard
from dray.apiserver.guard.device_records import PublishedDevices, shares_of
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.clock import RealClock
from dray.store.errors import Conflict
from dray.store.interface import Delete, Precondition, Put, Store
from dray.store.sqlite import SqliteStore

# The guard follows the store on the same event loop.
SEEN_AFTER_TURNS = 100

Document = dict[str, Any]
GROUP = "resource.k8s.io"


def stored_claim(name: str, *results: Document, namespace: str = "ns", uid: str = "") -> Document:
    return a_claim(name, namespace=namespace, uid=uid or f"uid-{name}", results=results)


def taken(device: str, *, share: str = "", admin: bool = False, **capacity: str) -> Document:
    optional = {"shareID": share, "adminAccess": admin, "consumedCapacity": capacity}
    return a_result(device, pool="p", **{key: value for key, value in optional.items() if value})


def pool_slice(name: str, *devices: Document, generation: int = 1, counters: Document | None = None) -> Document:
    return a_slice(name, *devices, node=None, pool="p", generation=generation, counters=counters)


class World:
    """Claims written through the guard, as handlers do it."""

    def __init__(self, store: Store, guard: ClaimGuard) -> None:
        self.store = store
        self.guard = guard

    async def publish(self, *slices: Document) -> None:
        for document in slices:
            key = object_key(GROUP, "resourceslices", "", document["metadata"]["name"])
            await self.store.commit([Put(key, to_value(document))])
        await let_others_run(SEEN_AFTER_TURNS)

    async def write(self, claim: Document) -> None:
        """Create or replace; raises ApiError when the guard refuses."""
        key = object_key(GROUP, "resourceclaims", claim["metadata"]["namespace"], claim["metadata"]["name"])
        while True:
            entry = await self.store.get(key)
            old = msgspec.json.decode(entry.value) if entry else None
            with contextlib.suppress(Conflict):
                revision = entry.revision if entry else 0
                await self.guard.commit([Put(key, to_value(claim))], [Precondition(key, revision)], old, claim)
                return

    async def delete(self, claim: Document) -> None:
        key = object_key(GROUP, "resourceclaims", claim["metadata"]["namespace"], claim["metadata"]["name"])
        entry = await self.store.get(key)
        assert entry is not None
        old = msgspec.json.decode(entry.value)
        await self.guard.commit([Delete(key)], [Precondition(key, entry.revision)], old, None)

    async def guard_keys(self) -> list[str]:
        return [entry.key for entry in (await self.store.list("/guard/")).entries]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = SqliteStore(tmp_path / "dray.db")
    follower = StoreFollower(store, RealClock())
    guard = ClaimGuard(store, PublishedDevices.following(follower))
    await follower.start()
    yield World(store, guard)
    await follower.stop()
    await store.close()


async def refused(world: World, claim: Document, *says: str) -> None:
    with pytest.raises(ApiError) as error:
        await world.write(claim)
    assert error.value.code == 409
    for text in says:
        assert text in error.value.message


async def test_a_device_belongs_to_one_claim_until_it_lets_go(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0"), taken("gpu-1")))
    await refused(
        world,
        stored_claim("b", taken("gpu-2"), taken("gpu-1")),
        'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "b": ',
        "device gpu.example.com/p/gpu-1 is already allocated to claim ns/a",
    )
    assert await world.store.get(object_key(GROUP, "resourceclaims", "ns", "b")) is None
    await world.write(stored_claim("a"))
    assert await world.guard_keys() == []
    await world.write(stored_claim("b", taken("gpu-1")))
    await refused(world, stored_claim("a", taken("gpu-1")), "claim ns/b")


async def test_a_deleted_claim_frees_its_devices(world: World) -> None:
    first = stored_claim("a", taken("gpu-0"))
    await world.write(first)
    await world.delete(first)
    await world.write(stored_claim("a", taken("gpu-0"), uid="another-uid"))


async def test_writes_that_do_not_touch_the_allocation_pass(world: World) -> None:
    claim = stored_claim("a", taken("gpu-0"))
    await world.write(claim)
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    await world.write(claim)
    assert await world.guard_keys() == ["/guard/devices/gpu.example.com/p/gpu-0"]


async def test_admin_access_neither_holds_nor_minds(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0")))
    await world.write(stored_claim("monitor", taken("gpu-0", admin=True)))
    await world.write(stored_claim("b", taken("gpu-1")))
    await world.delete(stored_claim("a"))
    await world.write(stored_claim("c", taken("gpu-0")))


async def test_shares_of_one_device_may_not_exceed_its_capacity(world: World) -> None:
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    await world.publish(pool_slice("s", device))
    await world.write(stored_claim("a", taken("gpu-0", share="1", memory="30Gi")))
    await refused(
        world,
        stored_claim("b", taken("gpu-0", share="2", memory="20Gi")),
        "capacity memory: 20Gi wanted, 10Gi of 40Gi free; the rest is held by claim ns/a",
    )
    qualified = taken("gpu-0", share="2")
    qualified["consumedCapacity"] = {"gpu.example.com/memory": "10Gi"}
    await world.write(stored_claim("b", qualified))
    await refused(world, stored_claim("c", taken("gpu-0", share="3", memory="1")), "held by claim ns/a, ns/b")
    await world.write(stored_claim("c", taken("gpu-0", share="3", memory="0")))
    await refused(world, stored_claim("d", taken("gpu-0", share="3", memory="0")), "claim ns/c")
    await refused(world, stored_claim("d", taken("gpu-0")), "is already allocated")


async def test_a_capacity_is_consumed_by_all_holders_or_by_none(world: World) -> None:
    policy = {"value": "8Gi", "requestPolicy": {"strategy": "ConsumedOrNever"}}
    device = {"allowMultipleAllocations": True, "capacity": {"memory": policy}}
    await world.publish(pool_slice("s", {"name": "one", **device}, {"name": "two", **device}))
    await world.write(stored_claim("a", taken("one", share="1", memory="0")))
    await world.write(stored_claim("b", taken("one", share="2", memory="0")))
    await refused(world, stored_claim("c", taken("one", share="3", memory="1Gi")), "nobody may ask for it")
    await world.write(stored_claim("d", taken("two", share="1", memory="4Gi")))
    await refused(world, stored_claim("e", taken("two", share="2", memory="0")), "everybody has to ask for it")
    await world.write(stored_claim("e", taken("two", share="2", memory="4Gi")))


async def test_an_exclusive_device_is_not_shared_by_calling_it_a_share(world: World) -> None:
    await world.publish(pool_slice("s", {"name": "gpu-0"}))
    await world.write(stored_claim("a", taken("gpu-0", share="1")))
    await refused(world, stored_claim("b", taken("gpu-0", share="2")), "claim ns/a")


async def test_of_an_unpublished_device_the_allocation_says_whether_it_is_shared(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0", share="1")))
    await world.write(stored_claim("b", taken("gpu-0", share="2")))
    await refused(world, stored_claim("c", taken("gpu-0")), "claim ns/a, ns/b")


def partition(name: str, slots: str) -> Document:
    return {"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": slots}}}]}


async def test_counters_are_not_overdrawn(world: World) -> None:
    await world.publish(
        pool_slice("counters", counters={"card": {"slots": "4"}}),
        pool_slice("devices", partition("half-0", "2"), partition("half-1", "2"), partition("whole", "4")),
    )
    await world.write(stored_claim("a", taken("half-0")))
    await refused(
        world,
        stored_claim("b", taken("whole")),
        "counter slots of counter set gpu.example.com/p/card: 4 wanted by device whole, 2 of 4 free",
        "held by claim ns/a",
    )
    await world.write(stored_claim("b", taken("half-1")))
    await refused(world, stored_claim("c", taken("whole")), "claim ns/a, ns/b")
    await world.delete(stored_claim("a"))
    await world.write(stored_claim("b"))
    assert await world.guard_keys() == []
    await world.write(stored_claim("c", taken("whole")))


async def test_one_claim_may_not_overdraw_a_counter_by_itself(world: World) -> None:
    await world.publish(
        pool_slice("counters", counters={"card": {"slots": "4"}}),
        pool_slice("devices", partition("half-0", "2"), partition("whole", "4")),
    )
    await refused(world, stored_claim("a", taken("half-0"), taken("whole")), "counter slots")


async def test_shares_draw_their_counters_once(world: World) -> None:
    shared = {**partition("half", "3"), "allowMultipleAllocations": True}
    await world.publish(pool_slice("counters", counters={"card": {"slots": "4"}}), pool_slice("devices", shared))
    await world.write(stored_claim("a", taken("half", share="1")))
    await world.write(stored_claim("b", taken("half", share="2")))
    await world.write(stored_claim("a"))
    assert "/guard/counters/gpu.example.com/p/card" in await world.guard_keys()
    await world.write(stored_claim("b"))
    assert await world.guard_keys() == []


async def test_counters_are_freed_even_if_the_slice_is_gone(world: World) -> None:
    await world.publish(
        pool_slice("counters", counters={"card": {"slots": "4"}}), pool_slice("devices", partition("half", "2"))
    )
    await world.write(stored_claim("a", taken("half")))
    for name in ("counters", "devices"):
        await world.store.commit([Delete(object_key(GROUP, "resourceslices", "", name))])
    await let_others_run(SEEN_AFTER_TURNS)
    await world.write(stored_claim("a"))
    assert await world.guard_keys() == []


async def test_only_the_newest_generation_counts(world: World) -> None:
    shareable = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
    larger = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "20"}}}
    await world.publish(pool_slice("old", shareable), pool_slice("new", larger, generation=2))
    await world.write(stored_claim("a", taken("gpu-0", share="1", memory="15")))


async def test_a_record_whose_claim_is_gone_does_not_block(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0")))
    await world.store.commit([Delete(object_key(GROUP, "resourceclaims", "ns", "a"))])
    await world.write(stored_claim("b", taken("gpu-0")))
    await refused(world, stored_claim("c", taken("gpu-0")), "claim ns/b")


async def test_claims_without_records_get_them_at_the_next_start(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0")))
    await world.store.commit([Delete(key) for key in await world.guard_keys()])
    assert await world.guard.repair() == 1
    assert await world.guard.repair() == 0
    await refused(world, stored_claim("b", taken("gpu-0")), "claim ns/a")


async def test_a_dry_run_hears_the_same(world: World) -> None:
    await world.write(stored_claim("a", taken("gpu-0")))
    with pytest.raises(ApiError, match="already allocated to claim ns/a"):
        await world.guard.changes(None, stored_claim("b", taken("gpu-0")))
    await world.guard.changes(None, stored_claim("b", taken("gpu-1")))


async def storm(worlds: list[World], seed: int) -> None:
    """Many claims grab and drop devices through several servers; afterwards every promise holds."""
    random_source = random.Random(seed)
    await worlds[0].publish(
        pool_slice("counters", counters={"card": {"slots": "6"}}),
        pool_slice(
            "devices",
            *(partition(f"part-{number}", "2") for number in range(5)),
            *({"name": f"gpu-{number}"} for number in range(4)),
            {"name": "shared", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}},
        ),
    )
    names = [f"part-{number}" for number in range(5)] + [f"gpu-{number}" for number in range(4)]

    async def claim_and_drop(number: int) -> int:
        wins = 0
        world = worlds[number % len(worlds)]
        for step in range(6):
            results = [taken(name) for name in random_source.sample(names, 2)]
            results.append(taken("shared", share=f"{number}-{step}", memory=str(random_source.randint(1, 6))))
            try:
                await world.write(stored_claim(f"c{number}", *results))
                wins += 1
            except ApiError:
                continue
            await asyncio.sleep(0)
            await check_promises(world.store)
            if random_source.random() < 0.7:
                await world.write(stored_claim(f"c{number}"))
        return wins

    wins = await asyncio.gather(*(claim_and_drop(number) for number in range(10)))
    assert sum(wins) > 5
    await check_promises(worlds[0].store)


async def check_promises(store: Store) -> None:
    page = await store.list(f"/registry/{GROUP}/resourceclaims/")
    holders: dict[str, str] = {}
    memory, slots = 0, 0
    for entry in page.entries:
        claim = msgspec.json.decode(entry.value)
        for share in shares_of(claim):
            device = share.device[2]
            if device == "shared":
                memory += dict(share.capacity)["memory"]
                continue
            assert device not in holders, f"{device} belongs to {holders.get(device)} and {entry.key}"
            holders[device] = entry.key
            slots += 2 if device.startswith("part") else 0
    assert memory <= 10 * 10**9
    assert slots <= 6


async def test_a_storm_of_claims_keeps_every_promise(world: World) -> None:
    await storm([world], seed=1)
    for number in range(10):
        await world.write(stored_claim(f"c{number}"))
    assert await world.guard_keys() == []
