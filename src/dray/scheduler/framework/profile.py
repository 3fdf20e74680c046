"""Plugins by name, and profiles: a scheduler name and its plugins, in order, per extension point."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dray.scheduler.framework.filtering import FilterStep, filter_steps
from dray.scheduler.framework.interface import (
    EXTENSION_POINTS,
    BindPlugin,
    BulkScorePlugin,
    DeviceExplainingPlugin,
    DeviceFreeingPlugin,
    ExtensionPoint,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from dray.scheduler.framework.plugin_check import check_plugin
from dray.scheduler.framework.scoring import ScoreStep, score_steps

ENTRY_POINT_GROUP = "dray.scheduler.plugins"

PluginFactory = Callable[[Mapping[str, Any], Any], Plugin]
"""Makes a plugin from its `pluginConfig` arguments and the scheduler's `Handle`."""


class PluginRegistry:
    def __init__(self, factories: Mapping[str, PluginFactory]) -> None:
        self._factories = dict(factories)

    def __contains__(self, name: str) -> bool:
        return name in self._factories

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def add(self, name: str, factory: PluginFactory) -> None:
        if name in self._factories:
            raise ValueError(f"a plugin named {name} is already registered")
        self._factories[name] = factory

    def add_installed(self) -> None:
        """Register what installed packages offer; a name of ours cannot be taken over."""
        from importlib.metadata import entry_points

        for point in entry_points(group=ENTRY_POINT_GROUP):
            self.add(point.name, point.load())

    def make(self, name: str, args: Mapping[str, Any], handle: Any) -> Plugin:
        """Raises `PluginError` if the plugin implements an extension point wrongly."""
        plugin = self._factories[name](args, handle)
        check_plugin(plugin, name)
        return plugin


@dataclass(frozen=True, slots=True)
class EnabledPlugin:
    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """Enabled and disabled names of one extension point, as written in the configuration."""

    enabled: tuple[EnabledPlugin, ...] = ()
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginsByPoint:
    """The plugins of a profile at each extension point, in the order in which they are called."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    queue_sort: tuple[QueueSortPlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    post_filter: tuple[PostFilterPlugin, ...] = ()
    pre_score: tuple[PreScorePlugin, ...] = ()
    score: tuple[ScorePlugin | BulkScorePlugin, ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()
    bind: tuple[BindPlugin, ...] = ()
    post_bind: tuple[PostBindPlugin, ...] = ()

    def __iter__(self) -> Iterator[tuple[Plugin, ...]]:
        return (getattr(self, point.attribute) for point in EXTENSION_POINTS)


@dataclass(frozen=True)
class SchedulingProfile:
    """Plugins ready to run; `at` holds them per extension point, `weights` those of the score plugins."""

    name: str
    at: PluginsByPoint
    weights: Mapping[str, int]
    percentage_of_nodes_to_score: int

    def plugins(self) -> dict[str, Plugin]:
        return {plugin.name: plugin for plugins in self.at for plugin in plugins}

    # `isinstance` against a Protocol costs some 30 us, so each profile is asked once and not for each pod.

    @cached_property
    def binds_by_default(self) -> bool:
        """Whether nothing happens between the one PreBind plugin and the binding."""
        return len(self.at.pre_bind) == 1 and bool(self.at.bind) and self.at.bind[0].name == "DefaultBinder"

    @cached_property
    def filter_steps(self) -> tuple[FilterStep, ...]:
        return filter_steps(self.at.filter)

    @cached_property
    def score_steps(self) -> tuple[ScoreStep, ...]:
        return score_steps(self.at.score, self.weights)

    @cached_property
    def device_explaining(self) -> DeviceExplainingPlugin | None:
        return next((row for row in self.at.filter if isinstance(row, DeviceExplainingPlugin)), None)

    @cached_property
    def device_freeing(self) -> tuple[DeviceFreeingPlugin, ...]:
        return tuple(row for row in self.at.filter if isinstance(row, DeviceFreeingPlugin))


def merge(default: Iterable[EnabledPlugin], custom: PluginSet) -> tuple[EnabledPlugin, ...]:
    """The defaults without the disabled ones, then the custom ones.

    A custom entry for a default plugin keeps the default's place and takes the new weight.
    """
    replaced = {plugin.name: plugin for plugin in custom.enabled}
    everything_off = "*" in custom.disabled
    kept: list[EnabledPlugin] = []
    for plugin in default:
        if everything_off or plugin.name in custom.disabled:
            continue
        kept.append(replaced.pop(plugin.name, plugin))
    return (*kept, *(plugin for plugin in custom.enabled if plugin.name in replaced))


def names_in_use(config: ProfileConfig, defaults: Iterable[EnabledPlugin]) -> tuple[EnabledPlugin, ...]:
    """Every plugin some extension point needs, MultiPoint order first."""
    multi = merge(defaults, config.plugins.get("multiPoint", PluginSet()))
    seen = {plugin.name for plugin in multi}
    extra = [
        plugin
        for point, custom in config.plugins.items()
        if point != "multiPoint"
        for plugin in custom.enabled
        if plugin.name not in seen and not seen.add(plugin.name)  # type: ignore[func-returns-value]
    ]
    return (*multi, *extra)


def resolve(
    config: ProfileConfig, defaults: tuple[EnabledPlugin, ...], instances: Mapping[str, Plugin], percentage: int
) -> SchedulingProfile:
    """Which instance runs where.

    A MultiPoint plugin that is also named for one extension point comes first there; then the other MultiPoint plugins;
    then what is named for that point alone.
    """
    multi = merge(defaults, config.plugins.get("multiPoint", PluginSet()))
    at: dict[str, tuple[Any, ...]] = {}
    weights: dict[str, int] = {}
    for point in EXTENSION_POINTS:
        custom = config.plugins.get(point.field, PluginSet())
        chosen = _at_point(multi, custom, instances, point)
        at[point.attribute] = tuple(instances[plugin.name] for plugin in chosen)
        if point.attribute == "score":
            weights = {plugin.name: plugin.weight or 1 for plugin in chosen}
    own_percentage = config.percentage_of_nodes_to_score
    if own_percentage is not None:
        percentage = own_percentage
    return SchedulingProfile(config.scheduler_name, PluginsByPoint(**at), weights, percentage)


def _at_point(
    multi: tuple[EnabledPlugin, ...], custom: PluginSet, instances: Mapping[str, Plugin], point: ExtensionPoint
) -> list[EnabledPlugin]:
    named = {plugin.name for plugin in custom.enabled}
    everywhere = {plugin.name for plugin in multi}
    inherited = [
        plugin
        for plugin in multi
        if plugin.name not in named
        and "*" not in custom.disabled
        and plugin.name not in custom.disabled
        and point.is_implemented_by(instances[plugin.name])
    ]
    moved_ahead = [plugin for plugin in custom.enabled if plugin.name in everywhere]
    only_here = [plugin for plugin in custom.enabled if plugin.name not in everywhere]
    return [*moved_ahead, *inherited, *only_here]
