"""Refuses a plugin that implements an extension point wrongly, before it is asked anything."""

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

from dray.scheduler.framework.interface import (
    EXTENSION_POINTS,
    BindPlugin,
    BulkFilterPlugin,
    BulkScorePlugin,
    DeviceExplainingPlugin,
    DeviceFreeingPlugin,
    EnqueuePlugin,
    FilterPlugin,
    NormalizePlugin,
    PermitPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreparedFilter,
    PreScorePlugin,
    QueueSortPlugin,
    RememberedFilter,
    RememberedScore,
    ReservePlugin,
    ScorePlugin,
)

_PROTOCOLS: tuple[type[Any], ...] = (
    PreEnqueuePlugin,
    QueueSortPlugin,
    EnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PreparedFilter,
    BulkFilterPlugin,
    RememberedFilter,
    PostFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    BulkScorePlugin,
    RememberedScore,
    NormalizePlugin,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    BindPlugin,
    PostBindPlugin,
    DeviceFreeingPlugin,
    DeviceExplainingPlugin,
)

_NEEDS: dict[str, tuple[str, ...]] = {
    # A method, and those of which one must be there, too.
    "filter_of": ("filter",),
    "reject": ("filter",),
    "filter_shape": ("filter",),
    "score_shape": ("score",),
    "normalize": ("score", "scores"),
}


class PluginError(ValueError):
    """The plugin cannot be used; the text says what is wrong with it."""


def check_plugin(plugin: object, registered_as: str) -> None:
    """Raises `PluginError` unless every extension point that the plugin implements is implemented as its Protocol says."""
    name = getattr(plugin, "name", None)
    if name != registered_as:
        raise PluginError(f"its name is {name!r}, not {registered_as!r}")
    if not any(point.is_implemented_by(plugin) for point in EXTENSION_POINTS):
        raise PluginError("it implements no extension point")
    for protocol in _PROTOCOLS:
        for problem in _problems(plugin, protocol):
            raise PluginError(problem)


def _problems(plugin: object, protocol: type[Any]) -> Iterator[str]:
    methods = _METHODS[protocol]
    present = [name for name in methods if hasattr(plugin, name)]
    if not present:
        return
    members = [*methods, *(name for name in protocol.__annotations__ if name != "name")]
    yield from (f"it has {present[0]}, but no {name}" for name in members if not hasattr(plugin, name))
    for name in present:
        needed = _NEEDS.get(name, ())
        if needed and not any(hasattr(plugin, each) for each in needed):
            yield f"it has {name}, but no {' or '.join(needed)}"
        yield from _method_problems(name, getattr(plugin, name), methods[name])


@cache
def _parameters_of(expected: Any) -> tuple[str, ...]:
    """The names of a method's parameters without `self`."""
    return tuple(inspect.signature(expected).parameters)[1:]


def _is_public_method(name: str, member: object) -> bool:
    return inspect.isfunction(member) and not name.startswith("_")


_METHODS: dict[type[Any], dict[str, Any]] = {
    protocol: {name: member for name, member in vars(protocol).items() if _is_public_method(name, member)}
    for protocol in _PROTOCOLS
}


def _method_problems(name: str, method: Any, expected: Any) -> Iterator[str]:
    if not callable(method):
        yield f"{name} is not a method"
        return
    if inspect.iscoroutinefunction(method) != inspect.iscoroutinefunction(expected):
        yield f"{name} must {'be' if inspect.iscoroutinefunction(expected) else 'not be'} async"
    parameters = _parameters_of(expected)
    try:
        inspect.signature(method).bind(*parameters)
    except TypeError:
        yield f"{name} must take ({', '.join(parameters)})"
