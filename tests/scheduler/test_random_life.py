"""Long random lives of a small cluster: whatever is created, deleted, tainted, restarted, refused or raced, nothing is given
twice, no ledger passes its node, and every bound pod has its devices."""

import asyncio
import random

import pytest
from msgspec.structs import replace
from tests.builders.objects import (
    DRIVER,
    NAMESPACE,
    a_claim,
    a_class,
    a_node,
    a_pod,
    a_request,
    a_slice,
    with_claim_status,
)
from tests.scheduler.overdrawn import overdrawn

from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    NodeAllocatableResourceMapping,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.client.errors import ApiError
from dray.clock import SimulatedClock
from dray.scheduler.scheduler import Scheduler
from dray.sim.memory_cluster import (
    MemoryCluster,
    conflict,
)

NODES = 6
SHARED = "share.example.com"
PARTS = "part.example.com"
CORES = "core.example.com"


def shared_slice(node):
    policy = CapacityRequestPolicy(
        default=Quantity.parse("1"),
        valid_range=CapacityRequestPolicyRange(min=Quantity.parse("1"), step=Quantity.parse("1")),
    )
    capacity = {"units": DeviceCapacity(value=Quantity.parse("10"), request_policy=policy)}
    return a_slice(node, (Device(name="s0", allow_multiple_allocations=True, capacity=capacity),), driver=SHARED)


def partition_slices(node):
    def draws(amount):
        counters = {"slots": Counter(value=Quantity.parse(amount))}
        return (DeviceCounterConsumption(counter_set="card", counters=counters),)

    devices = (
        Device(name="full", consumes_counters=draws("4")),
        *(Device(name=f"half-{n}", consumes_counters=draws("2")) for n in range(2)),
    )
    pool = ResourcePool(name=node, generation=1, resource_slice_count=2)
    counters = CounterSet(name="card", counters={"slots": Counter(value=Quantity.parse("4"))})
    for name, spec in (("counters", {"shared_counters": (counters,)}), ("devices", {"devices": devices})):
        yield ResourceSlice(
            metadata=ObjectMeta(name=f"{node}-part-{name}"),
            spec=ResourceSliceSpec(driver=PARTS, pool=pool, node_name=node, **spec),
        )


