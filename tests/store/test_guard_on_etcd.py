"""The double-allocation guard across several API servers on one etcd."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
from tests.builders.manifests import a_claim, a_result

from dray.apiserver.errors import ApiError
from dray.apiserver.guard.claim_guard import ClaimGuard
from dray.apiserver.guard.device_records import PublishedDevices, shares_of
from dray.apiserver.watch.kind_cache import StoreFollower
from dray.apiserver.watch.stored_object import object_key, to_value
from dray.clock import RealClock
from dray.store.errors import Conflict
from dray.store.interface import Precondition, Put, Store
from dray.store.store_url import open_store

Document = dict[str, Any]
GROUP = "resource.k8s.io"
DEVICES = [f"gpu-{number}" for number in range(4)]


def stored_claim(name: str, *devices: str) -> Document:
    results = [a_result(device, pool="p") for device in devices]
    return a_claim(name, namespace="ns", uid=f"uid-{name}", results=results)


async def write(store: Store, guard: ClaimGuard, claim: Document) -> bool:
    key = object_key(GROUP, "resourceclaims", "ns", claim["metadata"]["name"])
    while True:
        entry = await store.get(key)
        old = msgspec.json.decode(entry.value) if entry else None
        condition = Precondition(key, entry.revision if entry else 0)
        try:
            await guard.commit([Put(key, to_value(claim))], [condition], old, claim)
        except Conflict:
            continue
        except ApiError:
            return False
        return True


async def holders(store: Store) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in (await store.list(f"/registry/{GROUP}/resourceclaims/")).entries:
        for share in shares_of(msgspec.json.decode(entry.value)):
            found.setdefault(share.device[2], []).append(entry.key)
    return found


async def test_two_servers_never_give_a_device_twice(etcd_address: str, tmp_path: Path) -> None:
    stores = [await open_store(f"etcd://{etcd_address}/guard", tmp_path) for _ in range(2)]
    followers = [StoreFollower(store, RealClock()) for store in stores]
    guards = [
        ClaimGuard(store, PublishedDevices.following(follower))
        for store, follower in zip(stores, followers, strict=True)
    ]
    for follower in followers:
        await follower.start()
    chance = random.Random(7)

    async def scheduler(number: int) -> int:
        store, guard = stores[number % 2], guards[number % 2]
        wins = 0
        for _ in range(12):
            if await write(store, guard, stored_claim(f"c{number}", *chance.sample(DEVICES, 2))):
                wins += 1
                assert all(len(names) == 1 for names in (await holders(store)).values())
                await write(store, guard, stored_claim(f"c{number}"))
        return wins

    wins = await asyncio.gather(*(scheduler(number) for number in range(6)))
    assert sum(wins) > 6
    assert await holders(stores[0]) == {}
    assert (await stores[1].list("/guard/")).entries == ()
    for follower in followers:
        await follower.stop()
    for store in stores:
        await store.close()


async def test_the_same_device_at_the_same_moment_goes_to_exactly_one(etcd_address: str, tmp_path: Path) -> None:
    stores = [await open_store(f"etcd://{etcd_address}/moment", tmp_path) for _ in range(2)]
    followers = [StoreFollower(store, RealClock()) for store in stores]
    guards = [
        ClaimGuard(store, PublishedDevices.following(follower))
        for store, follower in zip(stores, followers, strict=True)
    ]
    for follower in followers:
        await follower.start()
    answers = await asyncio.gather(
        *(write(stores[number % 2], guards[number % 2], stored_claim(f"c{number}", "gpu-0")) for number in range(10))
    )
    assert sum(answers) == 1
    for follower in followers:
        await follower.stop()
    for store in stores:
        await store.close()
