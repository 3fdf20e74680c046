"""Publishes the pools of a driver as ResourceSlices and keeps them as the driver wants them.

It also notices which features the server has turned off, by the fields that the server left out of a slice."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from msgspec import structs

from dray.api.meta import OwnerReference
from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceAttribute,
    NodeAllocatableMapping,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.client.errors import ApiError
from dray.client.informer import Handler, Informer
from dray.client.kinds import SLICES
from dray.client.rest import Client
from dray.client.workqueue import Hopeless, WorkQueue
from dray.driver.plugin import Pool
from dray.driver.slices import (
    PoolError,
    Publisher,
    SlicePlan,
    check_pool,
    index_of,
    plan_pool,
    same_spec,
    with_generation,
)

_OfSlice = Callable[[ResourceSliceSpec], Any]
_OfDevice = Callable[[Device], Any]

_BY_SLICE: tuple[tuple[str, _OfSlice], ...] = (
    ("DRAPartitionableDevices", lambda spec: (spec.shared_counters, spec.per_device_node_selection)),
    ("DRAOptionalNodeOperations", lambda spec: spec.skip_node_operations),
)
_BY_DEVICE: tuple[tuple[str, _OfDevice], ...] = (
    (
        "DRAPartitionableDevices",
        lambda device: (device.consumes_counters, device.node_name, device.node_selector, device.all_nodes),
    ),
    ("DRADeviceTaints", lambda device: [(each.key, each.value, each.effect) for each in device.taints]),
    (
        "DRAConsumableCapacity",
        lambda device: (
            device.allow_multiple_allocations,
            {name: each.request_policy for name, each in device.capacity.items()},
        ),
    ),
    (
        "DRADeviceBindingConditions",
        lambda device: (device.binding_conditions, device.binding_failure_conditions, device.binds_to_node),
    ),
    ("DRAListTypeAttributes", lambda device: [_lists(each) for each in device.attributes.values()]),
    (
        "DRANodeAllocatableResources",
        lambda device: (device.node_allocatable_resource_mappings, device.node_allocatable_resources),
    ),
)


def dropped_features(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> list[str]:
    """Gates whose fields are not as they were sent, in alphabetical order; none if only other fields differ."""
    return sorted(set(_dropped(wanted, stored)))


def _dropped(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> Iterator[str]:
    yield from (gate for gate, part in _BY_SLICE if part(wanted) != part(stored))
    for mine, theirs in zip(wanted.devices, stored.devices, strict=False):
        yield from (gate for gate, part in _BY_DEVICE if part(mine) != part(theirs))


def _lists(attribute: DeviceAttribute) -> tuple[Any, ...]:
    return attribute.ints, attribute.bools, attribute.strings, attribute.versions


# --- two spellings of KEP-5517 -----------------------------------------------------------------------------------------


def lost_mappings(wanted: ResourceSliceSpec, stored: ResourceSliceSpec) -> bool:
    """Whether the server does not know the KEP's own field for what devices take from their node."""
    pairs = zip(wanted.devices, stored.devices, strict=False)
    return any(
        mine.node_allocatable_resource_mappings and not theirs.node_allocatable_resource_mappings
        for mine, theirs in pairs
    )


def in_kubernetes_spelling(pool: Pool) -> Pool:
    """The pool with what devices take from their node as Kubernetes 1.37 spells it; what it cannot say stays as it is."""
    slices = tuple(replace(each, devices=tuple(map(_respelled, each.devices))) for each in pool.slices)
    return replace(pool, devices=tuple(map(_respelled, pool.devices)), slices=slices)


def _respelled(device: Device) -> Device:
    mappings = device.node_allocatable_resource_mappings
    if not mappings or any(each.accounting_policy not in (None, "", ADD_PER_CLAIM) for each in mappings.values()):
        return device
    resources = {name: NodeAllocatableResource(mapping=_mapping(each)) for name, each in mappings.items()}
    return structs.replace(
        device,
        node_allocatable_resource_mappings={},
        node_allocatable_resources={**device.node_allocatable_resources, **resources},
    )


