"""Plugins by name: the ones that come with us, and those other packages offer under an entry point."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from dray.scheduler.framework.plugin import Plugin

ENTRY_POINT_GROUP = "dray.scheduler.plugins"

PluginFactory = Callable[[Mapping[str, Any], Any], Plugin]
"""Makes a plugin from its `pluginConfig` arguments and the scheduler's `Handle`."""


class Registry:
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
        for point in entry_points(group=ENTRY_POINT_GROUP):
            self.add(point.name, point.load())

    def make(self, name: str, args: Mapping[str, Any], handle: Any) -> Plugin:
        return self._factories[name](args, handle)
