"""The filters that are not about devices, with their codes and words."""

import pytest
from tests.builders.objects import a_node, a_pod
from tests.scheduler.world import World

from dray.api.core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from dray.api.meta import LabelSelector, LabelSelectorRequirement

HOST = "kubernetes.io/hostname"


def required(*requirements, fields=()):
    term = NodeSelectorTerm(match_expressions=requirements, match_fields=fields)
    selector = NodeSelector(node_selector_terms=(term,))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def needs(key, operator, *values):
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


NAMED = (NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-9",)),)


@pytest.mark.parametrize(
    ("node", "pod", "reason"),
    [
        pytest.param(a_node(unschedulable=True), a_pod(), "node(s) were unschedulable", id="cordoned"),
        pytest.param(
            a_node(taints=(Taint(key="a", value="b", effect="NoSchedule"),)),
            a_pod(),
            "node(s) had untolerated taint(s)",
            id="no-schedule-taint",
        ),
        pytest.param(
            a_node(taints=(Taint(key="a", effect="NoExecute"),)),
            a_pod(tolerations=(Toleration(key="a", operator="Exists", effect="NoSchedule"),)),
            "node(s) had untolerated taint(s)",
            id="no-execute-taint",
        ),
        pytest.param(
            a_node(),
            a_pod(node_selector={"disk": "ssd"}),
            "node(s) didn't match Pod's node affinity/selector",
            id="selector",
        ),
        pytest.param(
            a_node(labels={"disk": "hdd"}),
            a_pod(affinity=required(needs("disk", "NotIn", "hdd"))),
            "node(s) didn't match Pod's node affinity/selector",
            id="affinity",
        ),
        pytest.param(
            a_node(),
            a_pod(affinity=required(fields=NAMED)),
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            id="other-name",
        ),
        pytest.param(a_node(), a_pod(cpu="9"), "Insufficient cpu", id="cpu"),
        pytest.param(a_node(), a_pod(memory="33Gi"), "Insufficient memory", id="memory"),
        pytest.param(a_node(pods="0"), a_pod(), "Too many pods", id="pods"),
        pytest.param(
            a_node(), a_pod(requests={"example.com/fpga": "1"}), "Insufficient example.com/fpga", id="extended"
        ),
    ],
)
async def test_node_is_turned_away(node, pod, reason):
    world = World(node, pod)
    await world.settle()
    assert world.message().startswith(f"0/1 nodes are available: 1 {reason}. ")
    assert not world.node_of()


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        pytest.param(
            a_node(unschedulable=True),
            a_pod(tolerations=(Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),)),
            id="cordon-tolerated",
        ),
        pytest.param(
            a_node(taints=(Taint(key="a", value="b", effect="NoSchedule"),)),
            a_pod(tolerations=(Toleration(key="a", value="b"),)),
            id="taint-tolerated",
        ),
        pytest.param(
            a_node(labels={"cores": "16"}), a_pod(affinity=required(needs("cores", "Gt", "8"))), id="greater-than"
        ),
        pytest.param(a_node(), a_pod(affinity=required(needs("disk", "DoesNotExist"))), id="label-absent"),
        pytest.param(a_node(), a_pod(cpu="8", memory="32Gi"), id="exactly-full"),
    ],
)
async def test_node_is_accepted(node, pod):
    world = World(node, pod)
    await world.settle()
    assert world.node_of() == "node-1"


async def test_every_short_resource_is_listed_and_reasons_are_sorted():
    world = World(a_node("node-1"), a_node("node-2", cpu="64"), a_pod(cpu="9", memory="64Gi"))
    await world.settle()
    assert world.message().startswith("0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. ")


def with_port(name, port, address=""):
    ports = (ContainerPort(container_port=80, host_port=port, host_ip=address),)
    return a_pod(name, containers=(Container(name="c", ports=ports),))


async def test_host_port_is_used_once_per_node():
    world = World(a_node(), with_port("p1", 80, "10.0.0.1"), with_port("p2", 80, "10.0.0.2"), with_port("p3", 81))
    await world.settle()
    assert all(world.node_of(name) for name in ("p1", "p2", "p3"))
    world.apply(with_port("p4", 80))
    await world.settle()
    assert "1 node(s) didn't have free ports for the requested pod ports" in world.message("p4")
    world.cluster.delete(world.pod("p3"))
    await world.settle(seconds=2)
    assert not world.node_of("p4")
    world.cluster.delete(world.pod("p1"))
    world.cluster.delete(world.pod("p2"))
    await world.settle(seconds=3)
    assert world.node_of("p4")


def spread(**kwargs):
    return (
        TopologySpreadConstraint(
            max_skew=1,
            topology_key="zone",
            when_unsatisfiable="DoNotSchedule",
            label_selector=LabelSelector(match_labels={"app": "web"}),
            **kwargs,
        ),
    )


async def test_pods_are_spread_over_zones():
    nodes = [a_node("node-1", labels={"zone": "a"}), a_node("node-2", labels={"zone": "b"}), a_node("node-3")]
    world = World(*nodes)
    for index in range(4):
        world.apply(a_pod(f"p{index}", labels={"app": "web"}, topology_spread_constraints=spread()))
    await world.settle()
    placed = sorted(world.node_of(f"p{index}") for index in range(4))
    assert placed == ["node-1", "node-1", "node-2", "node-2"]
    world.apply(a_node("node-2", labels={"zone": "b"}, unschedulable=True))
    world.apply(a_pod("p4", labels={"app": "web"}, topology_spread_constraints=spread()))
    world.apply(a_pod("p5", labels={"app": "web"}, topology_spread_constraints=spread()))
    await world.settle()
    waiting = next(name for name in ("p4", "p5") if not world.node_of(name))
    assert world.message(waiting).startswith(
        "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label), 1 node(s) were unschedulable."
    )


