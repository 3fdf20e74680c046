"""The extension points after a node is chosen: Reserve, Permit, PreBind, Bind, PostBind and their undoing."""

import importlib.metadata

import pytest
from tests.builders.objects import a_node, a_pod
from tests.scheduler.world import World

from dray.scheduler.assembly import default_registry
from dray.scheduler.config import ConfigError, SchedulerConfig
from dray.scheduler.framework.interface import (
    BindPlugin,
    EnqueuePlugin,
    FilterPlugin,
    PermitPlugin,
    PluginStatus,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    RememberedFilter,
    RememberedScore,
    ReservePlugin,
    ScorePlugin,
    StatusCode,
    error,
    unschedulable,
)
from dray.scheduler.framework.profile import EnabledPlugin, PluginSet, ProfileConfig

DIARY = []


class Watcher:
    """Writes down every call; `answers` says what to answer at which point."""

    def __init__(self, name="Watcher", **answers):
        self.name = name
        self._answers = answers

    def _note(self, point):
        DIARY.append(f"{point} {self.name}")
        return self._answers.get(point)

    def reserve(self, cycle, pod, node_name):
        return self._note("reserve")

    async def unreserve(self, cycle, pod, node_name):
        self._note("unreserve")

    def permit(self, cycle, pod, node_name):
        answer = self._note("permit")
        return answer() if callable(answer) else (answer, 2.0)

    async def pre_bind(self, cycle, pod, node_name):
        return self._note("pre_bind")

    def post_bind(self, cycle, pod, node_name):
        self._note("post_bind")


def world_with_plugins(*plugins):
    DIARY.clear()
    registry = default_registry()
    for plugin in plugins:
        registry.add(plugin.name, lambda args, handle, plugin=plugin: plugin)
    enabled = PluginSet(tuple(EnabledPlugin(plugin.name) for plugin in plugins))
    config = SchedulerConfig(profiles=(ProfileConfig(plugins={"multiPoint": enabled}),))
    return World(a_node(), a_pod(), config=config, plugins=registry)


async def test_points_are_passed_in_order():
    world = world_with_plugins(Watcher())
    await world.settle()
    assert DIARY == ["reserve Watcher", "permit Watcher", "pre_bind Watcher", "post_bind Watcher"]
    assert world.node_of() == "node-1"


async def test_failure_undoes_in_reverse_order():
    world = world_with_plugins(Watcher("First"), Watcher("Second", pre_bind=error("no luck")))
    await world.attempt()
    assert DIARY[-2:] == ["unreserve Second", "unreserve First"]
    assert world.message() == 'running PreBind plugin "Second": no luck'
    assert world.requested() == {"cpu": 0, "memory": 0}


async def test_reserve_that_fails_is_undone_too():
    world = world_with_plugins(Watcher(reserve=error("full")))
    await world.attempt()
    assert DIARY == ["reserve Watcher", "unreserve Watcher"]
    assert world.message() == 'running Reserve plugin "Watcher": full'
    assert world.scheduler.handle.snapshot.node_of("uid-pod") is None


async def test_permit_that_waits_and_then_agrees():
    left = [3]

    def later():
        left[0] -= 1
        return (PluginStatus(StatusCode.WAIT) if left[0] > 0 else None), 5.0

    world = world_with_plugins(Watcher(permit=later))
    await world.settle(seconds=2)
    assert world.node_of() == "node-1"
    assert DIARY.count("permit Watcher") == 3


async def test_permit_that_never_agrees_is_a_rejection_after_its_time():
    world = world_with_plugins(Watcher(permit=PluginStatus(StatusCode.WAIT)))
    await world.settle(seconds=4)
    assert world.reason() == "Unschedulable"
    assert "rejected due to timeout after waiting 2s at plugin Watcher" in world.message()


async def test_permit_that_refuses():
    world = world_with_plugins(Watcher(permit=unschedulable("not today")))
    await world.attempt()
    assert world.message() == "not today"
    assert world.where() == "unschedulable"


async def test_plugin_that_breaks_costs_the_attempt_and_nothing_else():
    class Broken:
        name = "Broken"

        def filter(self, cycle, pod, node):
            raise RuntimeError("a bug")

    world = world_with_plugins(Broken())
    await world.attempt()
    assert world.message() == "a bug"
    assert world.reason() == "SchedulerError"
    assert world.where() == "backoff"


def test_our_plugins_fit_the_protocols():
    world = world_with_plugins()
    plugins = world.scheduler.profiles["default-scheduler"].plugins()
    devices = plugins["DynamicResources"]
    for protocol in (
        PreEnqueuePlugin,
        EnqueuePlugin,
        PreFilterPlugin,
        FilterPlugin,
        PostFilterPlugin,
        ScorePlugin,
        ReservePlugin,
        PreBindPlugin,
        RememberedFilter,
        RememberedScore,
    ):
        assert isinstance(devices, protocol)
    assert isinstance(plugins["DefaultBinder"], BindPlugin)
    assert isinstance(Watcher(), PermitPlugin)


def test_installed_packages_bring_plugins(monkeypatch):
    class Point:
        name = "Installed"

        def load(self):
            return lambda args, handle: Watcher("Installed")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Point()] if "dray" in group else [])
    assert "Installed" in default_registry()


def test_name_of_ours_cannot_be_taken_over():
    with pytest.raises(ValueError, match="already registered"):
        default_registry().add("NodeName", lambda args, handle: Watcher("NodeName"))


class Filters:
    name = "Wrong"

    def filter(self, cycle, pod, node):
        return None


class Nameless:
    def filter(self, cycle, pod, node):
        return None


class Idle:
    name = "Wrong"


class TakesTooLittle:
    name = "Wrong"

    def filter(self, pod):
        return None


class BindsWithoutWaiting:
    name = "Wrong"

    def pre_bind(self, cycle, pod, node_name):
        return None


class ScoresAsync:
    name = "Wrong"

    async def score(self, cycle, pod, node):
        return 0


class KeepsWhatItReserves:
    name = "Wrong"

    def reserve(self, cycle, pod, node_name):
        return None


class ForgetsWhatItDependsOn(Filters):
    def filter_shape(self, cycle, pod):
        return None


class NormalizesNothing(Filters):
    def normalize(self, scores):
        return {}


class NoMethod(Filters):
    permit = "yes"


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Nameless, "its name is None, not 'Wrong'"),
        (Idle, "it implements no extension point"),
        (TakesTooLittle, r"filter must take \(cycle, pod, node\)"),
        (BindsWithoutWaiting, "pre_bind must be async"),
        (ScoresAsync, "score must not be async"),
        (KeepsWhatItReserves, "it has reserve, but no unreserve"),
        (ForgetsWhatItDependsOn, "it has filter_shape, but no filter_depends_on"),
        (NormalizesNothing, "it has normalize, but no score or scores"),
        (NoMethod, "permit is not a method"),
    ],
)
def test_plugin_that_implements_a_point_wrongly_is_refused(plugin, problem):
    registry = default_registry()
    registry.add("Wrong", lambda args, handle: plugin())
    config = SchedulerConfig(profiles=(ProfileConfig(plugins={"multiPoint": PluginSet((EnabledPlugin("Wrong"),))}),))
    with pytest.raises(ConfigError, match=f"plugin Wrong: {problem}"):
        World(a_node(), config=config, plugins=registry)
