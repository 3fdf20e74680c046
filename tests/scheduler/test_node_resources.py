"""Devices that take cpu and memory of their node: the KEP's use cases with their numbers, budgets, sharing, wake-ups."""

import pytest
from msgspec.structs import replace
from tests.builders import manifests
from tests.builders.manifests import a_device
from tests.builders.objects import (
    a_claim,
    a_class,
    a_node,
    a_pod,
    a_request,
    a_slice,
    alternatives,
    an_alternative,
    quantities,
    with_claim_status,
)
from tests.scheduler.world import World

from dray.api.codec import to_object
from dray.api.core import Container, ContainerResourceClaim, Node, ResourceRequirements
from dray.api.quantity import Quantity
from dray.api.resource import Device, DeviceCapacity, NodeAllocatableResourceMapping, ResourceSlice
from dray.features import FeatureGates
from dray.scheduler.plugins import node_resources_fit
from dray.scheduler.plugins.node_resources_fit import spec_demand

CPU, MEMORY = "dra.example.com/cpu", "dra.example.com/memory"
GI = 1024**3


def socket(**capacity):
    """A shared device whose capacity is cpu (and memory) of the node."""
    keys = {"cpu": CPU, "memory": MEMORY}
    return Device(
        name="socket0",
        allow_multiple_allocations=True,
        capacity={keys[name]: DeviceCapacity(value=Quantity.parse(value)) for name, value in capacity.items()},
        node_allocatable_resource_mappings={
            name: NodeAllocatableResourceMapping(capacity_key=keys[name]) for name in capacity
        },
    )


def fixed(name="gpu0", policy=None, **amounts):
    return Device(
        name=name,
        node_allocatable_resource_mappings={
            resource: NodeAllocatableResourceMapping(
                allocation_multiplier=Quantity.parse(amount), accounting_policy=policy
            )
            for resource, amount in amounts.items()
        },
    )


def container(name, *claims, **requests):
    return Container(
        name=name,
        resources=ResourceRequirements(
            requests=quantities(requests), claims=tuple(ContainerResourceClaim(name=claim) for claim in claims)
        ),
    )


CPU_CLASS = a_class("cpu", 'device.driver == "dra.example.com"')
GPU_CLASS = a_class("gpu", 'device.driver == "gpu.example.com"')
BIG_NODE = a_node(cpu="128", memory="256Gi")


def cpu_slice(*devices):
    return a_slice(devices=devices, driver="dra.example.com")


def gpu_slice(*devices):
    return a_slice(devices=devices, driver="gpu.example.com")


def written(world, name="pod"):
    """What the pod's status says its claims take."""
    return {
        status.resource_claim_name: {resource: str(amount) for resource, amount in status.resources.items()}
        for status in world.pod(name).status.node_allocatable_resource_claim_statuses
    }


async def test_use_case_1_standard_and_device_cpu_and_memory():
    claim = a_claim("cpu-mem-claim", a_request(device_class="cpu", capacity={CPU: "4", MEMORY: "8Gi"}))
    pod = a_pod(
        "pod",
        "cpu-mem-claim",
        containers=(
            container("my-app1", "cpu-mem-claim", cpu="100m", memory="100Mi"),
            container("my-app2", "cpu-mem-claim"),
        ),
    )
    world = World(BIG_NODE, cpu_slice(socket(cpu="128", memory="256Gi")), CPU_CLASS, claim, pod)
    await world.settle()
    assert written(world) == {"cpu-mem-claim": {"cpu": "4", "memory": "8Gi"}}
    assert world.pod().status.node_allocatable_resource_claim_statuses[0].containers == ("my-app1", "my-app2")
    assert world.requested() == {"cpu": 4100, "memory": 8 * GI + 100 * 1024**2}


