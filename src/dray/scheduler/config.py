"""The scheduler's configuration: KubeSchedulerConfiguration, its durations, and the packing policies that change it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from dray.features import FeatureGates
from dray.scheduler.framework.interface import EXTENSION_POINTS
from dray.scheduler.framework.profile import EnabledPlugin, PluginSet, ProfileConfig, merge
from dray.scheduler.packing import UNITS

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class DurationError(ValueError):
    """The text is not a duration."""


def parse_duration(text: str) -> float:
    """In seconds. A bare 0 needs no unit; every other number does."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise DurationError(f'invalid duration "{text}"')
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not rest:
        raise DurationError(f'invalid duration "{text}"')
    return sign * total


API_VERSION = "kubescheduler.config.k8s.io/v1"

_POINTS = frozenset(point.field for point in EXTENSION_POINTS)

DEFAULT_PLUGINS: tuple[EnabledPlugin, ...] = (
    EnabledPlugin("SchedulingGates"),
    EnabledPlugin("PrioritySort"),
    EnabledPlugin("NodeName"),
    EnabledPlugin("NodeUnschedulable"),
    EnabledPlugin("TaintToleration", 3),
    EnabledPlugin("NodeAffinity", 2),
    EnabledPlugin("NodePorts"),
    EnabledPlugin("NodeResourcesFit", 1),
    EnabledPlugin("PodTopologySpread", 2),
    EnabledPlugin("InterPodAffinity", 2),
    EnabledPlugin("DynamicResources", 2),
    EnabledPlugin("DefaultPreemption"),
    EnabledPlugin("NodeResourcesBalancedAllocation", 1),
    EnabledPlugin("DefaultBinder"),
)