async def test_too_few_domains_count_as_an_empty_one():
    world = World(a_node(labels={"zone": "a"}))
    for index in range(2):
        world.apply(a_pod(f"p{index}", labels={"app": "web"}, topology_spread_constraints=spread(min_domains=2)))
    await world.settle()
    assert len([name for name in ("p0", "p1") if world.node_of(name)]) == 1


def near(app, key=HOST):
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


def far_from(app, key=HOST):
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


async def test_pod_affinity_follows_and_waits():
    world = World(a_node("node-1"), a_node("node-2"), a_pod("p1", affinity=near("db")))
    await world.settle()
    assert "2 node(s) didn't match pod affinity rules" in world.message("p1")
    world.apply(a_pod("db", labels={"app": "db"}))
    await world.settle(seconds=2)
    assert world.node_of("p1") == world.node_of("db") != ""


async def test_first_of_a_group_may_start_anywhere():
    world = World(a_node(), a_pod("p1", labels={"app": "db"}, affinity=near("db")))
    await world.settle()
    assert world.node_of("p1")


async def test_anti_affinity_works_in_both_directions():
    world = World(a_node("node-1"), a_node("node-2"))
    for index in range(3):
        world.apply(a_pod(f"p{index}", labels={"app": "web"}, affinity=far_from("web")))
    await world.settle()
    assert sorted(world.node_of(f"p{index}") for index in range(3)) == ["", "node-1", "node-2"]
    world.apply(a_pod("plain", labels={"app": "web"}))
    await world.settle()
    assert "2 node(s) didn't satisfy existing pods anti-affinity rules" in world.message("plain")


async def test_scheduling_gates_hold_a_pod_back():
    from msgspec.structs import replace

    from dray.api.core import PodSchedulingGate

    pod = a_pod(scheduling_gates=(PodSchedulingGate(name="example.com/wait"),))
    world = World(a_node(), pod)
    await world.settle()
    assert world.where() == "gated"
    world.apply(replace(pod, spec=replace(pod.spec, scheduling_gates=())))
    await world.settle()
    assert world.node_of() == "node-1"


@pytest.mark.parametrize(
    ("labels", "happens", "woken"),
    [
        pytest.param({"app": "web"}, "comes", True, id="friend-comes"),
        pytest.param({"app": "db"}, "comes", False, id="stranger-comes"),
        pytest.param({"app": "db"}, "leaves", False, id="stranger-leaves"),
    ],
)
async def test_pod_affinity_wakes_for_friends_only(labels, happens, woken):
    world = World(a_node("node-1", labels={"zone": "a"}), a_pod("stranger", labels={"app": "db"}, node_name="node-1"))
    near = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": "web"}))
    affinity = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(near,)))
    world.apply(a_pod("pod", affinity=affinity))
    await world.settle()
    assert world.where() == "unschedulable"
    if happens == "comes":
        world.apply(a_pod("other", labels=labels, node_name="node-1"))
    else:
        world.cluster.delete(world.pod("stranger"))
    assert (world.where() != "unschedulable") == woken


@pytest.mark.parametrize(("leaving", "woken"), [("enemy", True), ("stranger", False)])
async def test_anti_affinity_wakes_when_an_enemy_leaves(leaving, woken):
    far = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": "web"}))
    affinity = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(far,)))
    world = World(
        a_node("node-1", labels={"zone": "a"}),
        a_pod("enemy", labels={"app": "web"}, node_name="node-1"),
        a_pod("stranger", labels={"app": "db"}, node_name="node-1"),
        a_pod("pod", affinity=affinity),
    )
    await world.settle()
    assert world.where() == "unschedulable"
    world.cluster.delete(world.pod(leaving))
    assert (world.where() != "unschedulable") == woken


@pytest.mark.parametrize(
    ("keys", "merged", "expected"),
    [
        pytest.param({"match_label_keys": ("version",)}, False, "node-2", id="same-version"),
        pytest.param({"mismatch_label_keys": ("version",)}, False, "node-1", id="other-version"),
        pytest.param({"match_label_keys": ("version",)}, True, "node-1", id="already-in-the-selector"),
    ],
)
async def test_affinity_to_pods_with_the_same_or_other_labels(keys, merged, expected):
    """web v1 runs on node-1, web v2 on node-2; the new pod is v2. A selector that a server has completed has the last word."""
    extra = (LabelSelectorRequirement(key="version", operator="In", values=("v1",)),) if merged else ()
    selector = LabelSelector(match_labels={"app": "web"}, match_expressions=extra)
    term = PodAffinityTerm(topology_key=HOST, label_selector=selector, **keys)
    affinity = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    world = World(*(a_node(name, labels={HOST: name}) for name in ("node-1", "node-2")))
    for version in (1, 2):
        world.apply(
            a_pod(f"web-{version}", labels={"app": "web", "version": f"v{version}"}, node_name=f"node-{version}")
        )
    world.apply(a_pod("pod", labels={"app": "web", "version": "v2"}, affinity=affinity))
    await world.settle()
    assert world.node_of() == expected