@pytest.mark.parametrize("gpus", [1, 0])
async def test_use_case_2_gpu_or_cpu(gpus):
    request = alternatives(
        "gpu-or-cpu-req", an_alternative("gpu", "gpu"), an_alternative("cpu", "cpu", capacity={CPU: "30"})
    )
    pod = a_pod("pod", "template:gpu-or-cpu", cpu="1", memory="1Gi")
    pod = with_claim_status(pod, **{"gpu-or-cpu": "made"})
    world = World(
        BIG_NODE,
        cpu_slice(socket(cpu="128")),
        gpu_slice(*[Device(name="gpu0")][:gpus]),
        CPU_CLASS,
        GPU_CLASS,
        a_claim("made", request, owner=pod),
        pod,
    )
    await world.settle()
    if gpus:
        assert written(world) == {}
        assert world.requested() == {"cpu": 1000, "memory": GI}
    else:
        assert written(world) == {"made": {"cpu": "30"}}
        assert world.requested() == {"cpu": 31000, "memory": GI}


async def test_use_case_3_cpu_claim_and_a_gpu_with_auxiliary_needs():
    pod = a_pod(
        "pod",
        "cpu-claim",
        "gpu-claim",
        containers=(
            container("my-app1", "cpu-claim", "gpu-claim", cpu="100m", memory="1Gi"),
            container("my-app2", "cpu-claim", "gpu-claim", cpu="200m", memory="2Gi"),
        ),
    )
    world = World(
        BIG_NODE,
        cpu_slice(socket(cpu="128")),
        gpu_slice(fixed(cpu="2", memory="4Gi")),
        CPU_CLASS,
        GPU_CLASS,
        a_claim("cpu-claim", a_request(device_class="cpu", capacity={CPU: "10"})),
        a_claim("gpu-claim", a_request(device_class="gpu")),
        pod,
    )
    await world.settle()
    assert written(world) == {"cpu-claim": {"cpu": "10"}, "gpu-claim": {"cpu": "2", "memory": "4Gi"}}
    assert world.requested() == {"cpu": 12300, "memory": 7 * GI}


def pod_with_budget(cpu):
    containers = (container("my-app1", "claim"), container("my-app2", "claim"), container("s1"), container("s2"))
    pod = a_pod("pod", "claim", containers=containers)
    level = ResourceRequirements(
        requests=quantities({"cpu": cpu, "memory": "10Gi"}), limits=quantities({"cpu": cpu, "memory": "10Gi"})
    )
    return replace(pod, spec=replace(pod.spec, resources=level))


async def test_use_case_4_pod_level_budget_with_a_shared_claim():
    world = World(
        BIG_NODE,
        cpu_slice(socket(cpu="128")),
        CPU_CLASS,
        a_claim("claim", a_request(device_class="cpu", capacity={CPU: "10"})),
        pod_with_budget("11"),
    )
    await world.settle()
    assert written(world) == {"claim": {"cpu": "10"}}
    assert world.requested() == {"cpu": 11000, "memory": 10 * GI}


async def test_budget_below_the_claims_is_never_schedulable():
    world = World(
        BIG_NODE,
        cpu_slice(socket(cpu="128")),
        CPU_CLASS,
        a_claim("claim", a_request(device_class="cpu", capacity={CPU: "10"})),
        pod_with_budget("9"),
    )
    await world.settle()
    assert (
        "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
        in (world.message())
    )
    assert "1 Preemption is not helpful for scheduling" in world.message()


async def test_ledger_example_fills_up_and_frees():
    """p1: 500m and a claim of 4; p2: 5; then a claim of 1 does not fit until p1 is gone."""
    world = World(
        a_node(cpu="10"),
        cpu_slice(fixed("a", cpu="4"), fixed("b", cpu="1"), fixed("c", cpu="11")),
        a_class("cpu"),
        a_claim("four", a_request(device_class="cpu")),
        a_pod("p1", "four", cpu="500m"),
    )
    await world.settle()
    assert world.requested()["cpu"] == 4500
    world.apply(a_pod("p2", cpu="5"))
    await world.settle()
    assert world.requested()["cpu"] == 9500
    world.apply(a_claim("one", a_request(device_class="cpu")), a_pod("p3", "one"))
    await world.settle()
    assert "1 Insufficient cpu" in world.message("p3")
    assert world.where("p3") == "unschedulable"
    # An ordinary pod that leaves makes room as well.
    world.cluster.delete(world.pod("p2"))
    await world.settle(seconds=3)
    assert world.node_of("p3") == "node-1"
    assert world.requested()["cpu"] == 5500


