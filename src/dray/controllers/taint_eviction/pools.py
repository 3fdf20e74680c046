"""The taints that drivers publish with their devices: those of each pool's newest generation."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.resource import DeviceTaint, ResourceSlice

PoolID = tuple[str, str]


def pool_of(resource_slice: ResourceSlice) -> PoolID:
    return resource_slice.spec.driver, resource_slice.spec.pool.name


class PublishedTaints:
    """Fed with slices; answers which taints a device has now. Pools without taints cost nothing to ask."""

    def __init__(self) -> None:
        self._slices: dict[PoolID, dict[str, ResourceSlice]] = {}
        self._taints: dict[PoolID, dict[str, tuple[DeviceTaint, ...]]] = {}

    def put(self, resource_slice: ResourceSlice) -> bool:
        """True if the taints of the pool are others now."""
        pool = pool_of(resource_slice)
        self._slices.setdefault(pool, {})[resource_slice.metadata.name] = resource_slice
        return self._refresh(pool)

    def remove(self, resource_slice: ResourceSlice) -> bool:
        pool = pool_of(resource_slice)
        slices = self._slices.get(pool, {})
        slices.pop(resource_slice.metadata.name, None)
        if not slices:
            self._slices.pop(pool, None)
        return self._refresh(pool)

    def __bool__(self) -> bool:
        return bool(self._taints)

    def of(self, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
        return self._taints.get((driver, pool), {}).get(device, ())

    def devices(self) -> Iterable[tuple[str, str, str]]:
        """Every published device of the newest generations, as driver, pool and device."""
        for pool, slices in self._slices.items():
            for resource_slice in _newest(slices.values()):
                for device in resource_slice.spec.devices:
                    yield (*pool, device.name)

    def _refresh(self, pool: PoolID) -> bool:
        taints: dict[str, tuple[DeviceTaint, ...]] = {}
        for resource_slice in _newest(self._slices.get(pool, {}).values()):
            for device in resource_slice.spec.devices:
                if device.taints:
                    taints[device.name] = taints.get(device.name, ()) + device.taints
        before = self._taints.get(pool, {})
        if taints:
            self._taints[pool] = taints
        else:
            self._taints.pop(pool, None)
        return taints != before


def _newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    slices = list(slices)
    generation = max((item.spec.pool.generation for item in slices), default=0)
    return [item for item in slices if item.spec.pool.generation == generation]
