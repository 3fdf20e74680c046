"""What pods would like but do not insist on: even spread, and neighbours near or far."""

import math
import random

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_node, a_pod
from tests.scheduler.world import World

from dray.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from dray.api.meta import LabelSelector, OwnerReference
from dray.scheduler.assembly import default_registry, make_profiles
from dray.scheduler.config import ConfigError, SchedulerConfig
from dray.scheduler.framework.profile import ProfileConfig
from dray.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from dray.scheduler.plugins.topology_spread import HOSTNAME, IGNORED, SoftRow, SoftSpread, evenly

ZONE = "topology.kubernetes.io/zone"
WEB = LabelSelector(match_labels={"app": "web"})


def in_zone(name, zone=None, **fields):
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return a_node(name, labels=labels, **fields)


def owned(pod, uid="rs-1", kind="ReplicaSet"):
    owner = OwnerReference(api_version="apps/v1", kind=kind, name="web", uid=uid, controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))


def near(key=HOSTNAME, weight=10, selector=WEB):
    term = WeightedPodAffinityTerm(
        weight=weight, pod_affinity_term=PodAffinityTerm(topology_key=key, label_selector=selector)
    )
    return PodAffinity(preferred_during_scheduling_ignored_during_execution=(term,))


def args(**plugins):
    return SchedulerConfig(profiles=(ProfileConfig(args=plugins),))


# --- spread


async def test_pods_of_one_replica_set_are_spread_over_nodes_and_zones():
    """The first node is the emptiest by far, but its siblings are there already."""
    nodes = [in_zone("a1", "a", cpu="64"), in_zone("a2", "a"), in_zone("b1", "b"), in_zone("b2", "b")]
    world = World(*nodes)
    for index in range(8):
        world.apply(owned(a_pod(f"p{index}", cpu="10m")))
        await world.settle()
    placed = [world.node_of(f"p{index}") for index in range(8)]
    assert {placed.count(node.metadata.name) for node in nodes} == {2}
    assert {name[0] for name in placed[:2]} == {"a", "b"}, "the second goes to the other zone"


async def test_siblings_that_are_leaving_and_other_sets_do_not_count():
    world = World(in_zone("n1"), in_zone("n2"))
    leaving = owned(a_pod("old", node_name="n1"))
    world.apply(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))
    world.apply(owned(a_pod("foreign", node_name="n1"), uid="rs-2"))
    world.apply(owned(a_pod("job", node_name="n1"), kind="Job"))
    counts = world.scheduler.handle.snapshot.pods_of_controller
    assert counts("rs-1") == {}
    assert counts("rs-2") == {"n1": 1}


async def test_count_of_siblings_follows_their_lives():
    world = World(in_zone("n1"))
    counts = world.scheduler.handle.snapshot.pods_of_controller
    pod = owned(a_pod("p", node_name="n1"))
    world.apply(pod, owned(a_pod("q", node_name="n1")))
    assert counts("rs-1") == {"n1": 2}
    world.apply(
        replace(world.pod("p"), metadata=replace(world.pod("p").metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    )
    assert counts("rs-1") == {"n1": 1}
    world.cluster.delete(world.pod("p"))
    assert counts("rs-1") == {"n1": 1}
    world.cluster.delete(world.pod("q"))
    assert counts("rs-1") == {}


async def test_schedule_anyway_prefers_the_emptier_zone_and_never_refuses():
    wish = TopologySpreadConstraint(
        max_skew=1, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway", label_selector=WEB
    )
    world = World(in_zone("a1", "a", cpu="64"), in_zone("b1", "b", cpu="2"))
    for index in range(4):
        world.apply(a_pod(f"p{index}", cpu="900m", labels={"app": "web"}, topology_spread_constraints=(wish,)))
        await world.settle()
    placed = [world.node_of(f"p{index}") for index in range(4)]
    assert sorted(placed) == ["a1", "a1", "b1", "b1"]
    world.apply(a_pod("p4", cpu="900m", labels={"app": "web"}, topology_spread_constraints=(wish,)))
    await world.settle()
    assert world.node_of("p4") == "a1"


async def test_own_constraints_take_the_place_of_the_defaults():
    """Its only wish is about another label, so the siblings on the node do not matter."""
    other = LabelSelector(match_labels={"app": "other"})
    wish = TopologySpreadConstraint(
        max_skew=1, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway", label_selector=other
    )
    world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"))
    world.apply(owned(a_pod("sibling", node_name="n1")))
    world.apply(owned(a_pod("p", cpu="1", topology_spread_constraints=(wish,))))
    await world.settle()
    assert world.node_of("p") == "n1"


async def test_defaults_can_be_switched_off():
    config = args(PodTopologySpread={"defaultingType": "List"})
    world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"), config=config)
    world.apply(owned(a_pod("sibling", node_name="n1")), owned(a_pod("p", cpu="1")))
    await world.settle()
    assert world.node_of("p") == "n1"


@pytest.mark.parametrize(
    ("plugin", "given", "problem"),
    [
        ("PodTopologySpread", {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "k"}]}, "defaultConstraints"),
        (
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": [{"topologyKey": "k", "labelSelector": {}}]},
            "labelSelector",
        ),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight"),
    ],
)
def test_bad_arguments_are_named(plugin, given, problem):
    world = World()
    with pytest.raises(ConfigError, match=problem):
        make_profiles(args(**{plugin: given}), default_registry(), world.scheduler.handle)


