"""A pod of high priority takes devices only from pods of its own namespace, unless the scheduler's configuration says otherwise."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.features import FeatureGates
from dray.scheduler.config import ConfigError, SchedulerConfig, parse
from tests.builders.objects import a_class, a_node, a_pod, a_slice, template_pod
from tests.scheduler.world import World

TENANT = "tenant"
Namespaced = TypeVar("Namespaced", Pod, ResourceClaim)


def configured(value: object) -> SchedulerConfig:
    args = {"devicesOfOtherNamespaces": value}
    profile = {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return parse({**kind, "profiles": [profile]}, FeatureGates.default())


def elsewhere(obj: Namespaced) -> Namespaced:
    """The same object in the tenant's namespace."""
    return replace(obj, metadata=replace(obj.metadata, namespace=TENANT))


def a_pod_elsewhere(name: str, priority: int) -> tuple[Pod, ResourceClaim]:
    pod, claim = template_pod(name, priority=priority)
    return elsewhere(pod), elsewhere(claim)


def node_elsewhere(world: World, name: str) -> str:
    pod: Pod | None = world.cluster.get(Pod, name, TENANT)
    assert pod is not None
    return pod.spec.node_name


async def test_devices_of_another_namespace_are_not_taken() -> None:
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("low", priority=0))
    await world.settle()
    world.apply(*a_pod_elsewhere("high", 1_000_000_000))
    await world.settle(seconds=3)
    assert world.pod("low") is not None
    assert world.devices_of("low-dev") == ["node-1/gpu-0"]
    assert node_elsewhere(world, "high") == ""
    assert world.events("Preempted") == []


async def test_of_two_victims_the_one_of_the_own_namespace_goes() -> None:
    world = World(a_node(), a_slice(devices=2), a_class(), *template_pod("low", priority=0))
    world.apply(*a_pod_elsewhere("own", 5))
    await world.settle()
    world.apply(*a_pod_elsewhere("high", 10))
    await world.settle(seconds=3)
    assert node_elsewhere(world, "high") == "node-1"
    assert world.pod("low") is not None
    assert world.cluster.get(Pod, "own", TENANT) is None


async def test_cpu_of_another_namespace_is_taken_as_in_kubernetes() -> None:
    world = World(a_node(cpu="1"), a_pod("low", cpu="1", priority=0))
    await world.settle()
    world.apply(elsewhere(a_pod("high", cpu="1", priority=10)))
    await world.settle(seconds=2)
    assert node_elsewhere(world, "high") == "node-1"
    assert world.pod("low") is None


async def test_removing_a_pod_for_its_cpu_does_not_count_its_devices_as_free() -> None:
    """With the pod of the other namespace gone there would be cpu, but its device is not for the taking."""
    low, claim = template_pod("low", priority=0, cpu="1")
    world = World(a_node(cpu="1"), a_slice(devices=1), a_class(), low, claim)
    await world.settle()
    high, wanted = template_pod("high", priority=10, cpu="1")
    world.apply(elsewhere(high), elsewhere(wanted))
    await world.settle(seconds=3)
    assert world.pod("low") is not None
    assert node_elsewhere(world, "high") == ""


async def test_the_configuration_of_the_scheduler_may_allow_it() -> None:
    world = World(a_node(), a_slice(devices=1), a_class(), *template_pod("low", priority=0), config=configured(True))
    await world.settle()
    world.apply(*a_pod_elsewhere("high", 10))
    await world.settle(seconds=3)
    assert node_elsewhere(world, "high") == "node-1"
    assert world.pod("low") is None


@pytest.mark.parametrize("value", ["yes", 1, "true", []])
def test_the_configuration_is_a_truth_value(value: object) -> None:
    with pytest.raises(ConfigError, match="devicesOfOtherNamespaces"):
        configured(value)
