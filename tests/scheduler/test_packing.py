"""The policy `least-fragmentation`: which node and which devices a pod gets."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_class, a_node, a_pod, a_request, a_slice, template_pod
from tests.scheduler.world import World

from dray.api.quantity import Quantity
from dray.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from dray.scheduler.config import ConfigError, SchedulerConfig, with_policy
from dray.scheduler.packing import Fragmentation
from dray.scheduler.plugins import device_packing
from dray.scheduler.plugins.device_packing import PodMix

PACKED = with_policy(SchedulerConfig(), "least-fragmentation")
CLASS = a_class()


def shared(count):
    capacity = {"milli": DeviceCapacity(value=Quantity.parse("1000"))}
    return tuple(
        Device(name=f"gpu-{number}", allow_multiple_allocations=True, capacity=capacity) for number in range(count)
    )


def share(name, milli, **pod):
    return template_pod(name, a_request(capacity={"milli": milli}), **pod)


def pair(name, milli, **pod):
    """Two shares for one request."""
    return template_pod(name, a_request(count=2, capacity={"milli": milli}), **pod)


def whole(name, count=1, **pod):
    return template_pod(name, a_request(count=count), **pod)


def devices_of(world, name):
    return [result.device for result in world.claim(f"{name}-dev").status.allocation.devices.results]


async def placed(world, *pods):
    """Applies the pods one after the other, each when the one before has its node."""
    for pod, claim in pods:
        world.apply(pod, claim)
        await world.settle()


@pytest.mark.parametrize(
    ("config", "beside"),
    [pytest.param(PACKED, "b", id="leaves-nothing"), pytest.param(SchedulerConfig(), "a", id="first-fit-leaves-100")],
)
async def test_a_share_goes_where_it_fills_a_device_up(config, beside):
    world = World(a_node("node-1"), a_slice("node-1", shared(3)), CLASS, config=config)
    await placed(world, share("a", "500"), share("b", "600"))
    await placed(world, share("c", "400"))
    assert devices_of(world, "c") == devices_of(world, beside)


async def test_a_share_goes_to_the_node_where_it_fills_a_device_up():
    """The score of a node counts what is left of its devices, not only which of them a share gets."""
    nodes = [x for name in ("node-1", "node-2") for x in (a_node(name), a_slice(name, shared(1)))]
    world = World(*nodes, CLASS, config=PACKED)
    await placed(world, share("a", "500", node_selector={"kubernetes.io/hostname": "node-1"}))
    await placed(world, share("b", "600"))
    assert (world.node_of("a"), world.node_of("b")) == ("node-1", "node-2")
    await placed(world, share("c", "400"))
    assert world.node_of("c") == "node-2"
    await placed(world, share("d", "500"))
    assert world.node_of("d") == "node-1"


async def test_a_share_leaves_room_for_the_shares_that_come_rather_than_go_to_the_fuller_node():
    """Of 700 it leaves the 600 that most pods want; of the fuller node's 600 it would leave 500, which few can use."""
    mix = [share("large", "600"), share("another", "600"), share("small", "100")]
    config = with_policy(SchedulerConfig(), "least-fragmentation", [(pod, (claim,)) for pod, claim in mix])
    nodes = [x for name in ("node-1", "node-2") for x in (a_node(name), a_slice(name, shared(1)))]
    world = World(*nodes, CLASS, config=config)
    await placed(world, share("a", "300", node_selector={"kubernetes.io/hostname": "node-1"}))
    await placed(world, share("b", "400", node_selector={"kubernetes.io/hostname": "node-2"}))
    await placed(world, share("c", "100"))
    assert world.node_of("c") == "node-1"


async def test_two_shares_of_one_request_are_counted_on_two_devices():
    """On the second node both shares would fill one device up, if a request could get a device twice."""
    nodes = [x for name, count in (("node-1", 4), ("node-2", 2)) for x in (a_node(name), a_slice(name, shared(count)))]
    mix = [share(f"large-{number}", "1000") for number in range(8)]
    config = with_policy(SchedulerConfig(), "least-fragmentation", [(pod, (claim,)) for pod, claim in mix])
    world = World(*nodes, CLASS, config=config)
    await placed(world, pair("a", "500", node_selector={"kubernetes.io/hostname": "node-1"}))
    await placed(world, share("b", "200", node_selector={"kubernetes.io/hostname": "node-2"}))
    await placed(world, pair("c", "400"))
    assert world.node_of("c") == "node-1"


async def test_nodes_stay_whole_for_pods_that_want_all_devices():
    nodes = [x for number in range(2) for x in (a_node(f"node-{number}"), a_slice(f"node-{number}", 4))]
    big = [whole(f"big-{number}", 4) for number in range(2)]
    world = World(*nodes, CLASS, config=PACKED)
    await placed(world, whole("a"), whole("b"), whole("c"), big[0])
    assert world.node_of("big-0")
    assert len({world.node_of(name) for name in ("a", "b", "c")}) == 1


async def test_a_pod_without_devices_leaves_cpu_where_devices_need_it():
    world = World(
        a_node("with", cpu="4"),
        a_slice("with", 4),
        a_node("without", cpu="4"),
        CLASS,
        *whole("seen", cpu="1"),
        config=PACKED,
    )
    await world.settle()
    world.apply(a_pod("plain", cpu="2"))
    await world.settle()
    assert world.node_of("plain") == "without"