@pytest.mark.parametrize(
    ("raw", "normalized"),
    [
        ([0], {0: 100}),
        ([2, 6, 10], {2: 100, 6: 60, 10: 20}),
        ([5, IGNORED], {5: 100, IGNORED: 0}),
        ([IGNORED], {IGNORED: 0}),
    ],
)
def test_emptiest_gets_the_most(raw, normalized):
    assert evenly(raw) == normalized


def test_spread_score_is_that_of_a_plain_sum():
    """Masks or node by node: the same numbers."""
    chance = random.Random(5)
    world = World(*(in_zone(f"n{index}", chance.choice([None, "a", "b", "c"])) for index in range(40)))
    nodes = world.scheduler.handle.snapshot.nodes
    nodes.refresh()
    for needs_all_keys in (True, False):
        counts = {f"n{chance.randrange(40)}": chance.randint(1, 4) for _ in range(25)}
        rows = (SoftRow(HOSTNAME, 3, counts), SoftRow(ZONE, 5, counts))
        feasible = nodes.mask_of(f"n{index}" for index in range(0, 40, 2))
        by_score = SoftSpread(rows, needs_all_keys).scores(feasible, nodes)
        assert sum(mask.bit_count() for mask in by_score.values()) == 20
        part = [state for state in nodes if state.bit & feasible and (ZONE in state.labels or not needs_all_keys)]
        zones = {state.labels[ZONE] for state in part if ZONE in state.labels}
        for state in nodes:
            if not state.bit & feasible:
                continue
            expected = IGNORED
            if state in part:
                total = counts.get(state.name, 0) * math.log(len(part) + 2) + 2
                if ZONE in state.labels:
                    there = sum(
                        count
                        for name, count in counts.items()
                        if nodes.get(name).labels.get(ZONE) == state.labels[ZONE]
                    )
                    total += there * math.log(len(zones) + 2) + 4
                expected = math.floor(total + 0.5)
            assert by_score[expected] & state.bit


# --- neighbours


async def test_preferred_neighbours_decide():
    world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"), in_zone("n3"))
    world.apply(a_pod("web", labels={"app": "web"}, node_name="n2"))
    world.apply(a_pod("friend", affinity=Affinity(pod_affinity=near(weight=100))))
    await world.settle()
    assert world.node_of("friend") == "n2"
    world.apply(a_pod("loner", cpu="1", affinity=Affinity(pod_anti_affinity=near(weight=100))))
    await world.settle()
    assert world.node_of("loner") == "n1"


async def test_placed_pods_have_wishes_too():
    """One that dislikes web pods keeps them away, one that needs a neighbour draws it near."""
    world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"))
    world.apply(a_pod("grump", node_name="n1", affinity=Affinity(pod_anti_affinity=near(weight=100))))
    world.apply(a_pod("web", labels={"app": "web"}))
    await world.settle()
    assert world.node_of("web") == "n2"


async def test_required_affinity_of_placed_pods_counts_by_its_weight():
    term = PodAffinityTerm(topology_key=HOSTNAME, label_selector=WEB)
    must = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    for weight, expected in ((1, "n2"), (0, "n1")):
        config = args(InterPodAffinity={"hardPodAffinityWeight": weight})
        world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"), config=config)
        world.apply(a_pod("needy", node_name="n2", affinity=must), a_pod("web", labels={"app": "web"}))
        await world.settle()
        assert world.node_of("web") == expected


async def test_wishes_of_placed_pods_can_be_ignored():
    config = args(InterPodAffinity={"ignorePreferredTermsOfExistingPods": True})
    world = World(in_zone("n1", cpu="64", memory="64Gi"), in_zone("n2"), config=config)
    world.apply(a_pod("grump", node_name="n1", affinity=Affinity(pod_anti_affinity=near(weight=100))))
    world.apply(a_pod("web", labels={"app": "web"}, cpu="1"))
    await world.settle()
    assert world.node_of("web") == "n1"


@pytest.mark.parametrize(
    ("raw", "normalized"), [([0, 0], {0: 0}), ([-10, 0, 10], {-10: 0, 0: 50, 10: 100}), ([7], {7: 0})]
)
def test_neighbours_are_scored_from_worst_to_best(raw, normalized):
    assert InterPodAffinity().normalize(raw) == normalized


async def test_pods_without_wishes_cost_nothing():
    """Neither plugin scores a plain pod, so that its nodes are not looked at for them."""
    world = World(in_zone("n1"), in_zone("n2"), a_pod("p"))
    asked = []
    nodes = world.scheduler.handle.snapshot.nodes
    original = nodes.by_label
    nodes.by_label = lambda key: asked.append(key) or original(key)
    await world.settle()
    assert world.node_of("p")
    assert asked == []
