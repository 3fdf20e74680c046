"""The published devices by node: compiled once, updated slice by slice."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.change_log import ChangeLog
from dray.allocator.device_kinds import KindTable, ShapeTable
from dray.allocator.ledger import Ledger, PoolUse
from dray.allocator.node_selectors import node_matches
from dray.allocator.pools import CompiledSlice, CountersTable, Pool, PoolState, PoolView
from dray.allocator.types import Features
from dray.api.core import Node, NodeSelector
from dray.api.dra.pools import PoolID
from dray.api.resource import Device, DeviceTaintRule, ResourceSlice

NODE_OPERATIONS_FEATURE = "DRAOptionalNodeOperations"


class NodePools:
    """The pools of one node in search order; bit `offset + i` of a node's mask is device i of the pool."""

    __slots__ = (
        "__weakref__",
        "declares_operations",
        "incomplete",
        "invalid",
        "is_local",
        "is_plain",
        "name",
        "node",
        "offsets",
        "own_selector",
        "pools",
        "seen",
        "shapes",
        "size",
        "unreachable",
        "uses",
        "watches_cluster",
    )

    def __init__(self, node: Node, views: Iterable[PoolView]) -> None:
        self.node = node
        self.name = node.metadata.name
        self.pools: list[PoolView] = []
        self.incomplete: list[PoolView] = []
        self.invalid: list[PoolView] = []
        for view in sorted(views, key=lambda view: view.search_key):
            if view.state is PoolState.VALID:
                self.pools.append(view)
            elif view.state is PoolState.INVALID:
                self.invalid.append(view)
            else:
                self.incomplete.append(view)
        self.offsets: list[int] = []
        self.size = 0
        # Devices that only other nodes can use; selectors are asked about them all the same.
        self.unreachable = 0
        for view in self.pools:
            self.offsets.append(self.size)
            if view.is_per_device:
                self.unreachable |= _unreachable(view, node) << self.size
            self.size += len(view.names)
        self.shapes = tuple([view.shape for view in self.pools])
        # Nothing on this node needs more than a look at the device itself.
        self.is_plain = not self.unreachable and all(shape.is_plain for shape in self.shapes)
        self.is_local = all(view.is_local for view in self.pools)
        self.declares_operations = NODE_OPERATIONS_FEATURE in node.status.declared_features
        self.seen = -1
        self.watches_cluster = -1
        self.own_selector: NodeSelector | None = None
        self.uses: tuple[Ledger, list[PoolUse]] | None = None

    def uses_in(self, ledger: Ledger) -> list[PoolUse]:
        """The taken devices of each pool, in the order of the pools."""
        if self.uses is None or self.uses[0] is not ledger:
            self.uses = (ledger, [ledger.use(view.pool_id) for view in self.pools])
        return self.uses[1]

    def locate(self, position: int) -> tuple[PoolView, int]:
        """The pool and the place in it of the device behind one bit."""
        index = len(self.pools) - 1
        while self.offsets[index] > position:
            index -= 1
        return self.pools[index], position - self.offsets[index]


def _unreachable(view: PoolView, node: Node) -> int:
    mask = 0
    for position, (device, compiled) in enumerate(zip(view.devices, view.slices, strict=True)):
        if compiled.spec.per_device_node_selection and not _device_reaches(device, node):
            mask |= 1 << position
    return mask


def _device_reaches(device: Device, node: Node) -> bool:
    if device.node_name is not None:
        return device.node_name == node.metadata.name
    if device.all_nodes:
        return True
    return device.node_selector is not None and node_matches(device.node_selector, node)


def slice_reaches(compiled: CompiledSlice, node: Node) -> bool:
    """Whether a slice that names no node concerns this one."""
    spec = compiled.spec
    if spec.node_name:
        return spec.node_name == node.metadata.name
    if spec.all_nodes:
        return True
    if spec.node_selector is not None:
        return node_matches(spec.node_selector, node)
    if spec.per_device_node_selection:
        reaching = [_device_reaches(device, node) for device in spec.devices]
        return any(reaching)
    return False


