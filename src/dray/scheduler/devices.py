"""Devices as the scheduler knows them: what is published, what is taken and which claims there are, with its own newer writes."""

from collections.abc import Callable, Iterable, Iterator, Set
from operator import attrgetter

from dray.accounting import Policy, manages_node_resources
from dray.accounting.devices import DeviceIndex
from dray.allocator import Allocation, Allocator, Features, Inventory, Ledger, Question
from dray.api.dra.pools import PoolID
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    IMPLICIT_EXTENDED_RESOURCE_PREFIX,
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dray.scheduler.framework.filtering import (
    EVERY_NODE,
    NodeChangeLog,
)
from dray.scheduler.framework.interface import NodeFacet
from dray.scheduler.nodes import NodeList, NodeState

_resources_of = attrgetter("node_allocatable_resources")
_mappings_of = attrgetter("node_allocatable_resource_mappings")

ClaimChange = Callable[[ResourceClaim | None, ResourceClaim | None], None]
"""Told the claim before and after; None where there is none."""
PreferredDevices = Callable[[Question, NodeState], Allocation | None]
"""Answers with the devices that a policy prefers on a node; None if it has no preference."""


def revision_of(claim: ResourceClaim) -> int:
    text = claim.metadata.resource_version
    return int(text) if text.isdigit() else 0


class AssumedClaims:
    """Keeps the version with the higher revision, whether the watch or our own write brought it.

    Of two equal versions it keeps the one that the watch showed: the informer has that anyway, and ours would be a second copy.
    """

    def __init__(self, on_change: ClaimChange) -> None:
        self._latest: dict[tuple[str, str], ResourceClaim] = {}
        self._on_change = on_change

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        return self._latest.get((namespace, name))

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)

    def watched(self, claim: ResourceClaim) -> None:
        """The watch shows this version. It is ignored where our own write is newer."""
        key = (claim.metadata.namespace, claim.metadata.name)
        known = self._latest.get(key)
        if known is not None and known.metadata.uid == claim.metadata.uid:
            shown, ours = revision_of(claim), revision_of(known)
            if shown == ours:
                self._latest[key] = claim
            if shown <= ours:
                return
        self._replace(key, claim)

    def gone(self, claim: ResourceClaim) -> None:
        key = (claim.metadata.namespace, claim.metadata.name)
        known = self._latest.get(key)
        # A write of ours may have created the next claim of that name already.
        if known is not None and (known.metadata.uid == claim.metadata.uid or not claim.metadata.uid):
            del self._latest[key]
            self._on_change(known, None)

    def wrote(self, claim: ResourceClaim) -> None:
        """The API server answered our write with this version."""
        key = (claim.metadata.namespace, claim.metadata.name)
        known = self._latest.get(key)
        if known is None or revision_of(claim) > revision_of(known):
            self._replace(key, claim)

    def _replace(self, key: tuple[str, str], claim: ResourceClaim) -> None:
        known = self._latest.get(key)
        self._latest[key] = claim
        if known is not None and known.metadata.uid != claim.metadata.uid:
            self._on_change(known, None)
            known = None
        self._on_change(known, claim)


_NOBODY: frozenset[str] = frozenset()


class DeviceReach:
    """The nodes that can use a pool, by name; None means every node, since selectors and shared pools may reach any."""

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


