"""Rules for the status of a CertificateSigningRequest: what was decided about a request, and the certificate, stay."""

from __future__ import annotations

from collections import Counter

from dray.api.safe_get import mapping, mappings, text
from dray.validation.conditions import STATUSES
from dray.validation.errors import Document, Errors

APPROVED, DENIED = "Approved", "Denied"
# Conditions that say something for good.
FINAL = (APPROVED, DENIED, "Failed")
CONDITIONS, CERTIFICATE = "status.conditions", "status.certificate"


def check_decision(new: Document, old: Document | None, errors: Errors) -> None:
    """Of an update, whichever endpoint it came by; a new request has no status yet. What was wrong before may stay so."""
    if old is None or mapping(new, "status") == mapping(old, "status"):
        return
    before, after = _types(old), _types(new)
    _check_conditions(new, before, errors)
    if {APPROVED, DENIED} <= after.keys() and not {APPROVED, DENIED} <= before.keys():
        last = next(kind for kind in reversed([*after]) if kind in (APPROVED, DENIED))
        errors.invalid(CONDITIONS, last, "Approved and Denied conditions are mutually exclusive")
    for kind in FINAL:
        if after[kind] < before[kind]:
            errors.forbidden(CONDITIONS, f'updates may not remove a condition of type "{kind}"')
    signed = text(old, "status", "certificate")
    if signed and text(new, "status", "certificate") != signed:
        errors.forbidden(CERTIFICATE, "updates may not modify existing certificate content")


def _types(request: Document) -> Counter[str]:
    """How often there is a condition of each type, in the order of the list."""
    return Counter(text(condition, "type") for condition in mappings(request, "status", "conditions"))


def _check_conditions(request: Document, before: Counter[str], errors: Errors) -> None:
    had_twice = any(count > 1 for count in before.values())
    seen: set[str] = set()
    for i, condition in enumerate(mappings(request, "status", "conditions")):
        kind, status = text(condition, "type"), text(condition, "status")
        allowed = ("True",) if kind in FINAL else STATUSES
        if not kind and not before[""]:
            errors.required(f"{CONDITIONS}[{i}].type")
        if not status:
            errors.required(f"{CONDITIONS}[{i}].status")
        elif status not in allowed:
            errors.not_supported(f"{CONDITIONS}[{i}].status", status, allowed)
        if kind in seen and not had_twice:
            errors.duplicate(f"{CONDITIONS}[{i}].type", kind)
        seen.add(kind)