class Inventory:
    """All slices of the cluster. Changing one costs its own pool, not the cluster."""

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()
        self.kinds = KindTable()
        self._counters = CountersTable()
        self.shapes = ShapeTable()
        self._pools: dict[PoolID, Pool] = {}
        self._slices: dict[str, CompiledSlice] = {}
        self._published: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        # Slices for one node by that node; slices for many, which every node has to look at.
        self._local: dict[str, dict[PoolID, set[str]]] = {}
        self._wide: dict[PoolID, set[str]] = {}
        self._node_pools: dict[str, NodePools] = {}
        # Changes so far on a node, and of slices that concern many nodes.
        self._node_version: dict[str, int] = {}
        self._wide_version = 0
        # Nodes whose pools changed; None: a pool that many nodes see.
        self.changes: ChangeLog[str | None] = ChangeLog()

    # --- changes -----------------------------------------------------------------------------------------------------

    def apply_slice(self, published: ResourceSlice) -> None:
        name = published.metadata.name
        if name in self._published:
            self.remove_slice(name)
        self._published[name] = published
        compiled = CompiledSlice(published, self.kinds, self._rules.values())
        self._slices[name] = compiled
        spec = published.spec
        pool_id = (spec.driver, spec.pool.name)
        pool = self._pools.get(pool_id)
        if pool is None:
            pool = self._pools[pool_id] = Pool(pool_id)
        pool.slices[name] = compiled
        if compiled.is_offered(self.features):
            where = self._wide if not spec.node_name else self._local.setdefault(spec.node_name, {})
            where.setdefault(pool_id, set()).add(name)
        self._touch(pool)

    def remove_slice(self, name: str) -> None:
        self._published.pop(name, None)
        compiled = self._slices.pop(name, None)
        if compiled is None:
            return
        spec = compiled.spec
        pool_id = (spec.driver, spec.pool.name)
        pool = self._pools[pool_id]
        self._touch(pool)
        del pool.slices[name]
        where = self._wide if not spec.node_name else self._local.get(spec.node_name, {})
        if (offered := where.get(pool_id)) is not None:
            offered.discard(name)
            if not offered:
                del where[pool_id]
        if not pool.slices:
            del self._pools[pool_id]

    def apply_taint_rule(self, rule: DeviceTaintRule) -> None:
        before = self._rules.get(rule.metadata.name)
        if before is not None and before.spec == rule.spec:
            self._rules[rule.metadata.name] = rule
            return
        self._rules[rule.metadata.name] = rule
        self._recompile(rule if before is None else None)

    def remove_taint_rule(self, name: str) -> None:
        rule = self._rules.pop(name, None)
        if rule is not None:
            self._recompile(rule)

    def _recompile(self, rule: DeviceTaintRule | None) -> None:
        """Compiles again the slices that a rule reaches; all of them where a rule changed its selector."""
        wanted = rule.spec.device_selector if rule is not None else None
        for name, compiled in list(self._slices.items()):
            spec = compiled.spec
            if wanted is None or (wanted.driver in (None, spec.driver) and wanted.pool in (None, spec.pool.name)):
                pool = self._pools[spec.driver, spec.pool.name]
                self._slices[name] = pool.slices[name] = CompiledSlice(compiled.slice, self.kinds, self._rules.values())
                self._touch(pool)

    def _touch(self, pool: Pool) -> None:
        """The nodes that see the pool must look again."""
        pool.changed()
        for compiled in pool.slices.values():
            node_name = compiled.spec.node_name
            if node_name:
                self._node_version[node_name] = self._node_version.get(node_name, 0) + 1
                self.changes.append(node_name)
            else:
                self._wide_version += 1
                self.changes.append(None)

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def slices(self) -> dict[str, ResourceSlice]:
        return self._published

    @property
    def taint_rules(self) -> Iterable[DeviceTaintRule]:
        return self._rules.values()

    def nodes_of(self, pool_id: PoolID) -> set[str] | None:
        """The nodes for which the pool has slices; None: there may be others."""
        pool = self._pools.get(pool_id)
        if pool is None:
            return set()
        if pool_id in self._wide:
            return None
        return {compiled.spec.node_name for compiled in pool.slices.values() if compiled.spec.node_name}

    def pool_ids(self) -> Iterable[PoolID]:
        """Pools with at least one slice whose devices may be used."""
        return [pool_id for pool_id in self._pools if self._offered(pool_id)]

    def whole_pool(self, pool_id: PoolID) -> PoolView | None:
        """Every slice of the pool, wherever its devices can be used; None if there is no such pool."""
        offered = self._offered(pool_id)
        return self._pools[pool_id].view(offered, self.features, self.shapes, self._counters) if offered else None

    def _offered(self, pool_id: PoolID) -> frozenset[str]:
        slices = self._pools[pool_id].slices if pool_id in self._pools else {}
        return frozenset([name for name, compiled in slices.items() if compiled.is_offered(self.features)])

    def pools_on(self, node: Node) -> NodePools:
        """The pools that `node` can reach, in the order in which the search tries them."""
        name = node.metadata.name
        version = self._node_version.get(name, 0)
        known = self._node_pools.get(name)
        if (
            known is not None
            and known.seen == version
            and known.watches_cluster == self._wide_version
            and (known.node is node or _same_node(known.node, node))
        ):
            known.node = node
            return known
        known = NodePools(node, self._views(node))
        known.seen, known.watches_cluster = version, self._wide_version
        self._node_pools[name] = known
        return known

    def forget_node(self, name: str) -> None:
        self._node_pools.pop(name, None)

    def _views(self, node: Node) -> list[PoolView]:
        local = self._local.get(node.metadata.name, {})
        names_by_pool: dict[PoolID, set[str]] = {pool_id: set(names) for pool_id, names in local.items()}
        for pool_id, names in self._wide.items():
            slices = self._pools[pool_id].slices
            reaching = [name for name in names if slice_reaches(slices[name], node)]
            if reaching:
                names_by_pool.setdefault(pool_id, set()).update(reaching)
        views = []
        for pool_id, relevant in names_by_pool.items():
            view = self._pools[pool_id].view(frozenset(relevant), self.features, self.shapes, self._counters)
            if view is not None:
                views.append(view)
        return views


def _same_node(known: Node, node: Node) -> bool:
    return (
        known.metadata.labels == node.metadata.labels
        and known.status.declared_features == node.status.declared_features
    )