async def test_a_pod_that_is_no_longer_short_of_room_does_not_wait_for_it():
    slices = cpu_slice(fixed("a", cpu="4"))
    world = World(a_node(cpu="8"), slices, a_class("cpu"), a_pod("p1", cpu="3"), a_pod("p2", cpu="3"))
    await world.settle()
    world.apply(a_claim("four", a_request(device_class="cpu")), a_pod("waits", "four"))
    await world.settle()
    assert "1 Insufficient cpu" in world.message("waits")
    world.apply(cpu_slice())
    await world.settle(seconds=3)
    assert "cannot allocate all claims" in world.message("waits")
    world.cluster.delete(world.pod("p1"))
    assert world.where("waits") == "unschedulable"


async def test_more_than_the_node_ever_has_is_final():
    world = World(
        a_node(cpu="10"),
        cpu_slice(fixed(cpu="11")),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p", "c"),
    )
    await world.settle()
    assert world.message("p") == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )


async def test_claim_with_mapped_amounts_belongs_to_one_pod():
    world = World(
        BIG_NODE,
        cpu_slice(fixed(cpu="2")),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p1", "c"),
    )
    await world.settle()
    world.apply(a_pod("p2", "c"))
    await world.settle()
    assert "node allocatable resource claim c has a mapped device and cannot be shared across pods" in world.message(
        "p2"
    )
    assert "1 Preemption is not helpful for scheduling" in world.message("p2")


async def test_pool_is_reserved_once_and_drawn_from():
    pool = fixed("pool", "ConsumeFrom", cpu="40")
    world = World(
        a_node(cpu="64"),
        cpu_slice(pool),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("a", "c", cpu="12"),
    )
    await world.settle()
    world.apply(a_pod("b", "c", cpu="20"))
    await world.settle()
    world.apply(a_pod("over", "c", cpu="10"))
    await world.settle()
    assert world.node_of("a") == world.node_of("b") == "node-1"
    assert not world.node_of("over")
    assert world.requested()["cpu"] == 40000


async def test_statuses_are_written_before_the_pod_is_bound_and_cleared_when_that_fails():
    from dray.client.errors import ApiError

    world = World(
        BIG_NODE,
        cpu_slice(fixed(cpu="2")),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p", "c"),
    )
    failures = [1]

    def fault(verb, name):
        if verb == "bind" and failures[0]:
            failures[0] -= 1
            return ApiError(500, "InternalError", "no luck")
        return None

    world.cluster.fault = fault
    await world.attempt()
    assert written(world, "p") == {}
    assert world.requested()["cpu"] == 0
    await world.settle(seconds=2)
    assert written(world, "p") == {"c": {"cpu": "2"}}
    writes = world.cluster.writes
    assert writes.index("patch pod status p") < writes.index("bind p")


async def test_restart_rebuilds_the_ledger_from_pod_status():
    world = World(
        BIG_NODE,
        cpu_slice(fixed(cpu="2")),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p", "c", cpu="1"),
    )
    await world.settle()
    from dray.scheduler.scheduler import Scheduler

    again = Scheduler(world.cluster, world.clock)
    world.cluster.watch(again.cluster)
    state = again.handle.snapshot.nodes.get("node-1")
    assert state.ledger.requested("cpu") == 3000


POOL = fixed("pool", "ConsumeFrom", cpu="6")


