"""Rules for plain numbers."""

from __future__ import annotations

from collections.abc import Iterable

from dray.validation.errors import Document, Errors

NEGATIVE = "must be greater than or equal to 0"


def check_not_negative(fields: Document, path: str, names: Iterable[str], errors: Errors) -> None:
    for name in names:
        if (fields.get(name) or 0) < 0:
            errors.invalid(f"{path}.{name}" if path else name, fields[name], NEGATIVE)
