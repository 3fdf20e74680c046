"""Device selectors and derived attributes: the one place where validation asks `dray.cel`.

Length is checked before anything else; then whether the text compiles, whether it gives the right type, and what it may cost.
"""

from __future__ import annotations

from typing import Any

from dray import cel
from dray.api.names import byte_length
from dray.features import FeatureGates
from dray.validation.errors import Errors

COST_LIMIT = cel.COST_LIMIT
TOO_COMPLEX = "too complex, exceeds cost limit"


def environment_for(gates: FeatureGates) -> Any:
    """The environment of a new expression."""
    return cel.Environment.devices(
        list_attributes=gates.enabled("DRAListTypeAttributes"),
        consumable_capacity=gates.enabled("DRAConsumableCapacity"),
    )


def check_selector(text: str, path: str, gates: FeatureGates, errors: Errors) -> None:
    if byte_length(text) > cel.MAX_EXPRESSION_LENGTH:
        errors.too_long(path, cel.MAX_EXPRESSION_LENGTH)
        return
    _report(cel.compile_selector(text, environment_for(gates)), text, path, errors)


def check_derived(text: str, path: str, gates: FeatureGates, errors: Errors) -> int:
    """Checks the expression of a derived attribute and says what it may cost at worst; 0 if it cannot be used."""
    if byte_length(text) > cel.MAX_EXPRESSION_LENGTH:
        errors.too_long(path, cel.MAX_EXPRESSION_LENGTH)
        return 0
    result = "list" if gates.enabled("DRAListTypeAttributes") else "scalar"
    return _report(cel.compile_expression(text, environment_for(gates), result), text, path, errors)


def _report(answer: Any, text: str, path: str, errors: Errors) -> int:
    if isinstance(answer, cel.CompileFailure):
        if answer.kind == "internal":
            errors.internal(path, answer.message)
        else:
            errors.invalid(path, text, answer.message)
        return 0
    if answer.estimate > cel.COST_LIMIT:
        errors.forbidden(path, TOO_COMPLEX)
    return int(answer.estimate)
