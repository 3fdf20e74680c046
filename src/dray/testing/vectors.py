"""Answers to conformance vectors, one row at a time: CEL selectors, pod requests, quantities, validation.

`ANSWERS` names the function for each kind of vector. Each row and each answer is a JSON object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dray.accounting import Enforcement, RequestOptions, pod_limits, pod_requests, qos_class
from dray.api.codec import ShapedDocument, shape_document, to_object
from dray.api.core import Pod
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.prepare_for_write import (
    prepared_create,
    prepared_status_update,
    prepared_update,
)
from dray.api.quantity import Quantity, QuantityError, rewritten, trimmed
from dray.api.resource import Device
from dray.api.strategies import Setting
from dray.api.versions import to_storage
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
from dray.features import FeatureGates
from dray.validation import FieldError, ValidationContext, validate_create, validate_status_update, validate_update

Row = dict[str, Any]
Document = dict[str, Any]

_INT64 = range(-(2**63), 2**63)
# Defaults that need a time get this one; no rule looks at it.
_NOW = "2026-01-01T00:00:00Z"

# --- CEL: does it compile, may it be stored, does the device match, and at what cost


def answer_cel(row: Row) -> Row:
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


# --- pod requests: a pod's requests, limits and QoS class by the rules of Kubernetes


def answer_podrequests(question: dict[str, Any]) -> dict[str, Any]:
    pod = to_object({"apiVersion": "v1", "kind": "Pod", **question["pod"]}, Pod)
    options = _request_options(question.get("options") or {})
    return {
        "name": question.get("name", ""),
        "requests": _texts(pod_requests(pod, options)),
        "limits": _texts(pod_limits(pod, options)),
        "qosClass": qos_class(pod, Enforcement.KUBERNETES),
    }


def _request_options(options: dict[str, Any]) -> RequestOptions:
    defaults = options.get("nonMissingContainerRequests") or {}
    return RequestOptions(
        use_claim_status=bool(options.get("useClaimStatus")),
        exclude_overhead=bool(options.get("excludeOverhead")),
        skip_pod_level_resources=bool(options.get("skipPodLevelResources")),
        skip_container_level_resources=bool(options.get("skipContainerLevelResources")),
        non_missing_container_requests={name: Quantity.parse(text) for name, text in defaults.items()},
        use_status_resources=bool(options.get("useStatusResources")),
        in_place_pod_level_resources=bool(options.get("inPlacePodLevelResources")),
    )


def _texts(quantities: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in quantities.items()}


# --- quantities: parse, print, compare and compute


def answer_quantity(row: Row) -> Row:
    return _QUANTITY_ANSWERS[row["op"]](row)


def _parse(row: Row) -> Row:
    text = row["input"]
    try:
        quantity = Quantity.ZERO if text is None else Quantity.parse(text)
    except QuantityError:
        return {"ok": False}
    answered: Row = {"ok": True, "canonical": str(quantity)}
    for field, number in (("value", quantity.value()), ("milli", quantity.milli())):
        if number in _INT64:
            answered[field] = number
    if isinstance(text, str) and (printed := rewritten(text)) != answered["canonical"]:
        answered["printed"] = printed
    return answered


def _parse_json(row: Row) -> Row:
    value = row["input"]
    return _parse({"input": trimmed(value) if isinstance(value, str) else value})


def _compare(row: Row) -> Row:
    a, b = Quantity.parse(row["a"]), Quantity.parse(row["b"])
    return {"cmp": (a > b) - (a < b)}


def _compute(operation: Callable[[Quantity, Quantity], Quantity]) -> Callable[[Row], Row]:
    return lambda row: {"canonical": str(operation(Quantity.parse(row["a"]), Quantity.parse(row["b"])))}


_QUANTITY_ANSWERS: dict[str, Callable[[Row], Row]] = {
    "parse": _parse,
    "json": _parse_json,
    "cmp": _compare,
    "add": _compute(lambda a, b: a + b),
    "sub": _compute(lambda a, b: a - b),
    "mul": _compute(lambda a, b: a * b),
    "mulInt": lambda row: {"canonical": str(Quantity.parse(row["a"]) * row["b"])},
}


# --- validation: the server's steps between decoding a request and writing to the store


def answer_validation(row: Row) -> Row:
    try:
        errors = _validate(row)
    except DecodeError:
        return {"errors": [{"type": "BadRequest", "field": ""}]}
    pairs = dict.fromkeys((error.type, error.field) for error in errors)
    return {"errors": [{"type": kind, "field": field} for kind, field in pairs]}


def _validate(row: Row) -> list[FieldError]:
    gates = FeatureGates(FeatureGates.default().on - {name for name, on in (row.get("gates") or {}).items() if not on})
    context = ValidationContext(gates, row.get("namespaceLabels", {}), row["object"].get("apiVersion", ""))
    setting = Setting(gates, _NOW)
    new = _stored_form(_shaped(row["object"]).strict())
    if row["op"] == "create":
        return validate_create(prepared_create(new, setting), context)
    old = _stored_form(_shaped(row["old"]).document)
    if row["op"] == "updateStatus":
        return validate_status_update(prepared_status_update(new, old, setting), old, context)
    return validate_update(prepared_update(new, old, setting), old, context)


def _shaped(document: Document) -> ShapedDocument:
    return shape_document(msgspec.json.decode(msgspec.json.encode(document)))


def _stored_form(document: Document) -> Document:
    return to_storage(apply_defaults(document, _NOW))


ANSWERS: dict[str, Callable[[Row], Row]] = {
    "cel": answer_cel,
    "podrequests": answer_podrequests,
    "quantity": answer_quantity,
    "validation": answer_validation,
}