class ExtendedClasses:
    """Finds the class that serves an extended resource: by the name in its spec, and always by `deviceclass.resource.kubernetes.io/<class>`."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._by_name: dict[str, dict[str, DeviceClass]] = {}

    def set(self, device_class: DeviceClass) -> None:
        self.remove(device_class.metadata.name)
        self._classes[device_class.metadata.name] = device_class
        name = device_class.spec.extended_resource_name
        if name:
            self._by_name.setdefault(name, {})[device_class.metadata.name] = device_class

    def remove(self, class_name: str) -> None:
        known = self._classes.pop(class_name, None)
        if known is None or not known.spec.extended_resource_name:
            return
        classes = self._by_name[known.spec.extended_resource_name]
        del classes[class_name]
        if not classes:
            del self._by_name[known.spec.extended_resource_name]

    def serving(self, resource: str) -> DeviceClass | None:
        """Of several classes with the name the newest, then the one whose name sorts first."""
        if resource.startswith(IMPLICIT_EXTENDED_RESOURCE_PREFIX):
            return self._classes.get(resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE_PREFIX))
        classes = self._by_name.get(resource)
        if not classes:
            return None
        newest = max(row.metadata.creation_timestamp or "" for row in classes.values())
        return classes[min(name for name, row in classes.items() if (row.metadata.creation_timestamp or "") == newest)]


class DeviceState:
    """The devices of the cluster. Every change is entered in the log for the nodes that can reach them."""

    def __init__(self, features: Features, log: NodeChangeLog, nodes: NodeList, on_claim: ClaimChange) -> None:
        self.features = features
        self.inventory = Inventory(features)
        self.ledger = Ledger(features)
        self.allocator = Allocator(self.inventory, self.ledger)
        self.published = DeviceIndex()
        self.classes: dict[str, DeviceClass] = {}
        self.extended = ExtendedClasses()
        self.claims = AssumedClaims(self._claim_changed)
        self.in_flight: dict[str, ResourceClaim] = {}
        """Claims by UID whose allocation is decided and not yet stored."""
        self.preferred: PreferredDevices | None = None
        """Chooses among the devices of the node that a pod goes to; None: the first that fit."""
        self._extended_by_owner: dict[str, ResourceClaim] = {}
        self._reach = DeviceReach()
        self._needing_slices: set[str] = set()
        self._pool_slices: set[str] = set()
        self._log = log
        self._nodes = nodes
        self._on_claim = on_claim

    # --- published

    def set_slice(self, published: ResourceSlice) -> None:
        self._touch_reach(self._reach.of_slice(published.metadata.name))
        self.inventory.apply_slice(published)
        self.published.apply(published)
        self._reach.set(published)
        self._note_needs(published)
        self._touch_reach(self._reach.of_slice(published.metadata.name))

    def remove_slice(self, name: str) -> None:
        self._touch_reach(self._reach.of_slice(name))
        self.inventory.remove_slice(name)
        self.published.drop(name)
        self._reach.drop(name)
        self._needing_slices.discard(name)
        self._pool_slices.discard(name)

    def _note_needs(self, published: ResourceSlice) -> None:
        devices = published.spec.devices
        needs = any(map(_resources_of, devices)) or any(map(_mappings_of, devices))
        (self._needing_slices.add if needs else self._needing_slices.discard)(published.metadata.name)
        pools = needs and any(
            mapping.accounting_policy == Policy.CONSUME_FROM
            for device in devices
            for mapping in device.node_allocatable_resource_mappings.values()
        )
        (self._pool_slices.add if pools else self._pool_slices.discard)(published.metadata.name)

    @property
    def some_take_node_resources(self) -> bool:
        """Does any published device take cpu, memory or huge pages of its node?"""
        return bool(self._needing_slices)

    def replaces_spec_requests(self, class_names: Iterable[str]) -> bool:
        """May devices of these classes serve what a pod's spec asks for, so that the spec alone says little about fit?"""
        if not self._needing_slices:
            return False
        if self._pool_slices:
            return True
        classes = (self.classes.get(name) for name in class_names)
        return any(manages_node_resources(each) for each in classes if each is not None)

    def set_taint_rule(self, rule: DeviceTaintRule) -> None:
        self.inventory.apply_taint_rule(rule)
        self._log.add(NodeFacet.DEVICES, EVERY_NODE)

    def remove_taint_rule(self, name: str) -> None:
        self.inventory.remove_taint_rule(name)
        self._log.add(NodeFacet.DEVICES, EVERY_NODE)

    def set_class(self, device_class: DeviceClass) -> None:
        self.classes[device_class.metadata.name] = device_class
        self.allocator.apply_class(device_class)
        self.extended.set(device_class)
        self._log.add(NodeFacet.DEVICES, EVERY_NODE)

    def remove_class(self, name: str) -> None:
        self.classes.pop(name, None)
        self.allocator.remove_class(name)
        self.extended.remove(name)
        self._log.add(NodeFacet.DEVICES, EVERY_NODE)

    # --- taken

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before = old.status.allocation if old is not None else None
        after = new.status.allocation if new is not None else None
        if new is not None:
            self.ledger.apply_claim(new)
        elif old is not None:
            self.ledger.remove_claim(old.metadata.namespace, old.metadata.name)
        self._note_extended(old, new)
        if before is not after and before != after:
            self.touch(before)
            self.touch(after)
        self._on_claim(old, new)

    def _note_extended(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new if new is not None else old
        if claim is None or EXTENDED_RESOURCE_CLAIM_ANNOTATION not in claim.metadata.annotations:
            return
        for owner in claim.metadata.owner_references:
            if new is not None and new.metadata.deletion_timestamp is None:
                self._extended_by_owner[owner.uid] = claim
            else:
                self._extended_by_owner.pop(owner.uid, None)

    def extended_claim_of(self, pod_uid: str) -> ResourceClaim | None:
        """The claim for extended resources that an attempt made for the pod."""
        return self._extended_by_owner.get(pod_uid)

    def begin(self, claim: ResourceClaim) -> None:
        """The claim's allocation is decided; it counts from now on."""
        assert claim.status.allocation is not None
        self.in_flight[claim.metadata.uid] = claim
        self.ledger.assume(claim.metadata.namespace, claim.metadata.name, claim.status.allocation)
        self.touch(claim.status.allocation)

    def stored(self, claim_uid: str) -> None:
        self.in_flight.pop(claim_uid, None)

    def give_up(self, claim_uid: str) -> None:
        """Withdraw the decision; what the API server has stored stays."""
        claim = self.in_flight.pop(claim_uid, None)
        if claim is not None:
            self.ledger.forget(claim.metadata.namespace, claim.metadata.name)
            self.touch(claim.status.allocation)

    def touch(self, allocation: AllocationResult | None) -> None:
        """The devices of an allocation were taken or freed."""
        if allocation is None:
            return
        pools = {(result.driver, result.pool) for result in allocation.devices.results}
        for pool in pools:
            self._touch_reach(self._reach.of_pool(pool))

    def _touch_reach(self, names: Iterable[str] | None) -> None:
        mask = EVERY_NODE if names is None else self._nodes.mask_of(names)
        if mask:
            self._log.add(NodeFacet.DEVICES, mask)

    def check(self) -> None:
        self.ledger.check(self.claims)