def _mapping(given: NodeAllocatableResourceMapping) -> NodeAllocatableMapping:
    multiplier = given.allocation_multiplier or Quantity.of(1)
    if given.capacity_key is None:
        return NodeAllocatableMapping(device_multiplier=multiplier)
    return NodeAllocatableMapping(capacity_key=given.capacity_key, capacity_multiplier=multiplier)


log = logging.getLogger(__name__)

ADD_PER_CLAIM = "AddPerClaim"
# Somebody else's change is repaired this long after it, so that two who disagree do not fight.
REPAIR_AFTER_S = 30.0
# Except while the kubelet is starting: it has removed them on purpose, and waits for them.
HURRY_S = 0.3
HURRY_FOR_S = 5.0
# A watch may lag behind our own writes, but not for longer than this.
REMEMBER_WRITES_S = 60.0

OnError = Callable[[str], None]


class SlicePublisher:
    """Publishes the pools of one driver, on one node or for the whole cluster (empty `node_name`)."""

    def __init__(
        self,
        client: Client,
        driver: str,
        node_name: str = "",
        owner: OwnerReference | None = None,
        on_error: OnError = log.error,
    ) -> None:
        self._client = client
        self._publisher = Publisher(driver, node_name, owner)
        self._on_error = on_error
        self._informer: Informer[ResourceSlice] = Informer(
            client, SLICES, field_selector=f"spec.driver={driver},spec.nodeName={node_name}"
        )
        self._informer.add_indexer("pool", lambda each: [each.spec.pool.name])
        self._informer.add_handler(
            Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new), on_delete=self._seen_deletion)
        )
        self._queue: WorkQueue[str] = WorkQueue("node_resource_slices", clock=client.clock)
        self._pools: dict[str, Pool] = {}
        # Our own writes that the informer may not show yet: the newest state by name, None once deleted.
        self._written: dict[str, ResourceSlice | None] = {}
        self._written_at: dict[str, float] = {}
        # What the server stores of a spec that it cut down, by pool and number: (wanted, stored).
        self._lowered: dict[tuple[str, int], tuple[ResourceSliceSpec, ResourceSliceSpec]] = {}
        # Whether the server knows Kubernetes' own spelling of KEP-5517 only.
        self._speaks_kubernetes = False
        self._unpublished: set[str] = set()
        # What the server says is wrong with a pool, by name: asking again would not help.
        self._refused: dict[str, str] = {}
        self._hurry_until = 0.0
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.writes = 0

    async def start(self) -> None:
        self._informer.start()
        await self._informer.synced()
        self._task = asyncio.create_task(self._queue.run(self._reconcile), name=f"slices of {self._publisher.driver}")

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Stop publishing. Slices stay: a driver that restarts finds them as they were."""
        self._queue.shut_down()
        if self._task is not None:
            # However it ended: what else there is to stop must be stopped.
            await asyncio.gather(self._task, return_exceptions=True)
        await self._informer.stop()

    def publish(self, pools: Iterable[Pool]) -> None:
        """From now on exactly these pools are published; PoolError refuses all of them and changes nothing."""
        wanted = {pool.name: pool for pool in pools}
        for pool in wanted.values():
            check_pool(pool)
        published = {each.spec.pool.name for each in self._current()}
        self._lowered.clear()
        before, self._pools = self._pools, wanted
        self._unpublished = {*before, *wanted, *published}
        self._refused.clear()
        for name in self._unpublished:
            self._queue.add(name)

    def kubelet_came(self) -> None:
        """A kubelet that starts removes all slices of its node: those are put back at once."""
        self._hurry_until = self._client.clock.monotonic() + HURRY_FOR_S
        for name in self._pools:
            self._queue.cancel_later(name)
            self._queue.add_after(name, HURRY_S)

    async def settled(self) -> None:
        """Wait until every pool is published as described; PoolError if the server refuses one."""
        while self._unpublished:
            self._progress.clear()
            for text in self._refused.values():
                raise PoolError(text)
            await self._progress.wait()

    # --- one pool

    async def _reconcile(self, name: str) -> None:
        try:
            await self._write(name)
        except ApiError as error:
            if error.code != 422:
                raise
            self._refused[name] = f"pool {name}: {error}"
            self._progress.set()
            self._on_error(self._refused[name])
            raise Hopeless(str(error)) from error

    async def _write(self, name: str) -> None:
        existing = [each for each in self._current() if each.spec.pool.name == name]
        pool = self._pools.get(name)
        was_respelled = self._speaks_kubernetes
        if pool is not None and was_respelled:
            pool = in_kubernetes_spelling(pool)
        plan = (
            SlicePlan(deletes=tuple(existing))
            if pool is None
            else plan_pool(self._publisher, pool, existing, self._lower)
        )
        for each in plan.deletes:
            await self._delete(each)
        for each in plan.updates:
            stored = await self._client.update(SLICES, each)
            self._wrote(each.spec, stored)
        for number, each in zip(_new_numbers(plan), plan.creates, strict=True):
            stored = await self._client.create(SLICES, each)
            self._wrote(each.spec, stored, number)
        if self._speaks_kubernetes and not was_respelled:
            for other in self._pools:
                self._queue.add(other)
            await self._write(name)
            return
        self._unpublished.discard(name)
        self._progress.set()

    async def _delete(self, each: ResourceSlice) -> None:
        try:
            await self._client.delete(
                SLICES, each.metadata.name, uid=each.metadata.uid, revision=each.metadata.resource_version
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
        self.writes += 1
        self._remember(each, None)

    def _wrote(self, wanted: ResourceSliceSpec, stored: ResourceSlice, number: int | None = None) -> None:
        self.writes += 1
        self._remember(stored, stored)
        if same_spec(wanted, stored.spec):
            return
        if not self._speaks_kubernetes and lost_mappings(wanted, stored.spec):
            self._speaks_kubernetes = True
            return
        number = index_of(stored) if number is None else number
        pool = wanted.pool.name
        if number is not None and (pool, number) not in self._lowered:
            self._lowered[pool, number] = (wanted, stored.spec)
            features = ", ".join(dropped_features(wanted, stored.spec)) or "unknown"
            self._on_error(
                f'pool "{pool}", slice #{number}: some fields were dropped by the apiserver, probably because these features are disabled: {features}'
            )

    def _remember(self, each: ResourceSlice, state: ResourceSlice | None) -> None:
        name = each.metadata.name
        self._written[name], self._written_at[name] = state, self._client.clock.monotonic()
        self._queue.add_after(each.spec.pool.name, REMEMBER_WRITES_S + 1)

    def _lower(self, index: int, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        wanted, stored = self._lowered.get((spec.pool.name, index), (None, None))
        if wanted is None or stored is None or not same_spec(with_generation(wanted, 0), with_generation(spec, 0)):
            return spec
        return structs.replace(stored, pool=spec.pool)

    # --- what is there now

    def _current(self) -> Iterable[ResourceSlice]:
        """The informer's copy, brought forward by our own writes."""
        names = {each.metadata.name: each for each in self._informer}
        oldest = self._client.clock.monotonic() - REMEMBER_WRITES_S
        for name, ours in list(self._written.items()):
            shown = names.get(name)
            if self._written_at[name] < oldest:
                # The informer has had its time: what it does not show is not there.
                del self._written[name], self._written_at[name]
            elif ours is None:
                if shown is None:
                    del self._written[name]
                names.pop(name, None)
            elif shown is not None and _revision(shown) >= _revision(ours):
                del self._written[name]
            else:
                names[name] = ours
        self._written_at = {name: at for name, at in self._written_at.items() if name in self._written}
        return names.values()

    def _seen(self, each: ResourceSlice) -> None:
        ours = self._written.get(each.metadata.name)
        if ours is None or _revision(each) > _revision(ours):
            self._repair_later(each)

    def _seen_deletion(self, each: ResourceSlice) -> None:
        if self._written.get(each.metadata.name, each) is not None:
            self._written.pop(each.metadata.name, None)
            self._repair_later(each)

    def _repair_later(self, each: ResourceSlice) -> None:
        name = each.spec.pool.name
        self._queue.cancel_later(name)
        is_hurried = self._client.clock.monotonic() < self._hurry_until
        self._queue.add_after(name, HURRY_S if is_hurried else REPAIR_AFTER_S)


def _revision(each: ResourceSlice) -> int:
    return int(each.metadata.resource_version or 0)


def _new_numbers(plan: SlicePlan) -> list[int]:
    return [int(each.metadata.generate_name.partition("-")[0], 16) for each in plan.creates]
