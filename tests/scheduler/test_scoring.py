"""Which of several possible nodes is taken."""

import pytest
from tests.builders.objects import (
    a_claim,
    a_class,
    a_node,
    a_pod,
    a_request,
    a_slice,
    alternatives,
    an_alternative,
    template_pod,
)
from tests.scheduler.world import World

from dray.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Taint,
)
from dray.api.resource import Device
from dray.scheduler.config import POLICIES, SchedulerConfig, with_policy
from dray.scheduler.framework.interface import CycleState
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation, _evenness
from dray.scheduler.plugins.dynamic_resources.plugin import score_of
from dray.scheduler.plugins.node_resources_fit import (
    NodeResourcesFit,
    ScoringShape,
    least_allocated,
    most_allocated,
    strategy_from,
)
from dray.scheduler.plugins.pod_spec_plugins import scaled_to_best

BIG = a_class("big", 'device.attributes["gpu.example.com"].size == "big"')
SMALL = a_class("small", 'device.attributes["gpu.example.com"].size == "small"')


def sized(size):
    from dray.api.resource import DeviceAttribute

    return (Device(name="gpu-0", attributes={"size": DeviceAttribute(string=size)}),)


async def test_node_with_the_earlier_alternative_wins():
    request = alternatives("req", an_alternative("first", "big"), an_alternative("second", "small"))
    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1", sized("small")),
        a_slice("node-2", sized("big")),
        BIG,
        SMALL,
        a_claim("claim", request),
        a_pod("pod", "claim"),
    )
    await world.settle()
    assert world.node_of() == "node-2"
    assert world.claim().status.allocation.devices.results[0].request == "req/first"


async def test_allocated_claims_count_as_well():
    request = alternatives("req", an_alternative("first", "big"), an_alternative("second", "small"))
    world = World(
        a_node(), a_slice("node-1", sized("small")), BIG, SMALL, a_claim("claim", request), a_pod("pod", "claim")
    )
    await world.settle()

    class Attempt:
        allocated = (world.claim(),)

    assert score_of(Attempt(), None) == 7


@pytest.mark.parametrize(
    ("raw", "normalized"),
    [([8, 6], {8: 100, 6: 75}), ([0, 0], {0: 0}), ([5], {5: 100}), ([16, 15, 0], {16: 100, 15: 93, 0: 0})],
)
def test_scores_are_scaled_to_the_best(raw, normalized):
    assert scaled_to_best(raw) == normalized


async def test_emptier_node_is_preferred():
    world = World(a_node("node-1"), a_node("node-2"), a_pod("p1", cpu="2", memory="8Gi"))
    await world.settle()
    world.apply(a_pod("p2", cpu="2", memory="8Gi"))
    await world.settle()
    assert world.node_of("p1") == "node-1"
    assert world.node_of("p2") == "node-2"


async def test_full_nodes_first_with_most_allocated():
    args = {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}}
    config = SchedulerConfig(profiles=(ProfileConfig(args=args),))
    world = World(a_node("node-1"), a_node("node-2"), a_pod("p1", cpu="2", memory="8Gi"), config=config)
    await world.settle()
    world.apply(a_pod("p2", cpu="2", memory="8Gi"))
    await world.settle()
    assert world.node_of("p2") == world.node_of("p1")


async def test_soft_taint_and_preferred_affinity_decide():
    world = World(a_node("node-1", taints=(Taint(key="a", effect="PreferNoSchedule"),)), a_node("node-2"), a_pod("p1"))
    await world.settle()
    assert world.node_of("p1") == "node-2"
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="disk", operator="Exists"),))
    wish = Affinity(
        node_affinity=NodeAffinity(
            preferred_during_scheduling_ignored_during_execution=(PreferredSchedulingTerm(weight=10, preference=term),)
        )
    )
    world.apply(a_node("node-3", labels={"disk": "ssd"}), a_pod("p2", affinity=wish))
    await world.settle()
    assert world.node_of("p2") == "node-3"


def test_resource_points():
    assert least_allocated(2, 8) == 75
    assert least_allocated(9, 8) == 0
    assert most_allocated(2, 8) == 25
    ratio = ScoringShape((0, 50, 100), (0, 100, 0))
    assert [ratio(used, 100) for used in (0, 25, 50, 75, 100, 150)] == [0, 50, 100, 50, 0, 0]


@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "Nonsense"},
        {"type": "RequestedToCapacityRatio"},
        {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 101, "score": 1}]}},
        {
            "type": "RequestedToCapacityRatio",
            "requestedToCapacityRatio": {"shape": [{"utilization": 50, "score": 1}, {"utilization": 40, "score": 1}]},
        },
    ],
)
def test_bad_strategies_are_refused(strategy):
    with pytest.raises(ValueError, match="scoringStrategy"):
        strategy_from({"scoringStrategy": strategy})


