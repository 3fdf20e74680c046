"""Device selectors: CEL text -> typed program -> value, with Kubernetes' types, libraries, limits and cost.

What lives here: lexer and parser, type checker, every function with its cost, the cost estimate, generated Python code,
the `device` variable. What does not: who evaluates which selector and what an error means for a pod (`dray.allocator`),
and which field error a refused expression becomes (`dray.validation`).

The interface::

    environment = Environment.devices()                        # new expressions, every gate on
    environment = Environment.devices(stored=True)             # what is stored already; the scheduler's own
    environment = Environment.devices(list_attributes=False, consumable_capacity=False)
    environment = Environment.of({"object": DYN, "oldObject": DYN, ...})   # other variables, e.g. admission policies

    program = compile_selector(text, environment)              # Program | CompileFailure, remembered by (text, environment)
    program.evaluate(device) -> bool                           # CelDevice; raises CelRuntimeError (also over the cost limit)
    program.evaluate_with_cost(device) -> Outcome(value, cost) # Outcome.value is bool or CelRuntimeError
    program.estimate -> int                                    # worst-case cost; over COST_LIMIT it may not be stored
    explain.explain(program, device) -> MatchExplanation       # which sub-expression decided, with the values it saw
    corrections.corrections(program, device) -> list[Correction]   # edits after which it may select the device

    program = compile_expression(text, environment, result=...)  # another result type than bool (derived attributes)
    program.value(device) / program.value_of({"object": ...})  # any CEL value as a Python value

    device = CelDevice.of(driver, api_device)                  # built once per device; a bad attribute surfaces on evaluate

    failure.kind -> "invalid" | "internal"                     # InternalError: a constant part that cannot be computed
    failure.message                                            # with line, column, caret and near-name hints
    MAX_EXPRESSION_LENGTH (10 240 bytes, checked by validation), COST_LIMIT (1 000 000)

An API server compiles expressions and evaluates few, so `explain`, `corrections`, `code_generator` and RE2 are loaded when they are needed.
"""

from dray.cel.device import CelDevice
from dray.cel.environment import COST_LIMIT, MAX_EXPRESSION_LENGTH, Environment
from dray.cel.errors import CelRuntimeError, CompileFailure
from dray.cel.program import Outcome, Program, compile_expression, compile_selector

__all__ = [
    "COST_LIMIT",
    "MAX_EXPRESSION_LENGTH",
    "CelDevice",
    "CelRuntimeError",
    "CompileFailure",
    "Environment",
    "Outcome",
    "Program",
    "compile_expression",
    "compile_selector",
]