def a_pool_world(device=POOL, **class_spec):
    """A node of 8 cpus of which a pool reserves 6; pod1 draws 1 from the pool."""
    return World(
        a_node(cpu="8"),
        cpu_slice(device),
        a_class("cpu", **class_spec),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("pod1", "c", cpu="1"),
    )


@pytest.mark.parametrize(
    ("device", "class_spec"),
    [
        pytest.param(POOL, {}, id="policy-on-the-device"),
        pytest.param(
            fixed("pool", cpu="6"),
            {
                "manages_node_allocatable_resources": True,
                "node_allocatable_resource_accounting_policies": {"cpu": "ConsumeFrom"},
            },
            id="policy-in-the-class",
        ),
    ],
)
async def test_pod_that_draws_from_a_pool_needs_no_plain_cpu(device, class_spec):
    world = a_pool_world(device, **class_spec)
    await world.settle()
    world.apply(a_pod("plain", cpu="2"))
    await world.settle()
    world.apply(a_pod("pod2", "c", cpu="2"))
    await world.settle()
    assert [world.node_of(name) for name in ("pod1", "plain", "pod2")] == ["node-1"] * 3
    assert world.requested()["cpu"] == 8000
    world.check()


async def test_pod_with_a_pool_still_waits_for_cpu_that_the_pool_does_not_serve():
    world = a_pool_world()
    await world.settle()
    world.apply(a_pod("plain", cpu="2"))
    await world.settle()
    two = (container("pooled", "c", cpu="1"), container("beside", cpu="1"))
    world.apply(a_pod("pod2", "c", containers=two))
    await world.settle()
    assert not world.node_of("pod2")
    assert "1 Insufficient cpu" in world.message("pod2")
    world.cluster.delete(world.pod("plain"))
    await world.settle(seconds=2)
    assert world.node_of("pod2") == "node-1"


async def test_node_that_takes_nothing_for_the_claims_is_checked_for_the_spec():
    """A class that manages node resources leaves the check to the claims, also where its devices take nothing."""
    free = Device(name="free")
    world = World(
        a_node("node-1", cpu="2"),
        a_slice("node-1", devices=(free,), driver="dra.example.com"),
        a_slice("node-2", devices=(fixed("taking", cpu="1"),), driver="dra.example.com"),
        a_class("cpu", manages_node_allocatable_resources=True),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("pod", "c", cpu="3"),
    )
    await world.settle()
    assert not world.node_of("pod")
    assert "1 Insufficient cpu" in world.message("pod")


async def test_pods_that_share_a_pool_take_what_its_claim_adds_once():
    pool = Device(
        name="pool",
        node_allocatable_resource_mappings={
            "cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("6")),
            "memory": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse("4Gi")),
        },
    )
    policies = {"cpu": "ConsumeFrom", "memory": "AddPerClaim"}
    world = a_pool_world(pool, node_allocatable_resource_accounting_policies=policies)
    await world.settle()
    assert world.requested() == {"cpu": 6000, "memory": 4 * GI}
    world.apply(a_pod("pod2", "c", cpu="2", memory="1Gi"))
    await world.settle()
    assert world.node_of("pod2") == "node-1"
    assert world.requested() == {"cpu": 6000, "memory": 5 * GI}
    ledger = world.scheduler.handle.snapshot.nodes.get("node-1").ledger
    rows = [(row.kind, row.policy, str(row.quantity)) for row in ledger.why("memory")]
    assert sorted(rows) == [("container", "", "1Gi"), ("pool", "AddPerClaim", "4Gi")]
    world.cluster.delete(world.pod("pod1"))
    await world.settle()
    assert world.requested() == {"cpu": 6000, "memory": 5 * GI}
    world.cluster.delete(world.pod("pod2"))
    await world.settle()
    assert world.requested() == {"cpu": 0, "memory": 0}
    world.check()


