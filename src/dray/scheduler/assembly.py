"""Which plugins there are, and how a scheduler's profiles are put together."""

from collections.abc import Mapping
from typing import Any

from dray.scheduler.config import DEFAULT_PLUGINS, WITHOUT_EFFECT, ConfigError, SchedulerConfig
from dray.scheduler.framework.interface import Plugin
from dray.scheduler.framework.profile import (
    EnabledPlugin,
    PluginFactory,
    PluginRegistry,
    ProfileConfig,
    SchedulingProfile,
    names_in_use,
    resolve,
)
from dray.scheduler.handle import Handle
from dray.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from dray.scheduler.plugins.default_preemption import DefaultPreemption
from dray.scheduler.plugins.device_packing import DevicePacking
from dray.scheduler.plugins.dynamic_resources import DynamicResources
from dray.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from dray.scheduler.plugins.node_resources_fit import NodeResourcesFit
from dray.scheduler.plugins.pod_spec_plugins import (
    DefaultBinder,
    NodeAffinity,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    PrioritySort,
    SchedulingGates,
    TaintToleration,
)
from dray.scheduler.plugins.topology_spread import PodTopologySpread

OURS: Mapping[str, PluginFactory] = {
    "SchedulingGates": lambda args, handle: SchedulingGates(),
    "PrioritySort": lambda args, handle: PrioritySort(),
    "NodeName": lambda args, handle: NodeName(),
    "NodeUnschedulable": lambda args, handle: NodeUnschedulable(),
    "TaintToleration": lambda args, handle: TaintToleration(),
    "NodeAffinity": lambda args, handle: NodeAffinity(),
    "NodePorts": lambda args, handle: NodePorts(),
    "NodeResourcesFit": lambda args, handle: NodeResourcesFit(args),
    "PodTopologySpread": lambda args, handle: PodTopologySpread(args),
    "InterPodAffinity": lambda args, handle: InterPodAffinity(args),
    "DynamicResources": DynamicResources,
    "DefaultPreemption": DefaultPreemption,
    "DevicePacking": DevicePacking,
    "NodeResourcesBalancedAllocation": lambda args, handle: NodeResourcesBalancedAllocation(args),
    "DefaultBinder": lambda args, handle: DefaultBinder(handle),
}

WAITS_FOR_PEOPLE = frozenset({SchedulingGates.name})
"""Plugins that hold a pod back until somebody changes it."""


def default_registry() -> PluginRegistry:
    registry = PluginRegistry(OURS)
    registry.add_installed()
    return registry


def make_profiles(config: SchedulerConfig, registry: PluginRegistry, handle: Handle) -> dict[str, SchedulingProfile]:
    """Profiles by scheduler name. Raises `ConfigError` for plugins nobody knows."""
    return {
        profile.scheduler_name: _make_profile(profile, config.percentage_of_nodes_to_score, registry, handle)
        for profile in config.profiles
    }


def _make_profile(
    config: ProfileConfig, percentage: int, registry: PluginRegistry, handle: Handle
) -> SchedulingProfile:
    instances = {
        plugin.name: _make_plugin(plugin, config.args.get(plugin.name, {}), registry, handle)
        for plugin in names_in_use(config, DEFAULT_PLUGINS)
    }
    profile = resolve(config, DEFAULT_PLUGINS, instances, percentage)
    _check(profile)
    for plugin in instances.values():
        if isinstance(plugin, DefaultPreemption):
            plugin.profile = profile
    return profile


def _make_plugin(plugin: EnabledPlugin, args: Mapping[str, Any], registry: PluginRegistry, handle: Handle) -> Plugin:
    if plugin.name not in registry:
        hint = "has no effect here, leave it out" if plugin.name in WITHOUT_EFFECT else "is not known"
        raise ConfigError(f"plugin {plugin.name} {hint}")
    try:
        return registry.make(plugin.name, args, handle)
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigError(f"plugin {plugin.name}: {problem}") from problem


def _check(profile: SchedulingProfile) -> None:
    for point, plugins in (("queueSort", profile.at.queue_sort), ("bind", profile.at.bind)):
        if not plugins:
            raise ConfigError(f"profile {profile.name}: at least one {point} plugin is needed")
    if len(profile.at.queue_sort) > 1:
        raise ConfigError(f"profile {profile.name}: only one queueSort plugin can be enabled")
