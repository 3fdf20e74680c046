"""Which nodes can notice a change of a slice or pool."""

from collections.abc import Set

from dray.allocator.types import PoolID
from dray.api.resource import ResourceSlice

_NOBODY: frozenset[str] = frozenset()


class DeviceReach:
    """Node names by pool; None stands for every node, since selectors and shared pools may reach any."""

    def __init__(self) -> None:
        self._pool_of: dict[str, PoolID] = {}
        self._slices: dict[PoolID, dict[str, str | None]] = {}

    def set(self, published: ResourceSlice) -> None:
        name, spec = published.metadata.name, published.spec
        self.drop(name)
        pool = (spec.driver, spec.pool.name)
        self._pool_of[name] = pool
        self._slices.setdefault(pool, {})[name] = spec.node_name or None

    def drop(self, slice_name: str) -> None:
        pool = self._pool_of.pop(slice_name, None)
        if pool is None:
            return
        slices = self._slices[pool]
        del slices[slice_name]
        if not slices:
            del self._slices[pool]

    def of_pool(self, pool: PoolID) -> Set[str] | None:
        slices = self._slices.get(pool)
        if slices is None:
            return _NOBODY
        if len(slices) == 1:
            (only,) = slices.values()
            return None if only is None else {only}
        names = set(slices.values())
        return None if None in names else {name for name in names if name is not None}

    def of_slice(self, slice_name: str) -> Set[str] | None:
        """The nodes of its whole pool: whether a pool is complete depends on all its slices."""
        pool = self._pool_of.get(slice_name)
        return _NOBODY if pool is None else self.of_pool(pool)
