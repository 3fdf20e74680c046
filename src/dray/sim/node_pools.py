"""Node pools: nodes of one kind each, with their capacity, labels, taints, drivers and slices, in Python or from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dray.api.codec import shape_document, to_object
from dray.api.core import Taint
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.names import label_problems
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import API_VERSION, ResourceSliceSpec
from dray.api.versions import to_storage
from dray.driver import Driver, Pool, PoolSlice
from dray.driver.example import DRIVERS
from dray.features import FeatureGates
from dray.kubelet.node import MAX_PODS, NodeDescription, declared_features
from dray.validation import ValidationContext, validate_create

DriverSource = Driver | Callable[[], Driver]
Document = dict[str, Any]

MOST_NODES = 20000
NODE = "{node}"
# The publisher decides on these, and which node a slice belongs to is the pool's business.
_OF_THE_PUBLISHER = ("nodeName", "pool")
_OF_OTHER_NODES = ("nodeSelector", "allNodes", "perDeviceNodeSelection")


class NodePoolError(ValueError):
    """A node pool that cannot be; the text says which one, and why."""


class NodePool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Nodes `NAME-1` to `NAME-COUNT`, which are alike.

    `devices` names drivers that come with Dray. `drivers` are further ones: a class or another function that makes one, or,
    for a pool of one node, a driver itself. `slices` are ResourceSlices, or their specs, that every node of the pool
    publishes as its own; `{node}` in them stands for the node's name. `simulated` nodes have no processes: their pods run on
    paper. By default more than ten nodes are simulated.
    """

    name: str = "node"
    count: int = 1
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = MAX_PODS
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    devices: tuple[str, ...] = ()
    slices: tuple[Document, ...] = ()
    simulated: bool | None = None
    drivers: tuple[Any, ...] = ()

    def descriptions(self, gates: FeatureGates) -> list[NodeDescription]:
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        capacity = {name: Quantity.parse(amount) for name, amount in amounts.items()}
        return [
            NodeDescription(
                f"{self.name}-{number}",
                capacity,
                self.labels,
                declared_features=declared_features(gates),
                runtime="process",
                taints=self.taints,
            )
            for number in range(1, self.count + 1)
        ]

    def driver_names(self) -> list[str]:
        """Those that come with Dray by their short names."""
        return [*self.devices, *dict.fromkeys(_spec_of(each)["driver"] for each in self.slices)]

    def make_drivers(self) -> list[Driver]:
        """The drivers of one node, made anew."""
        given = [each if isinstance(each, Driver) else each() for each in self.drivers]
        return [*(DRIVERS[name]() for name in self.devices), *given, *self._drivers_of_slices()]

    def _drivers_of_slices(self) -> Iterator[SliceDriver]:
        specs = [_spec_of(each) for each in self.slices]
        for driver in dict.fromkeys(spec["driver"] for spec in specs):
            yield SliceDriver(driver, [spec for spec in specs if spec["driver"] == driver])


class SliceDriver(Driver):
    """Publishes slices as they were written; a container that uses their devices gets nothing but their metadata."""

    def __init__(self, name: str, specs: Sequence[Document]) -> None:
        self.name = name
        self._specs = specs

    def pools(self, node_name: str) -> Iterable[Pool]:
        slices: dict[str, list[PoolSlice]] = {}
        for template in self._specs:
            spec = _filled(template, node_name)
            slices.setdefault(spec["pool"]["name"], []).append(_pool_slice(spec))
        return [Pool(name, slices=tuple(of_pool)) for name, of_pool in slices.items()]


def _pool_slice(document: Document) -> PoolSlice:
    spec = to_object(document, ResourceSliceSpec)
    return PoolSlice(
        spec.devices,
        spec.shared_counters,
        partition_type_attribute=spec.partition_type_attribute,
        skip_node_operations=spec.skip_node_operations,
    )


def _spec_of(document: Document) -> Document:
    """The spec of a slice, with a pool of the node's name unless it has one of its own."""
    spec = document.get("spec", document)
    pool = spec.get("pool")
    name = (pool.get("name") if isinstance(pool, dict) else None) or NODE
    # Slices that were taken from a cluster have the name of their node there.
    name = NODE if name == spec.get("nodeName") else name
    return {**{key: value for key, value in spec.items() if key not in _OF_THE_PUBLISHER}, "pool": {"name": name}}


