"""From text to program: parse, check, fold, and evaluate, with the cache of programs by text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.api.caching import RememberedTexts
from dray.cel.ast import AstNode, FunctionCall
from dray.cel.checker import check
from dray.cel.constant_folding import (
    fold,
    nodes,
    refuse_indexes,
    validate,
)
from dray.cel.device import CelDevice
from dray.cel.environment import Environment
from dray.cel.errors import CelError, CelRuntimeError, CompileFailure, CostExceeded, Issue, Refused
from dray.cel.estimate import estimate
from dray.cel.parser import parse
from dray.cel.types import BOOL, INT, SEMVER, STRING, Type
from dray.cel.values import type_name

if TYPE_CHECKING:
    from dray.cel import code_generator

_CACHE_SIZE = 2048
# A program takes some fifty times the memory of its text.
_LONG_CHARACTERS = 1024 * 1024
# Longer texts are not even read; validation refuses them far earlier.
_LONGEST = 100 * 1024
UNEXPECTED = "unexpected failure in the evaluation"
# A cost that is counted is never above its estimate by more than this factor.
MOST_PER_ESTIMATED = 10
_SCALARS = (STRING, INT, BOOL, SEMVER)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result and the cost of an evaluation. No cost: the device could not be read."""

    value: Any  # or CelRuntimeError
    cost: int | None


class Program:
    """A compiled expression. Code is generated when it is first evaluated."""

    def __init__(self, text: str, environment: Environment, root: AstNode) -> None:
        self.text = text
        self.environment = environment
        self.root = root
        self.type: Type = root.type
        self.variables = list(environment.variables)
        # Whether a device matches; raises CelRuntimeError where there is no answer. The first call replaces it by generated
        # code, so that an evaluation is one Python call.
        self.evaluate: Callable[[CelDevice], bool] = self._first_evaluation

    @cached_property
    def estimate(self) -> int:
        """The worst-case cost, as admission judges it."""
        return estimate(self.root, self.environment)

    @cached_property
    def _code(self) -> code_generator.GeneratedCode:
        from dray.cel import code_generator

        return code_generator.generate(self.root, self.variables, self.environment.cost_limit)

    def generate(self) -> None:
        """Generates the code now, which the first evaluation would do otherwise."""
        self._code  # noqa: B018

    def _first_evaluation(self, device: CelDevice) -> bool:
        if self.variables == ["device"] and self._needs_no_count():
            from dray.cel import code_generator

            self.evaluate = code_generator.generate_matcher(self.root, "device", self._counted_evaluation)
        else:
            self.evaluate = self._counted_evaluation
        return self.evaluate(device)

    def _needs_no_count(self) -> bool:
        """Whether no evaluation comes near the limit. The estimate takes the joining of long lists for free."""
        joins_lists = any(
            type(node) is FunctionCall and any(overload.id == "add_list" for overload in node.overloads)
            for node in nodes(self.root)
        )
        return not joins_lists and self.estimate * MOST_PER_ESTIMATED <= self.environment.cost_limit

    def _counted_evaluation(self, device: CelDevice) -> bool:
        outcome = self.evaluate_with_cost(device)
        if isinstance(outcome.value, CelRuntimeError):
            raise outcome.value
        assert isinstance(outcome.value, bool)
        return outcome.value

    def evaluate_with_cost(self, device: CelDevice) -> Outcome:
        """The exact answer and its cost; the value is a bool or a CelRuntimeError."""
        outcome = self.value_with_cost(device)
        if isinstance(outcome.value, (bool, CelRuntimeError)):
            return outcome
        text = f"CEL result of type {type_name(outcome.value)} could not be converted to bool"
        return Outcome(CelRuntimeError(text), outcome.cost)

    def value_with_cost(self, device: CelDevice) -> Outcome:
        if device.problem is not None:
            return Outcome(CelRuntimeError(device.problem), None)
        return self._run(device)

    def value(self, device: CelDevice) -> Any:
        """Any CEL value as a Python value; raises CelRuntimeError."""
        return _raised(self.value_with_cost(device))

    def value_of(self, variables: Mapping[str, Any]) -> Any:
        """For environments with other variables than `device`; raises CelRuntimeError."""
        return _raised(self.outcome_of(variables))

    def outcome_of(self, variables: Mapping[str, Any]) -> Outcome:
        return self._run(*(variables[name] for name in self.variables))

    def _run(self, *values: Any) -> Outcome:
        try:
            value, cost = self._code(0, *values)
        except CostExceeded as exceeded:
            return Outcome(CelRuntimeError(str(exceeded), cost_exceeded=True), exceeded.cost)
        except (MemoryError, RecursionError) as exhausted:
            return Outcome(CelRuntimeError(f"evaluation needs too much room: {type(exhausted).__name__}"), None)
        except Exception as mistake:  # ours, but the caller is promised a CelRuntimeError
            return Outcome(CelRuntimeError(f"{UNEXPECTED}: {type(mistake).__name__}: {mistake}"), None)
        if type(value) is CelError:
            return Outcome(CelRuntimeError.of(value), cost)
        return Outcome(value, cost)


def _raised(outcome: Outcome) -> Any:
    if isinstance(outcome.value, CelRuntimeError):
        raise outcome.value
    return outcome.value


Result = Program | CompileFailure


def compile_selector(text: str, environment: Environment) -> Result:
    """The program of a device selector, or why there is none. The same text gives the same program again."""
    return compile_expression(text, environment, "bool")


def compile_expression(text: str, environment: Environment, result: str = "any") -> Result:
    """As compile_selector, for `result` "bool", "scalar" or "list" (derived attributes), or "any"."""
    if len(text) > _LONGEST:
        return CompileFailure(text[:80], "invalid", (Issue(-1, f"expression of more than {_LONGEST} characters"),))
    return _remembered(text, environment, result)


def _compile(text: str, environment: Environment, result: str) -> Result:
    try:
        root = parse(text, environment.quoted_fields)
        check(root, environment)
        every = nodes(root)
        validate(every, environment)
        _check_result(root.type, environment, result)
        fold(every)
        refuse_indexes(every, environment)
    except Refused as refused:
        return CompileFailure(text, "internal" if refused.internal else "invalid", tuple(refused.issues))
    except RecursionError:
        return CompileFailure(text, "invalid", (Issue(0, "expression is nested too deeply"),))
    return Program(text, environment, root)


_remembered = RememberedTexts(_compile, _CACHE_SIZE, _LONG_CHARACTERS)


def _check_result(t: Type, environment: Environment, result: str) -> None:
    if result == "any" or t == environment.dynamic_result:
        return
    if result == "bool":
        if t != BOOL:
            raise Refused([Issue(-1, f"must evaluate to bool or the unknown type, not {t}")])
        return
    scalar = "must evaluate to a primitive scalar (string, integer, boolean, semver)"
    if t in _SCALARS:
        return
    if result == "scalar":
        raise Refused([Issue(-1, f"{scalar}, not {t}")])
    if t.kind != "list" or (t.params[0] not in _SCALARS and t.params[0].kind != "dyn"):
        raise Refused([Issue(-1, f"{scalar} or a list of these scalars, not {t}")])
