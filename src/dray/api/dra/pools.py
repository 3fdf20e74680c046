"""Pools of devices: which slices count and whether a pool is complete. Pure.

A driver that changes several slices of a pool raises the pool's generation. Slices of older generations no longer
count. Until all slices of the newest generation are published the pool is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice

T = TypeVar("T")

PoolID = tuple[str, str]
"""Driver and pool name."""


class DeviceID(NamedTuple):
    """One allocatable thing, the same in every claim and slice that names it."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


def pool_id(published: ResourceSlice) -> PoolID:
    return published.spec.driver, published.spec.pool.name


def device_id(result: DeviceRequestAllocationResult) -> DeviceID:
    """The device of one allocation result."""
    return DeviceID(result.driver, result.pool, result.device)


def newest_by(items: Iterable[T], generation: Callable[[T], int]) -> list[T]:
    """Those of the highest generation, in their order; for slices in any form. All must be of one pool."""
    items = list(items)
    if len(items) == 1:
        return items
    newest = max(map(generation, items), default=0)
    return [item for item in items if generation(item) == newest]


def newest_of_pool(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Slices of the newest generation of one pool, in their order."""
    return newest_by(slices, _generation)


def newest_generations(slices: Iterable[ResourceSlice]) -> dict[PoolID, int]:
    newest: dict[PoolID, int] = {}
    for published in slices:
        pool, generation = pool_id(published), published.spec.pool.generation
        newest[pool] = max(newest.get(pool, generation), generation)
    return newest


def newest_of_each_pool(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Slices of any pools without those that a newer generation of their pool has replaced, in their order."""
    slices = list(slices)
    newest = newest_generations(slices)
    return [published for published in slices if published.spec.pool.generation == newest[pool_id(published)]]


def slices_by_pool(slices: Iterable[ResourceSlice]) -> dict[PoolID, list[ResourceSlice]]:
    pools: dict[PoolID, list[ResourceSlice]] = {}
    for published in slices:
        pools.setdefault(pool_id(published), []).append(published)
    return pools


def wanted_slices(newest: Sequence[ResourceSlice]) -> int:
    """How many slices make the pool complete; the slices are those of `newest_of_pool`."""
    return max((published.spec.pool.resource_slice_count for published in newest), default=0)


def is_complete(newest: Sequence[ResourceSlice]) -> bool:
    """Whether all slices of the newest generation are published; the slices are those of `newest_of_pool`."""
    return len(newest) == wanted_slices(newest)


def published_devices(slices: Iterable[ResourceSlice]) -> Iterator[tuple[DeviceID, Device]]:
    """The devices of these slices; the caller leaves out old generations first."""
    for published in slices:
        driver, pool = pool_id(published)
        for device in published.spec.devices:
            yield DeviceID(driver, pool, device.name), device


def _generation(published: ResourceSlice) -> int:
    return published.spec.pool.generation
