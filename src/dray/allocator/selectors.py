"""Does a device match class and request? Asked when first needed, then remembered with the kind of device."""

from __future__ import annotations

from typing import Any

from dray import cel
from dray.allocator.devices import DeviceKind
from dray.allocator.types import Features


class SelectorFailure:
    """A selector that cannot be answered for a kind of device; fatal once the search gets there."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


Verdict = bool | SelectorFailure


class Selectors:
    """Compiled expressions of one set of features, with their answers remembered per kind of device."""

    def __init__(self, features: Features) -> None:
        self._environment = cel.Environment.devices(
            stored=True,
            list_attributes=features.list_type_attributes,
            consumable_capacity=features.consumable_capacity,
        )

    def verdict(self, expression: str, kind: DeviceKind) -> Verdict:
        known: Verdict | None = kind.answers.get(expression)
        if known is None:
            known = kind.remember(kind.answers, expression, self._evaluate(expression, kind))
            assert known is not None
        return known

    def _evaluate(self, expression: str, kind: DeviceKind) -> Verdict:
        program = cel.compile_selector(expression, self._environment)
        if isinstance(program, cel.CompileFailure):
            return SelectorFailure(f"CEL compile error: {program.message}")
        try:
            return program.evaluate(cel_device(kind))
        except cel.CelRuntimeError as problem:
            return SelectorFailure(f"CEL runtime error: {problem}")

    def derived(self, expression: str, kind: DeviceKind) -> object | SelectorFailure:
        """The value of a derived attribute's expression, as CEL gives it."""
        key = ("derived", expression)
        known = kind.answers.get(key)
        if known is None:
            known = kind.remember(kind.answers, key, (self._derive(expression, kind),))
        return known[0]

    def _derive(self, expression: str, kind: DeviceKind) -> object | SelectorFailure:
        program = cel.compile_expression(expression, self._environment)
        if isinstance(program, cel.CompileFailure):
            return SelectorFailure(f"compile derived attribute: {program.message}")
        try:
            return program.value(cel_device(kind))
        except cel.CelRuntimeError as problem:
            return SelectorFailure(str(problem))


def cel_device(kind: DeviceKind) -> Any:
    """The `device` variable, built once per kind."""
    if kind.cel_device is None:
        kind.cel_device = cel.CelDevice.of(kind.driver, kind.device)
    return kind.cel_device