@pytest.mark.parametrize(
    ("mix", "expected"),
    [pytest.param([], "small", id="nothing-expected"), pytest.param([whole("seen", cpu="4")], "large", id="given-mix")],
)
async def test_a_given_mix_counts_before_its_pods_come(mix, expected):
    config = with_policy(SchedulerConfig(), "least-fragmentation", [(pod, (claim,)) for pod, claim in mix])
    nodes = [a_node("small", cpu="4"), a_slice("small", 4), a_node("large", cpu="16"), a_slice("large", 4)]
    world = World(*nodes, CLASS, a_pod("plain", cpu="2"), config=config)
    await world.settle()
    assert world.node_of("plain") == expected


async def test_the_mix_knows_pods_that_came_before_their_class():
    nodes = [a_node("small", cpu="4"), a_slice("small", 4), a_node("large", cpu="16"), a_slice("large", 4)]
    world = World(*nodes, *whole("seen", cpu="4", node_selector={"nowhere": "yes"}), config=PACKED)
    world.apply(CLASS)
    await world.settle()
    world.apply(a_pod("plain", cpu="2"))
    await world.settle()
    assert (world.node_of("seen"), world.node_of("plain")) == ("", "large")


def partitioned(sets):
    """Each set has 4 slices: one partition takes them all, others one or two of them."""
    devices = []
    for number in range(sets):
        for size, count in (("4", 1), ("2", 2), ("1", 4)):
            draws = DeviceCounterConsumption(
                counter_set=f"set-{number}", counters={"slices": Counter(value=Quantity.parse(size))}
            )
            devices += [
                Device(
                    name=f"s{number}-{size}-{index}",
                    attributes={"set": DeviceAttribute(int_=number)},
                    consumes_counters=(draws,),
                    capacity={"slices": DeviceCapacity(value=Quantity.parse(size))},
                )
                for index in range(count)
            ]
    counters = tuple(
        CounterSet(name=f"set-{number}", counters={"slices": Counter(value=Quantity.parse("4"))})
        for number in range(sets)
    )
    return tuple(devices), counters


def partition(name, size, of_set=None):
    expression = f'device.capacity["gpu.example.com"].slices == quantity("{size}")'
    if of_set is not None:
        expression += f' && device.attributes["gpu.example.com"].set == {of_set}'
    return template_pod(name, a_request(expression=expression))


async def test_partitions_fill_counters_that_are_in_use_before_others():
    devices, counters = partitioned(3)
    spec = {"shared_counters": counters}
    holder = a_slice("node-1", devices)
    sets = a_slice("node-1", (), **spec)
    world = World(a_node("node-1"), *in_one_pool(holder, sets), CLASS, config=PACKED)
    await placed(world, partition("x", "4"), partition("a", "2"), partition("b", "1"), partition("c", "1"))
    await placed(world, partition("d", "4"))
    used = {name: devices_of(world, name)[0][:2] for name in "abcd"}
    assert used["a"] == used["b"] == used["c"] != used["d"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [pytest.param("least-fragmentation", "s1", id="leaves-a-set-whole"), pytest.param("", "s0", id="first-fit")],
)
async def test_a_partition_is_cut_from_counters_in_use_where_whole_sets_are_expected(policy, expected):
    pod, claim = partition("expected", "4")
    config = with_policy(SchedulerConfig(), policy, [(pod, (claim,))]) if policy else SchedulerConfig()
    devices, counters = partitioned(2)
    slices = in_one_pool(a_slice("node-1", devices), a_slice("node-1", (), shared_counters=counters))
    world = World(a_node("node-1"), *slices, CLASS, config=config)
    await placed(world, partition("a", "2", of_set=1), partition("b", "1"))
    assert devices_of(world, "b")[0][:2] == expected


def test_partitions_are_bins_by_their_counters_and_not_by_themselves_as_well():
    devices, counters = partitioned(2)
    slices = in_one_pool(a_slice("node-1", devices), a_slice("node-1", (), shared_counters=counters))
    known = World(a_node("node-1"), *slices, CLASS).scheduler.handle.devices
    bins = Fragmentation([]).bins_on(known.inventory.pools_on(a_node("node-1")), known.ledger)
    assert [each.left for each in bins] == [(4_000_000_000,), (4_000_000_000,)]


def in_one_pool(*slices):
    made = []
    for number, each in enumerate(slices):
        pool = replace(each.spec.pool, resource_slice_count=len(slices))
        made.append(
            replace(each, metadata=replace(each.metadata, name=f"slice-{number}"), spec=replace(each.spec, pool=pool))
        )
    return made


def test_the_mix_keeps_the_newest_pods_and_measures_the_most_common_shapes(monkeypatch):
    monkeypatch.setattr(device_packing, "MOST_PODS", 4)
    monkeypatch.setattr(device_packing, "MOST_SHAPES", 2)
    mix = PodMix()
    for uid, cpu in (("gone", 9), ("a", 1), ("b", 2), ("c", 2), ("d", 3)):
        mix.see(uid, (cpu, 0, ()), ())
        mix.see(uid, (cpu, 0, ()), ())
    assert {key[0]: count for key, (_, count) in mix.shapes(lambda claims: None).items()} == {2: 2, 1: 1}


def test_a_policy_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="policy: Unsupported value: 'best-fit'"):
        with_policy(SchedulerConfig(), "best-fit")
