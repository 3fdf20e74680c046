"""Answers to CEL vectors: compile, may it be stored, does the device match, and at what cost."""

from typing import Any

from dray.api.codec import to_object
from dray.api.resource import Device
from dray.cel import (
    COST_LIMIT,
    MAX_EXPRESSION_LENGTH,
    CelDevice,
    CelRuntimeError,
    CompileFailure,
    Environment,
    Program,
    compile_selector,
)

Row = dict[str, Any]


def answer(row: Row) -> Row:
    gates = row.get("gates") or {}
    environment = Environment.devices(
        stored=row.get("env") == "stored",
        list_attributes=gates.get("DRAListTypeAttributes", True),
        consumable_capacity=gates.get("DRAConsumableCapacity", True),
    )
    text = row["expression"]
    program = compile_selector(text, environment)
    if isinstance(program, CompileFailure):
        answered: Row = {"compile": "error", "result": "error"}
    else:
        answered = {"compile": "ok", **_evaluated(program, row["device"]), "estimate": program.estimate}
    return answered | {"admit": _admission(text, program)}


def _evaluated(program: Program, device: Row) -> Row:
    device = dict(device)
    outcome = program.evaluate_with_cost(CelDevice.of(device.pop("driver", ""), to_object(device, Device)))
    failed = isinstance(outcome.value, CelRuntimeError)
    answered: Row = {"result": "error" if failed else outcome.value}
    if outcome.cost is not None and not (failed and outcome.value.cost_exceeded):
        answered["cost"] = outcome.cost
    return answered


def _admission(text: str, program: Program | CompileFailure) -> str:
    if len(text.encode()) > MAX_EXPRESSION_LENGTH:
        return "FieldValueTooLong"
    if isinstance(program, CompileFailure):
        return "InternalError" if program.kind == "internal" else "FieldValueInvalid"
    return "FieldValueForbidden" if program.estimate > COST_LIMIT else "ok"
