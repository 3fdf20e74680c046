"""Rules for Event. core/v1 accepts nearly everything; events.k8s.io/v1 needs complete events and lets only the series change."""

from __future__ import annotations

from dray.api import names
from dray.api.names import byte_length
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE

MAX_FIELD = 128
MAX_MESSAGE = 1024
# Fields that only old clients write.
DEPRECATED = ("firstTimestamp", "lastTimestamp", "count", "source")
FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip


def check_event(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    strict = context.api_version == "events.k8s.io/v1"
    _check_place(new, errors)
    if new.get("eventTime"):
        _check_complete(new, errors)
    if not strict:
        return
    if old is None:
        _check_modern(new, errors)
    else:
        _check_fixed(new, old, errors)


def _check_place(event: Document, errors: Errors) -> None:
    namespace = (event.get("metadata") or {}).get("namespace") or ""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if involved != namespace and not (involved == "" and namespace == "default"):
        errors.invalid("involvedObject.namespace", involved, "does not match event.namespace")


def _check_complete(event: Document, errors: Errors) -> None:
    controller = event.get("reportingComponent") or ""
    if not controller:
        errors.required("reportingComponent")
    errors.each_invalid(
        "reportingComponent", controller, names.qualified_name_problems(controller) if controller else ()
    )
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            errors.required(field)
        _check_length(field, event.get(field) or "", MAX_FIELD, errors)
    _check_length("message", event.get("message") or "", MAX_MESSAGE, errors)


def _check_length(field: str, text: str, most: int, errors: Errors) -> None:
    if byte_length(text) > most:
        errors.invalid(field, "", f"can have at most {most} characters")


def _check_modern(event: Document, errors: Errors) -> None:
    if not event.get("eventTime"):
        errors.required("eventTime")
    if (kind := event.get("type") or "") not in ("Normal", "Warning"):
        errors.invalid("type", "", f"has invalid value: {kind}")
    for field in DEPRECATED:
        if event.get(field):
            errors.invalid(field, "", "needs to be unset")
    _check_series(event.get("series"), errors)


def _check_series(series: Document | None, errors: Errors) -> None:
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        errors.invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        errors.required("series.lastObservedTime")


def _check_fixed(new: Document, old: Document, errors: Errors) -> None:
    for field in FIXED:
        if not same(new.get(field), old.get(field)):
            errors.invalid(field, new.get(field), IMMUTABLE)
    if not same(new.get("series"), old.get("series")):
        _check_series(new.get("series"), errors)