# Plugins of Kubernetes that have nothing to do here: naming them in a configuration is fine and changes nothing.
WITHOUT_EFFECT = frozenset(
    {"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "ImageLocality", "NodeDeclaredFeatures"}
)


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the field."""


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    leader_elect: bool = True
    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    parallelism: int = 16
    leader_election: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)


def load(path: Path, gates: FeatureGates) -> SchedulerConfig:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as problem:
        raise ConfigError(f"{path}: {problem}") from problem
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a KubeSchedulerConfiguration")
    return parse(document, gates)


def parse(document: Mapping[str, Any], gates: FeatureGates) -> SchedulerConfig:
    """Raises ConfigError for every mistake, with the name of the field."""
    if document.get("kind") != "KubeSchedulerConfiguration" or document.get("apiVersion") != API_VERSION:
        raise ConfigError(f"apiVersion and kind must be {API_VERSION} KubeSchedulerConfiguration")
    percentage = _whole(document, "percentageOfNodesToScore", 0)
    if not 0 <= percentage <= 100:
        raise ConfigError(f"percentageOfNodesToScore: Invalid value: {percentage}: not in valid range [0-100]")
    initial, maximum = _whole(document, "podInitialBackoffSeconds", 1), _whole(document, "podMaxBackoffSeconds", 10)
    if maximum < initial:
        raise ConfigError(
            f"podMaxBackoffSeconds: Invalid value: {maximum}: must be greater than or equal to podInitialBackoffSeconds"
        )
    parallelism = _whole(document, "parallelism", 16)
    if parallelism <= 0:
        raise ConfigError(f"parallelism: Invalid value: {parallelism}: should be an integer value greater than zero")
    return SchedulerConfig(
        _profiles(document.get("profiles") or [{}], gates),
        percentage,
        float(initial),
        float(maximum),
        parallelism,
        _leader_election(document.get("leaderElection") or {}),
    )


def _whole(document: Mapping[str, Any], name: str, default: int) -> int:
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name}: Invalid value: {value!r}: must be a whole number, zero or greater")
    return value


def _profiles(entries: list[Mapping[str, Any]], gates: FeatureGates) -> tuple[ProfileConfig, ...]:
    profiles = tuple(_profile(f"profiles[{index}]", entry, gates) for index, entry in enumerate(entries))
    names = [profile.scheduler_name for profile in profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f'profiles[{index}].schedulerName: Duplicate value: "{name}"')
    return profiles


def _profile(path: str, entry: Mapping[str, Any], gates: FeatureGates) -> ProfileConfig:
    plugins = {
        point: _plugin_set(f"{path}.plugins.{point}", written or {})
        for point, written in (entry.get("plugins") or {}).items()
    }
    for point in plugins:
        if point != "multiPoint" and point not in _POINTS:
            raise ConfigError(f"{path}.plugins: unknown extension point {point}")
    args: dict[str, Mapping[str, Any]] = {}
    for index, plugin in enumerate(entry.get("pluginConfig") or []):
        name = plugin.get("name", "")
        if name in args:
            raise ConfigError(f'{path}.pluginConfig[{index}]: Duplicate value: "{name}"')
        args[name] = plugin.get("args") or {}
    if "DynamicResources" in args:
        check_dynamic_resources_args(f"{path}.pluginConfig", args["DynamicResources"], gates)
    across = args.get("DefaultPreemption", {}).get("devicesOfOtherNamespaces", False)
    if not isinstance(across, bool):
        raise ConfigError(
            f"{path}.pluginConfig.devicesOfOtherNamespaces: Invalid value: {across!r}: must be true or false"
        )
    return ProfileConfig(
        entry.get("schedulerName") or "default-scheduler", entry.get("percentageOfNodesToScore"), plugins, args
    )


def _plugin_set(path: str, written: Mapping[str, Any]) -> PluginSet:
    enabled = tuple(
        EnabledPlugin(entry.get("name", ""), int(entry.get("weight") or 0)) for entry in written.get("enabled") or []
    )
    for index, plugin in enumerate(enabled):
        if not plugin.name:
            raise ConfigError(f"{path}.enabled[{index}].name: Required value")
    disabled = tuple(entry.get("name", "") for entry in written.get("disabled") or [])
    return PluginSet(tuple(plugin for plugin in enabled if plugin.name not in WITHOUT_EFFECT), disabled)


def check_dynamic_resources_args(path: str, args: Mapping[str, Any], gates: FeatureGates) -> None:
    if args.get("filterTimeout") is not None:
        if not gates.enabled("DRASchedulerFilterTimeout"):
            raise ConfigError(f"{path}.filterTimeout: Forbidden: the DRASchedulerFilterTimeout feature is disabled")
        if _seconds(f"{path}.filterTimeout", args["filterTimeout"]) < 0:
            raise ConfigError(
                f'{path}.filterTimeout: Invalid value: "{args["filterTimeout"]}": must be zero or positive'
            )
    if args.get("bindingTimeout") is not None and _seconds(f"{path}.bindingTimeout", args["bindingTimeout"]) < 1:
        raise ConfigError(
            f'{path}.bindingTimeout: Invalid value: "{args["bindingTimeout"]}": must be at least 1 second'
        )


def _seconds(path: str, text: Any) -> float:
    try:
        return parse_duration(str(text))
    except DurationError as problem:
        raise ConfigError(f'{path}: Invalid value: "{text}": {problem}') from problem


def _leader_election(entry: Mapping[str, Any]) -> LeaderElectionConfig:
    default = LeaderElectionConfig()
    chosen = LeaderElectionConfig(
        bool(entry.get("leaderElect", default.leader_elect)),
        entry.get("resourceNamespace") or default.namespace,
        entry.get("resourceName") or default.name,
        _seconds("leaderElection.leaseDuration", entry.get("leaseDuration", "15s")),
        _seconds("leaderElection.renewDeadline", entry.get("renewDeadline", "10s")),
        _seconds("leaderElection.retryPeriod", entry.get("retryPeriod", "2s")),
    )
    if chosen.leader_elect and chosen.lease_duration_s <= chosen.renew_deadline_s:
        raise ConfigError("leaderElection.leaseDuration: must be greater than renewDeadline")
    if chosen.leader_elect and chosen.renew_deadline_s <= chosen.retry_period_s:
        raise ConfigError("leaderElection.renewDeadline: must be greater than retryPeriod")
    return chosen


POLICIES = ("least-fragmentation",)
"""Policies beside the default."""

# Plugins that pull pods to empty nodes; with a policy they no longer score.
_SPREADING = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
# One device of waste weighs as much as 1,000 points, so that wishes of pods and soft taints, up to 300 points each, still count.
WISH_FACTOR = UNITS // 1000


def with_policy(config: SchedulerConfig, policy: str, mix: Sequence[object] = ()) -> SchedulerConfig:
    """Every profile scores all nodes that fit by the waste that the pod would add there, and no longer spreads.

    `mix` are pods to expect, each with its claims; those that enter the queue are counted as well.
    """
    if policy not in POLICIES:
        raise ConfigError(f"policy: Unsupported value: {policy!r}")
    profiles = tuple(_packing(profile, mix) for profile in config.profiles)
    return replace(config, profiles=profiles, percentage_of_nodes_to_score=100)


def _packing(profile: ProfileConfig, mix: Sequence[object]) -> ProfileConfig:
    everywhere, score = profile.plugins.get("multiPoint", PluginSet()), profile.plugins.get("score", PluginSet())
    inherited = () if "*" in score.disabled else merge(DEFAULT_PLUGINS, everywhere)
    wishes = {plugin.name: plugin.weight for plugin in inherited if plugin.weight}
    wishes |= {plugin.name: plugin.weight or 1 for plugin in score.enabled}
    heavier = [
        EnabledPlugin(name, weight * WISH_FACTOR)
        for name, weight in wishes.items()
        if name not in _SPREADING and name not in score.disabled
    ]
    packing = EnabledPlugin("DevicePacking", 1)
    plugins = {
        **profile.plugins,
        "multiPoint": PluginSet((*everywhere.enabled, packing), everywhere.disabled),
        "score": PluginSet((*heavier, packing), (*score.disabled, *_SPREADING)),
    }
    args = {**profile.args, "DevicePacking": {"mix": mix}}
    return replace(profile, plugins=plugins, args=args, percentage_of_nodes_to_score=100)