def core_slice(node):
    mapping = {"cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("1"))}
    devices = tuple(Device(name=f"core-{n}", node_allocatable_resource_mappings=mapping) for n in range(3))
    return a_slice(node, devices, driver=CORES)


def cluster_objects():
    for name, driver in (("gpu", DRIVER), ("share", SHARED), ("part", PARTS), ("core", CORES)):
        yield a_class(name, f'device.driver == "{driver}"')
    for index in range(NODES):
        node = f"node-{index}"
        yield from (
            a_node(node, cpu="4"),
            a_slice(node, 3),
            shared_slice(node),
            core_slice(node),
            *partition_slices(node),
        )


class Life:
    """The cluster, one or two schedulers, and a hand that does random things."""

    def __init__(self, seed, schedulers):
        self.chance = random.Random(seed)
        self.clock = SimulatedClock()
        self.cluster = MemoryCluster(at_once=False)
        self.cluster.apply(*cluster_objects())
        self.cluster.fault = self._fault
        self.names = [f"scheduler-{index}" for index in range(schedulers)]
        self.schedulers = [self._start() for _ in self.names]
        self.made = 0
        self.fault_rate = 0.03

    def _start(self):
        scheduler = Scheduler(self.cluster, self.clock)
        scheduler.handle.chance = random.Random(self.chance.random())
        self.cluster.watch(scheduler.cluster)
        return scheduler

    def _fault(self, verb, name):
        if self.chance.random() > self.fault_rate:
            return None
        problem = self.chance.choice(["modified", "refused"])
        if problem == "modified" and verb.startswith("update claim"):
            return conflict(
                "the object has been modified; please apply your changes to the latest version and try again"
            )
        return ApiError(500, "InternalError", "no luck") if problem == "refused" else None

    # --- what happens

    def create_pod(self):
        self.made += 1
        name = f"p{self.made}"
        kind = self.chance.choice(["plain", "gpu", "gpu2", "share", "part", "core", "mixed"])
        requests = {
            "gpu": (a_request("r"),),
            "gpu2": (a_request("r", count=2),),
            "share": (a_request("r", device_class="share", capacity={"units": str(self.chance.randint(1, 5))}),),
            "part": (a_request("r", device_class="part"),),
            "core": (a_request("r", device_class="core"),),
            "mixed": (a_request("a"), a_request("b", device_class="part")),
        }.get(kind)
        priority = self.chance.choice([0, 0, 0, 5])
        cpu = self.chance.choice(["100m", "500m", "1"])
        if requests is None:
            self.cluster.apply(a_pod(name, cpu=cpu, priority=priority))
            return
        pod = with_claim_status(a_pod(name, "template:dev", cpu=cpu, priority=priority), dev=f"{name}-dev")
        self.cluster.apply(pod, a_claim(f"{name}-dev", *requests, owner=pod))

    def create_sharers(self):
        self.made += 1
        claim = a_claim(f"c{self.made}")
        self.cluster.apply(claim, *(a_pod(f"s{self.made}-{n}", claim.metadata.name) for n in range(2)))

    def delete_pod(self):
        pods = self.cluster.all(Pod)
        if pods:
            pod = self.chance.choice(pods)
            self.cluster.delete(pod)
            self.cluster.release_claims_of(pod)

    def taint_devices(self):
        rule = DeviceTaintRule(
            metadata=ObjectMeta(name="rule"),
            spec=DeviceTaintRuleSpec(
                device_selector=DeviceTaintSelector(driver=DRIVER, pool=f"node-{self.chance.randrange(NODES)}"),
                taint=DeviceTaint(key="sick", effect="NoSchedule"),
            ),
        )
        self.cluster.apply(rule)

    def untaint_devices(self):
        rule = self.cluster.get(DeviceTaintRule, "rule")
        if rule is not None:
            self.cluster.delete(rule)

    def cordon(self):
        node = f"node-{self.chance.randrange(NODES)}"
        self.cluster.apply(a_node(node, cpu="4", unschedulable=self.chance.random() < 0.5))

    def replace_node(self):
        node = f"node-{self.chance.randrange(NODES)}"
        self.cluster.apply(a_node(node, cpu="4", labels={"turn": str(self.made)}))

    async def restart(self):
        index = self.chance.randrange(len(self.schedulers))
        old = self.schedulers[index]
        self.cluster.unwatch(old.cluster)
        # A process that dies takes its half-done bindings along.
        for task in list(old._tasks):
            task.cancel()
        await asyncio.gather(*old._tasks, return_exceptions=True)
        self.schedulers[index] = self._start()

    async def schedule(self):
        scheduler = self.chance.choice(self.schedulers)
        for _ in range(self.chance.randint(1, 4)):
            if not await scheduler.schedule_next():
                break

    async def pass_time(self):
        await self.clock.advance(self.chance.choice([0.05, 0.5, 2.0]))
        for scheduler in self.schedulers:
            scheduler.queue.flush_backoff(self.clock.monotonic())

    async def step(self):
        what = self.chance.choices(
            [
                self.create_pod,
                self.create_sharers,
                self.delete_pod,
                self.taint_devices,
                self.untaint_devices,
                self.cordon,
                self.replace_node,
                self.restart,
                self.schedule,
                self.pass_time,
                self.cluster.deliver,
            ],
            [20, 2, 16, 1, 2, 2, 1, 0.3, 30, 15, 25],
        )[0]
        done = what()
        if asyncio.iscoroutine(done):
            await done

    # --- what must hold

    def check(self):
        claims = self.cluster.all(ResourceClaim)
        assert list(overdrawn(claims, self.cluster.all(ResourceSlice))) == []
        by_name = {claim.metadata.name: claim for claim in claims}
        for pod in self.cluster.all(Pod):
            if pod.spec.node_name:
                self._check_bound(pod, by_name)
        for node in self.cluster.all(Node):
            assert not self.cluster.ledger_of(node.metadata.name).overcommitted(), f"{node.metadata.name} is overbooked"

    @staticmethod
    def _check_bound(pod, claims):
        names = [entry.resource_claim_name for entry in pod.spec.resource_claims if entry.resource_claim_name]
        names += [status.resource_claim_name for status in pod.status.resource_claim_statuses]
        for name in names:
            claim = claims[name]
            assert claim.status.allocation is not None, f"{pod.metadata.name} runs without devices"
            assert any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
            selector = claim.status.allocation.node_selector
            if selector is not None:
                (term,) = selector.node_selector_terms
                assert term.match_fields[0].values == (pod.spec.node_name,)

    def check_schedulers(self):
        for scheduler in self.schedulers:
            scheduler.handle.snapshot.check()
            scheduler.handle.devices.check()
            for state in scheduler.handle.snapshot.nodes:
                assert not state.ledger.overcommitted(), f"{state.name} is overcommitted"

    async def come_to_rest(self):
        """Without further trouble everything settles, and what is left waiting really does not fit."""
        self.fault_rate = 0.0
        for _ in range(60):
            self.cluster.deliver()
            for scheduler in self.schedulers:
                while await scheduler.schedule_next():
                    pass
            await self.clock.advance(0.5)
            self.cluster.deliver()
            for scheduler in self.schedulers:
                scheduler.queue.flush_backoff(self.clock.monotonic())
        assert not any(scheduler.running for scheduler in self.schedulers)
        assert not any(scheduler.handle.devices.in_flight for scheduler in self.schedulers)


async def live(seed, steps, schedulers, check_every=10):
    life = Life(seed, schedulers)
    for step in range(steps):
        await life.step()
        life.check()
        if step % check_every == 0 and schedulers == 1:
            life.check_schedulers()
    await life.come_to_rest()
    life.check()
    if schedulers == 1:
        life.check_schedulers()
    return life


@pytest.mark.parametrize("seed", range(4))
async def test_one_scheduler(seed):
    life = await live(seed, 500, 1)
    assert any(pod.spec.node_name for pod in life.cluster.all(Pod))


@pytest.mark.parametrize("seed", range(4))
async def test_two_schedulers_at_once(seed):
    life = await live(100 + seed, 500, 2)
    assert any(pod.spec.node_name for pod in life.cluster.all(Pod))


@pytest.mark.torture
@pytest.mark.timeout(900)
@pytest.mark.parametrize("schedulers", [1, 2])
async def test_ten_thousand_steps(schedulers):
    await live(4242, 10_000, schedulers, check_every=50)


async def test_both_schedulers_make_progress():
    """One device after the other is wanted by both; each of them gets pods bound."""
    life = Life(1, 2)
    life.fault_rate = 0.0
    for name in ("one", "two"):
        for index in range(6):
            pod = replace(
                with_claim_status(a_pod(f"{name}-{index}", "template:dev"), dev=f"{name}-{index}-dev"),
            )
            life.cluster.apply(pod, a_claim(f"{name}-{index}-dev", owner=pod))
    await life.come_to_rest()
    life.check()
    bound = [pod for pod in life.cluster.all(Pod) if pod.spec.node_name]
    assert len(bound) == 12
    scheduled = [s.handle.metrics.attempts.value("scheduled", "default-scheduler") for s in life.schedulers]
    assert sum(scheduled) == 12
    assert NAMESPACE == "default"