async def test_claim_quantities_count_in_the_score():
    """The device on node-1 takes most of its cpu, so the same pod leaves node-2 emptier."""
    from dray.api.quantity import Quantity
    from dray.api.resource import NodeAllocatableResourceMapping

    def taking(cpu):
        mapping = {"cpu": NodeAllocatableResourceMapping(allocation_multiplier=Quantity.parse(cpu))}
        return (Device(name="gpu-0", node_allocatable_resource_mappings=mapping),)

    world = World(
        a_node("node-1"),
        a_node("node-2"),
        a_slice("node-1", taking("6")),
        a_slice("node-2", taking("1")),
        a_class(),
        a_claim(),
        a_pod("pod", "claim", cpu="1"),
    )
    await world.settle()
    assert world.node_of() == "node-2"
    assert world.requested("node-2")["cpu"] == 2000


@pytest.mark.parametrize("policy", POLICIES)
async def test_packing_fills_one_node_before_the_next(policy):
    objects = [x for index in range(4) for x in template_pod(f"p{index}", cpu="100m")]
    nodes = [x for n in range(3) for x in (a_node(f"node-{n}"), a_slice(f"node-{n}", 4))]
    packed = World(*nodes, a_class(), *objects, config=with_policy(SchedulerConfig(), policy))
    await packed.settle()
    assert len({packed.node_of(f"p{index}") for index in range(4)}) == 1
    spread = World(*nodes, a_class(), *objects)
    await spread.settle()
    assert len({spread.node_of(f"p{index}") for index in range(4)}) == 3


async def test_mix_of_allocated_and_new_claims_is_scored_together():
    request = alternatives("req", an_alternative("first", "big"), an_alternative("second", "small"))
    both = (*sized("small"), Device(name="gpu-1", attributes=sized("big")[0].attributes))
    world = World(a_node(), a_slice("node-1", both), BIG, SMALL, a_claim("old", request), a_pod("p1", "old"))
    await world.settle()
    world.apply(a_claim("new", request, a_request("extra", device_class="small")), a_pod("p2", "old", "new"))
    await world.settle()
    assert "cannot allocate all claims" in world.message("p2")


@pytest.mark.parametrize(
    ("cpu", "memory", "used_cpu", "expected"),
    [
        # 50 + (50 + s_with - s_without) / 2, with s = (1 - |cpu - memory| / 2) * 100 over shares of the node
        pytest.param("4", "4Gi", "", 75, id="even-before-and-after"),
        pytest.param("4", "", "", 62, id="half-the-cpu-only"),
        pytest.param("", "4Gi", "4", 87, id="evens-out"),
    ],
)
def test_even_use_scores_as_in_kubernetes(cpu, memory, used_cpu, expected):
    world = World(a_node(cpu="8", memory="8Gi"))
    if used_cpu:
        world.apply(a_pod("there", cpu=used_cpu, node_name="node-1"))
    cycle, pod = CycleState(), a_pod(cpu=cpu, memory=memory)
    NodeResourcesFit().pre_filter(cycle, pod, world.scheduler.handle.snapshot)
    plugin = NodeResourcesBalancedAllocation()
    node = world.scheduler.handle.snapshot.nodes.get("node-1")
    assert plugin.pre_score(cycle, pod, world.scheduler.handle.snapshot, 1) is None
    assert plugin.score(cycle, pod, node) == expected


@pytest.mark.parametrize(
    ("fractions", "expected"),
    [([0.7, 0.7, 0.7], 99), ([0.5, 0.5, 0.5], 100), ([0.2, 0.9, 0.2, 0.9], 64), ([0.0, 0.5, 1.0], 59)],
)
def test_evenness_of_many_resources_is_rounded_as_in_kubernetes(fractions, expected):
    """The sums are those of floating point numbers, one after the other: three times 0.7 is not quite 2.1."""
    assert _evenness(fractions) == expected


def test_evenness_is_not_scored_for_pods_that_ask_for_nothing():
    world = World(a_node())
    cycle, pod = CycleState(), a_pod()
    NodeResourcesFit().pre_filter(cycle, pod, world.scheduler.handle.snapshot)
    answer = NodeResourcesBalancedAllocation().pre_score(cycle, pod, world.scheduler.handle.snapshot, 1)
    assert answer.code.value == "Skip"


def test_room_left_counts_a_little_for_pods_that_do_not_say():
    """A container without requests counts as 100m and 200Mi: a tenth and a fifth of this node."""
    world = World(a_node(cpu="1", memory="1000Mi"))
    cycle, pod = CycleState(), a_pod()
    plugin = NodeResourcesFit()
    plugin.pre_filter(cycle, pod, world.scheduler.handle.snapshot)
    node = world.scheduler.handle.snapshot.nodes.get("node-1")
    assert plugin.score(cycle, pod, node) == (90 + 80) // 2


async def test_single_feasible_node_is_not_scored():
    world = World(a_node("node-1"), a_node("node-2", unschedulable=True), a_pod())
    asked = []
    plugin = world.scheduler.profiles["default-scheduler"].plugins()["NodeResourcesFit"]
    original = plugin.score
    plugin.score = lambda *args: asked.append(args) or original(*args)
    await world.settle()
    assert world.node_of() == "node-1"
    assert asked == []
