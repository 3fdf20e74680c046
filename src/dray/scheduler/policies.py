"""Packing policies: named changes of the configuration, off by default."""

from dataclasses import replace

from dray.scheduler.config import SchedulerConfig
from dray.scheduler.framework.profile import EnabledPlugin, PluginSet, ProfileConfig

POLICIES: dict[str, dict[str, object]] = {
    "best-fit": {"strategy": "fullest"},
    "least-fragmentation": {"strategy": "smallest-leftover"},
}
"""The arguments of DevicePacking per policy."""

PACKING_WEIGHT = 10


def with_policy(config: SchedulerConfig, policy: str) -> SchedulerConfig:
    """Every profile also scores by packing, and fills nodes up instead of spreading over them."""
    return replace(config, profiles=tuple(_packing(profile, POLICIES[policy]) for profile in config.profiles))


def _packing(profile: ProfileConfig, args: dict[str, object]) -> ProfileConfig:
    multi = profile.plugins.get("multiPoint", PluginSet())
    plugins = {
        **profile.plugins,
        "multiPoint": PluginSet((*multi.enabled, EnabledPlugin("DevicePacking", PACKING_WEIGHT)), multi.disabled),
    }
    fit = {"scoringStrategy": {"type": "MostAllocated"}, **profile.args.get("NodeResourcesFit", {})}
    return replace(profile, plugins=plugins, args={**profile.args, "NodeResourcesFit": fit, "DevicePacking": args})
