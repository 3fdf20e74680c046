"""Answers to validation vectors: what the server does between reading a request and writing to the store."""

from typing import Any

import msgspec

from dray.api.codec import Reading, shape_document
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.preparation import prepared_create, prepared_status_update, prepared_update
from dray.api.strategies import Setting
from dray.api.versions import to_storage
from dray.features import FeatureGates
from dray.validation import Context, FieldError, validate_create, validate_status_update, validate_update

Row = dict[str, Any]
Document = dict[str, Any]

# Defaults that read a clock see this; no rule looks at it.
_NOW = "2026-01-01T00:00:00Z"


def answer(row: Row) -> Row:
    try:
        errors = _validate(row)
    except DecodeError:
        return {"errors": [{"type": "BadRequest", "field": ""}]}
    pairs = dict.fromkeys((error.type, error.field) for error in errors)
    return {"errors": [{"type": kind, "field": field} for kind, field in pairs]}


def _validate(row: Row) -> list[FieldError]:
    gates = FeatureGates(FeatureGates.default().on - {name for name, on in (row.get("gates") or {}).items() if not on})
    context = Context(gates, row.get("namespaceLabels", {}), row["object"].get("apiVersion", ""))
    setting = Setting(gates, _NOW)
    new = _stored_form(_shaped(row["object"]).strict())
    if row["op"] == "create":
        return validate_create(prepared_create(new, setting), context)
    old = _stored_form(_shaped(row["old"]).document)
    if row["op"] == "updateStatus":
        return validate_status_update(prepared_status_update(new, old, setting), old, context)
    return validate_update(prepared_update(new, old, setting), old, context)


def _shaped(document: Document) -> Reading:
    return shape_document(msgspec.json.decode(msgspec.json.encode(document)))


def _stored_form(document: Document) -> Document:
    return to_storage(apply_defaults(document, _NOW))