@pytest.mark.parametrize(
    ("published", "named"),
    [
        pytest.param("cpus", "dra.example.com/cpus", id="key-with-the-drivers-domain"),
        pytest.param("dra.example.com/cpus", "cpus", id="capacity-with-the-drivers-domain"),
    ],
)
async def test_capacity_key_finds_the_drivers_own_capacity_with_or_without_its_domain(published, named):
    device = Device(
        name="socket0",
        allow_multiple_allocations=True,
        capacity={published: DeviceCapacity(value=Quantity.parse("6"))},
        node_allocatable_resource_mappings={"cpu": NodeAllocatableResourceMapping(capacity_key=named)},
    )
    world = World(
        a_node(cpu="8"),
        cpu_slice(device),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu", capacity={published: "2"})),
        a_pod("pod", "c"),
    )
    await world.settle()
    assert world.node_of() == "node-1"
    assert world.requested()["cpu"] == 2000


@pytest.mark.parametrize(
    ("published", "asked", "is_bound"),
    [
        pytest.param("mem", "dra.example.com/mem", True, id="request-with-the-drivers-domain"),
        pytest.param("dra.example.com/mem", "mem", False, id="capacity-with-the-drivers-domain"),
        pytest.param("mem", "other.example.org/mem", False, id="domain-of-another"),
    ],
)
async def test_capacity_request_with_the_drivers_domain_finds_its_plain_capacity(published, asked, is_bound):
    device = Device(
        name="d0", allow_multiple_allocations=True, capacity={published: DeviceCapacity(value=Quantity.parse("8Gi"))}
    )
    world = World(
        a_node(),
        cpu_slice(device),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu", capacity={asked: "2Gi"})),
        a_pod("pod", "c"),
    )
    await world.settle()
    assert bool(world.node_of()) == is_bound
    if is_bound:
        (result,) = world.claim("c").status.allocation.devices.results
        assert {name: str(amount) for name, amount in result.consumed_capacity.items()} == {published: "2Gi"}


@pytest.mark.parametrize("is_on", [True, False], ids=["gate-on", "gate-off"])
async def test_pods_without_claims_count_against_allocatable_as_before(is_on):
    gates = FeatureGates.default() if is_on else FeatureGates.default().without("DRANodeAllocatableResources")
    node = a_node(cpu="8")
    world = World(node, cpu_slice(fixed(cpu="5")), a_class("cpu"), gates=gates)
    for name in ("a", "b", "c"):
        world.apply(a_pod(name, cpu="3"))
    await world.settle()
    assert [world.node_of(name) for name in ("a", "b", "c")] == ["node-1", "node-1", ""]
    assert "1 Insufficient cpu" in world.message("c")
    assert world.requested()["cpu"] == 6000
    assert world.cluster.get(Node, "node-1").status == node.status, "devices that nobody has take nothing"


@pytest.mark.parametrize("amounts", [("2", "3"), ("3", "2")])
async def test_each_node_has_the_amount_of_its_own_devices(amounts):
    """Filter computes it for every node; status and ledger have that of the chosen one."""
    nodes = [a_node(f"node-{index}", cpu="8") for index in (1, 2)]
    slices = [
        a_slice(f"node-{index}", devices=(fixed(cpu=amount),), driver="dra.example.com")
        for index, amount in enumerate(amounts, 1)
    ]
    world = World(*nodes, *slices, a_class("cpu"), a_claim("c", a_request(device_class="cpu")), a_pod("p", "c"))
    await world.settle()
    chosen = world.node_of("p")
    assert chosen == ("node-1" if amounts[0] == "2" else "node-2"), "the node with more room left"
    assert written(world, "p") == {"c": {"cpu": "2"}}
    assert {node.metadata.name: world.requested(node.metadata.name)["cpu"] for node in nodes} == {
        "node-1": 0,
        "node-2": 0,
        chosen: 2000,
    }


