"""The pools of one driver on many nodes of one kind: described and encoded once, then only the names change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dray.api import codec
from dray.api.meta import OwnerReference
from dray.driver import Driver
from dray.driver.slices import Publisher, plan_pool

_SHARED = ("devices", "sharedCounters")


@dataclass(frozen=True, slots=True)
class PoolTemplate:
    """Slices as documents; what is the same on every node is in them as bytes."""

    slices: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, driver: Driver, node_name: str) -> PoolTemplate | None:
        """None for a driver that says more of a node than its name: such a driver has to be asked for each."""
        pools, others = list(driver.pools(node_name)), list(driver.pools("another-node"))
        if [replace(each, name="") for each in pools] != [replace(each, name="") for each in others]:
            return None
        if any(pool.name != node_name for pool in pools):
            return None
        publisher = Publisher(driver.name, node_name)
        plans = [plan_pool(publisher, pool, ()) for pool in pools]
        return cls(tuple(_template(codec.to_document(each)) for plan in plans for each in plan.creates))

    def slices_for(self, node_name: str, owner: OwnerReference) -> Iterator[bytes]:
        owners = [msgspec.to_builtins(owner)]
        for each in self.slices:
            metadata = {"generateName": f"{each['metadata']['generateName']}{node_name}-", "ownerReferences": owners}
            pool = {**each["spec"]["pool"], "name": node_name}
            spec = {**each["spec"], "nodeName": node_name, "pool": pool}
            yield msgspec.json.encode({**each, "metadata": metadata, "spec": spec})


def _template(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    encoded = {name: msgspec.Raw(msgspec.json.encode(spec[name])) for name in _SHARED if spec.get(name)}
    return {**document, "spec": {**spec, **encoded}}
