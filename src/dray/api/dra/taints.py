"""Taints and tolerations, of nodes and of devices. Pure.

Kubernetes has one rule for both. A toleration of a node taint may also compare numbers (`Gt`, `Lt`); validation
refuses these operators for devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from dray.api.matching import compares_numbers
from dray.api.resource import DeviceTaintSelector

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"

HARD_EFFECTS = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that keep new pods out; `PreferNoSchedule` only weighs, and a device taint may have no effect at all."""


class AnyTaint(Protocol):
    """A taint of a node or of a device."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class AnyToleration(Protocol):
    """A toleration of a pod or of a device request."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


Tainted = TypeVar("Tainted", bound=AnyTaint)


def tolerates(toleration: AnyToleration, taint: AnyTaint) -> bool:
    """An empty effect or key matches every taint; without an operator the values must be equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            return compares_numbers(toleration.operator, taint.value, (toleration.value,))
    return False


def is_tolerated(tolerations: Iterable[AnyToleration], taint: AnyTaint) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(taints: Iterable[Tainted], tolerations: Iterable[AnyToleration]) -> Iterator[Tainted]:
    tolerations = tuple(tolerations)
    return (taint for taint in taints if not is_tolerated(tolerations, taint))


def first_untolerated(
    taints: Iterable[Tainted], tolerations: Iterable[AnyToleration], effects: frozenset[str] = HARD_EFFECTS
) -> Tainted | None:
    """The first taint with one of `effects` that nothing tolerates."""
    return next(untolerated((taint for taint in taints if taint.effect in effects), tolerations), None)


def selects_device(selector: DeviceTaintSelector, driver: str, pool: str, device: str) -> bool:
    """Whether a DeviceTaintRule means this device: all fields that are given must match."""
    return selector.driver in (None, driver) and selector.pool in (None, pool) and selector.device in (None, device)
