"""Device selectors and derived attributes: the one place where validation asks `dray.cel`, which is loaded with the first expression at the latest.

Length is checked before anything else; then whether the text compiles, whether it gives the right type, and what it may cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.api.names import byte_length
from dray.features import FeatureGates
from dray.validation.errors import Errors

if TYPE_CHECKING:
    from dray.cel import CompileFailure, Environment, Program

TOO_COMPLEX = "too complex, exceeds cost limit"


def environment_for(gates: FeatureGates) -> Environment:
    """The environment of a new expression."""
    import dray.cel

    return dray.cel.Environment.devices(
        list_attributes=gates.enabled("DRAListTypeAttributes"),
        consumable_capacity=gates.enabled("DRAConsumableCapacity"),
    )


def check_selector(text: str, path: str, gates: FeatureGates, errors: Errors) -> None:
    import dray.cel

    if _has_right_length(text, path, errors):
        _report(dray.cel.compile_selector(text, environment_for(gates)), text, path, errors)


def check_derived(text: str, path: str, gates: FeatureGates, errors: Errors) -> int:
    """Checks the expression of a derived attribute and says what it may cost at worst; 0 if it cannot be used."""
    import dray.cel

    if not _has_right_length(text, path, errors):
        return 0
    result = "list" if gates.enabled("DRAListTypeAttributes") else "scalar"
    return _report(dray.cel.compile_expression(text, environment_for(gates), result), text, path, errors)


def is_too_costly(cost: int) -> bool:
    import dray.cel

    return cost > dray.cel.COST_LIMIT


def _has_right_length(text: str, path: str, errors: Errors) -> bool:
    import dray.cel

    if byte_length(text) <= dray.cel.MAX_EXPRESSION_LENGTH:
        return True
    errors.too_long(path, dray.cel.MAX_EXPRESSION_LENGTH)
    return False


def _report(answer: Program | CompileFailure, text: str, path: str, errors: Errors) -> int:
    import dray.cel

    if isinstance(answer, dray.cel.CompileFailure):
        if answer.kind == "internal":
            errors.internal(path, answer.message)
        else:
            errors.invalid(path, text, answer.message)
        return 0
    if is_too_costly(answer.estimate):
        errors.forbidden(path, TOO_COMPLEX)
    return int(answer.estimate)