def _filled(value: Any, node_name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, node_name) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, node_name) for each in value]
    return value.replace(NODE, node_name) if isinstance(value, str) else value


# --- reading and checking -------------------------------------------------------------------------------------------------


class _PoolsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    node_pools: tuple[NodePool, ...]


def read_node_pools(path: Path) -> tuple[NodePool, ...]:
    """The pools of a YAML file with a list `nodePools`; NodePoolError says what is wrong with it."""
    try:
        found = msgspec.convert(yaml.safe_load(path.read_text()), _PoolsFile).node_pools
        if any(pool.drivers for pool in found):
            raise NodePoolError("drivers: only drivers of Dray can be named, under devices")
        check_node_pools(found)
    except (OSError, UnicodeDecodeError) as error:
        raise NodePoolError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from error
    except (yaml.YAMLError, msgspec.ValidationError, NodePoolError) as error:
        raise NodePoolError(f"{path}: {' '.join(str(error).split())}") from error
    return found


def check_node_pools(pools: Sequence[NodePool]) -> None:
    """Raise NodePoolError unless the pools can be made as they stand."""
    names = [pool.name for pool in pools]
    for pool in pools:
        if names.count(pool.name) > 1:
            raise NodePoolError(f"node pool {pool.name} is there twice")
        for problem in _problems(pool):
            raise NodePoolError(f"node pool {pool.name!r}: {problem}")
    if sum(pool.count for pool in pools) > MOST_NODES:
        raise NodePoolError(f"at most {MOST_NODES} nodes")


def known_drivers(names: Sequence[str]) -> tuple[str, ...]:
    """The names of drivers that come with Dray, if all are known; NodePoolError says which is not."""
    for name in names:
        if name not in DRIVERS:
            raise NodePoolError(f"{name}: no such devices; known are {', '.join(sorted(DRIVERS))}")
    return tuple(names)


def _problems(pool: NodePool) -> Iterator[str]:
    yield from (f"name: {problem}" for problem in label_problems(pool.name))
    if pool.count < 0:
        yield f"count: {pool.count} must not be negative"
    for name, amount in (("cpu", pool.cpu), ("memory", pool.memory)):
        try:
            Quantity.parse(amount)
        except QuantityError as error:
            yield f"{name}: {error}"
    try:
        known_drivers(pool.devices)
    except NodePoolError as error:
        yield f"devices: {error}"
    for driver in pool.drivers:
        if isinstance(driver, Driver) and pool.count > 1:
            kind = type(driver).__name__
            yield f"drivers: {kind}() is one driver for {pool.count} nodes; give {kind} or a function that makes one"
    for number, document in enumerate(pool.slices):
        yield from (f"slices[{number}]: {problem}" for problem in _slice_problems(pool, document))


def _slice_problems(pool: NodePool, document: Document) -> Iterator[str]:
    """What the API server would say of the slice on the first node."""
    if not isinstance(document.get("spec", {}), dict):
        yield "spec: must be an object"
        return
    spec = _spec_of(document)
    for what, value in (("driver", spec.get("driver")), ("pool.name", spec["pool"]["name"])):
        if not isinstance(value, str):
            yield f"{what}: must be a name, not {value!r}"
            return
    for field in _OF_OTHER_NODES:
        if spec.get(field):
            yield f"{field}: the slices of a node pool belong to its nodes; apply others with kubectl"
    name = spec["pool"]["name"]
    if pool.count > 1 and NODE not in name:
        yield f"pool.name: {name!r} must contain {NODE}, since the node pool has {pool.count} nodes"
    node_name = f"{pool.name}-1"
    filled = _filled(spec, node_name)
    whole = {**filled, "nodeName": node_name, "pool": {**filled["pool"], "generation": 1, "resourceSliceCount": 1}}
    slice_document = {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool.name}-slice"},
        "spec": whole,
    }
    try:
        shaped = to_storage(apply_defaults(shape_document(slice_document).strict(), ""))
    except DecodeError as error:
        yield str(error)
        return
    gates = FeatureGates.default()
    yield from map(str, validate_create(shaped, ValidationContext(gates, {}, API_VERSION)))