async def test_what_a_spec_asks_for_is_added_up_once_per_attempt(monkeypatch):
    asked = []

    def counted(pod):
        asked.append(pod.metadata.name)
        return spec_demand(pod)

    monkeypatch.setattr(node_resources_fit, "spec_demand", counted)
    world = World(*(a_node(f"node-{index}") for index in range(20)), a_pod("pod", cpu="1"))
    await world.settle()
    assert world.node_of()
    assert asked == ["pod"]


@pytest.mark.parametrize("manages", [None, False, True])
async def test_claims_have_the_last_word_about_cpu_whatever_their_class_says(manages):
    """The spec alone fits the node, and so does the claim alone; together they do not."""
    world = World(
        a_node(cpu="8"),
        cpu_slice(fixed(cpu="5")),
        a_class("cpu", manages_node_allocatable_resources=manages),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p", "c", cpu="4"),
    )
    await world.settle()
    assert "1 Insufficient cpu" in world.message("p")
    world.apply(a_node(cpu="9"))
    await world.settle(seconds=12)
    assert world.node_of("p") == "node-1"


async def test_pod_from_before_the_gate_counts_by_its_spec():
    """Nobody wrote down what its claim takes; pods that come later are counted with theirs."""
    slice_ = cpu_slice(fixed("a", cpu="5"), fixed("b", cpu="5"))
    off = FeatureGates.default().without("DRANodeAllocatableResources")
    before = World(a_node(cpu="8"), slice_, a_class("cpu"), gates=off)
    before.apply(a_claim("old", a_request(device_class="cpu")), a_pod("old", "old", cpu="1"))
    await before.settle()
    assert before.node_of("old") == "node-1"
    after = World(*before.cluster.everything())
    assert after.requested()["cpu"] == 1000
    after.apply(a_claim("new", a_request(device_class="cpu")), a_pod("new", "new", cpu="1"))
    await after.settle()
    assert after.node_of("new") == "node-1"
    assert after.requested()["cpu"] == 7000


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_pod_that_is_over_or_was_turned_away_gives_back_what_its_claim_took(phase):
    world = World(
        a_node(cpu="8"),
        cpu_slice(fixed(cpu="5")),
        a_class("cpu"),
        a_claim("c", a_request(device_class="cpu")),
        a_pod("p", "c", cpu="1"),
    )
    await world.settle()
    assert world.requested()["cpu"] == 6000
    pod = world.pod("p")
    world.apply(replace(pod, status=replace(pod.status, phase=phase, reason="OutOfcpu")))
    await world.settle()
    assert world.requested()["cpu"] == 0


async def test_partition_takes_its_own_capacity_of_the_node():
    """Two partitions of a card with room for one of them; the claim takes what the chosen partition has."""

    def part(name, cpus):
        draws = [{"counterSet": "card", "counters": {"slots": {"value": "3"}}}]
        mappings = {"cpu": {"capacityKey": "cpus"}}
        return a_device(name, capacity={"cpus": cpus}, consumesCounters=draws, nodeAllocatableResourceMappings=mappings)

    slices = (
        manifests.a_slice("counters", node="node-1", slices=2, counters={"card": {"slots": "4"}}),
        manifests.a_slice("parts", part("small", "2"), part("large", "6"), node="node-1", slices=2),
    )
    world = World(a_node(cpu="8"), *(to_object(each, ResourceSlice) for each in slices), a_class("cpu"))
    large = 'device.capacity["gpu.example.com"].cpus.isGreaterThan(quantity("2"))'
    world.apply(a_claim("one", a_request(device_class="cpu", expression=large)), a_pod("one", "one", cpu="1"))
    world.apply(a_claim("two", a_request(device_class="cpu")), a_pod("two", "two"))
    await world.settle()
    assert world.devices_of("one") == ["node-1/large"]
    assert written(world, "one") == {"one": {"cpu": "6"}}
    assert world.requested()["cpu"] == 7000
    assert "cannot allocate all claims" in world.message("two"), "the card has no slots left"
