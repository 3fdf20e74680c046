"""What is published, what is taken and which claims there are, kept current by changes."""

from collections.abc import Iterable

from dray.accounting.devices import DeviceIndex
from dray.allocator import Allocator, Features, Inventory, Ledger
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dray.scheduler.assumed import AssumedClaims, ClaimChange
from dray.scheduler.device_reach import DeviceReach
from dray.scheduler.extended_classes import ExtendedClasses
from dray.scheduler.framework.changes import EVERY_NODE, ChangeLog
from dray.scheduler.framework.plugin import Facet
from dray.scheduler.nodes import NodeList


class DeviceState:
    """The devices of the cluster. Every change is entered in the log for the nodes that can reach them."""

    def __init__(self, features: Features, log: ChangeLog, nodes: NodeList, on_claim: ClaimChange) -> None:
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
        self._extended_by_owner: dict[str, ResourceClaim] = {}
        self._reach = DeviceReach()
        self._needing_slices: set[str] = set()
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

    def _note_needs(self, published: ResourceSlice) -> None:
        needs = any(
            device.node_allocatable_resources or device.node_allocatable_resource_mappings
            for device in published.spec.devices
        )
        (self._needing_slices.add if needs else self._needing_slices.discard)(published.metadata.name)

    @property
    def some_take_node_resources(self) -> bool:
        """Does any published device take cpu, memory or huge pages of its node?"""
        return bool(self._needing_slices)

    def set_taint_rule(self, rule: DeviceTaintRule) -> None:
        self.inventory.apply_taint_rule(rule)
        self._log.add(Facet.DEVICES, EVERY_NODE)

    def remove_taint_rule(self, name: str) -> None:
        self.inventory.remove_taint_rule(name)
        self._log.add(Facet.DEVICES, EVERY_NODE)

    def set_class(self, device_class: DeviceClass) -> None:
        self.classes[device_class.metadata.name] = device_class
        self.allocator.apply_class(device_class)
        self.extended.set(device_class)
        self._log.add(Facet.DEVICES, EVERY_NODE)

    def remove_class(self, name: str) -> None:
        self.classes.pop(name, None)
        self.allocator.remove_class(name)
        self.extended.remove(name)
        self._log.add(Facet.DEVICES, EVERY_NODE)

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
        """The decision does not stand; what was stored already stays."""
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
            self._log.add(Facet.DEVICES, mask)

    def check(self) -> None:
        self.ledger.check(self.claims)
