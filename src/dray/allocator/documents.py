"""Allocates one claim from plain documents, as a script has them from YAML or JSON files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.allocator.allocator import Allocator
from dray.allocator.inventory import Inventory
from dray.allocator.ledger import Ledger
from dray.allocator.results import Allocation
from dray.allocator.scenarios import numbered_shares
from dray.allocator.types import Failure, Features, ShareIDs
from dray.api import codec
from dray.api.core import Node
from dray.api.defaults import apply_defaults
from dray.api.dra.pools import DeviceID
from dray.api.errors import DecodeError
from dray.api.meta import ObjectMeta
from dray.api.resource import API_VERSION, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.versions import to_storage

Document = dict[str, Any]

_KINDS: dict[str, type[Any]] = {
    each.__name__: each for each in (Node, ResourceSlice, DeviceClass, ResourceClaim, DeviceTaintRule)
}
# The time that defaults use; no answer depends on it.
_NOW = "2024-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Allocated:
    """The first node that can serve the claim, and what belongs into the claim's `status.allocation` then."""

    node: str
    devices: tuple[DeviceID, ...]
    allocation: Document


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """Why not, for each node."""

    reasons: Mapping[str, str]

    def __str__(self) -> str:
        return "; ".join(f"{node}: {reason}" for node, reason in self.reasons.items()) or "there are no nodes"


def allocate(
    objects: Iterable[Mapping[str, Any]],
    claim: Mapping[str, Any],
    *,
    features: Features | None = None,
    policy: str = "first-fit",
    share_ids: ShareIDs | None = None,
) -> Allocated | NotAllocated:
    """Which devices would this claim get?

    `objects` are documents of nodes, slices, classes, claims and taint rules, in any served version, also in Lists; other kinds are
    passed over. Defaults are applied as the API server applies them. Claims with an allocation hold their devices. Nodes are
    asked in the order in which they come; without any, those that the slices name. `DecodeError` names an object that cannot be read.
    """
    world = _World(features or Features())
    for document in objects:
        for item in _opened(document):
            world.add(item)
    wanted = _object({"kind": "ResourceClaim", **claim}, ResourceClaim)
    assert isinstance(wanted, ResourceClaim)
    question = Allocator(world.inventory, world.ledger, world.classes, policy).fresh_question([wanted])
    reasons: dict[str, str] = {}
    for node, answer in question.on_nodes(world.nodes_to_ask()):
        if isinstance(answer, Allocation):
            (result,) = answer.results(share_ids or numbered_shares())
            devices = tuple(DeviceID(each.driver, each.pool, each.device) for each in result.devices.results)
            return Allocated(node.metadata.name, devices, codec.to_document(result))
        reasons[node.metadata.name] = answer.message if isinstance(answer, Failure) else str(answer)
    return NotAllocated(reasons)


@dataclass(slots=True)
class _World:
    features: Features
    nodes: list[Node] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    inventory: Inventory = field(init=False)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.inventory = Inventory(self.features)
        self.ledger = Ledger(self.features)

    def add(self, document: Mapping[str, Any]) -> None:
        kind = _KINDS.get(str(document.get("kind")))
        if kind is None:
            return
        obj = _object(document, kind)
        if isinstance(obj, Node):
            self.nodes.append(obj)
        elif isinstance(obj, ResourceSlice):
            self.slices.append(obj)
            self.inventory.apply_slice(obj)
        elif isinstance(obj, DeviceClass):
            self.classes.append(obj)
        elif isinstance(obj, ResourceClaim):
            self.ledger.apply_claim(obj)
        else:
            self.inventory.apply_taint_rule(obj)

    def nodes_to_ask(self) -> list[Node]:
        if self.nodes:
            return self.nodes
        named = dict.fromkeys(each.spec.node_name for each in self.slices if each.spec.node_name)
        return [Node(metadata=ObjectMeta(name=name)) for name in named] or [Node()]


def _opened(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    kind, items = str(document.get("kind") or ""), document.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield document
        return
    said = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    yield from ({**said, **item} for item in items)


def _object(document: Mapping[str, Any], kind: type[Any]) -> Any:
    version = document.get("apiVersion") or ("v1" if kind is Node else API_VERSION)
    metadata = dict(document.get("metadata") or {})
    if kind is ResourceClaim:
        metadata.setdefault("namespace", "default")
    try:
        shaped = codec.shape_document({**document, "apiVersion": version, "metadata": metadata}).strict()
        return codec.to_object(to_storage(apply_defaults(shaped, _NOW)), kind)
    except DecodeError as problem:
        raise DecodeError(f"{kind.__name__} {metadata.get('name', '')}: {problem}") from None
