"""Field errors, printed as Kubernetes prints them, and the context of a request that rules need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dray.features import FeatureGates

ErrorType = Literal[
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueForbidden",
    "FieldValueTooMany",
    "FieldValueTooLong",
    "FieldValueDuplicate",
    "FieldValueNotSupported",
    "FieldValueNotFound",
    "InternalError",
]

Document = dict[str, Any]

_TITLES: dict[str, str] = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooMany": "Too many",
    "FieldValueTooLong": "Too long",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueNotFound": "Not found",
    "InternalError": "Internal error",
}
_VALUELESS = frozenset(("FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"))

# A value longer than this is cut when it is printed: an error message is for people.
_PRINTED_VALUE = 1024

VALUE_OMITTED = "<value omitted>"


class _NoValue:
    """Stands for a value that is not printed at all, not even as left out."""


NO_VALUE = _NoValue()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with one field."""

    type: ErrorType
    field: str
    value: Any = None
    detail: str = ""
    declarative: bool = False

    @property
    def body(self) -> str:
        """The message without the path."""
        parts = [_TITLES[self.type]]
        if self.type not in _VALUELESS and self.value is not NO_VALUE:
            parts.append(_printed(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def _printed(value: Any) -> str:
    if value == VALUE_OMITTED:
        return VALUE_OMITTED
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return text if len(text) <= _PRINTED_VALUE else f"{text[:_PRINTED_VALUE]}..."


def invalid_message(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> str:
    """The message of the 422 answer: one error as it stands, several in brackets, each text once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    qualified = f"{kind}.{group}" if group else kind
    body = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{qualified} "{name}" is invalid: {body}'


def _no_labels() -> Mapping[str, str]:
    return {}


class ValidationContext(msgspec.Struct, frozen=True):
    """The facts that rules need besides the object."""

    gates: FeatureGates = msgspec.field(default_factory=FeatureGates.default)
    # Labels of the object's namespace; None if that namespace does not exist.
    namespace_labels: Mapping[str, str] | None = msgspec.field(default_factory=_no_labels)
    # The version the client spoke: paths of generated rules and some update rules depend on it.
    api_version: str = ""
    # The old object passed these rules when it was stored: what an update left alone is not checked again.
    trusts_stored: bool = False

    def enabled(self, gate: str) -> bool:
        return gate in self.gates.on


class Errors:
    """The errors found so far."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[FieldError] = []

    def __len__(self) -> int:
        return len(self.found)

    def drop_handwritten(self, since: int) -> None:
        """Forgets what handwritten rules found after the first `since` errors; generated rules keep theirs."""
        self.found[since:] = [error for error in self.found[since:] if error.declarative]

    def required(self, path: str, detail: str = "", *, declarative: bool = False) -> None:
        self.found.append(FieldError("FieldValueRequired", path, None, detail, declarative))

    def invalid(self, path: str, value: Any, detail: str, *, declarative: bool = False) -> None:
        self.found.append(FieldError("FieldValueInvalid", path, value, detail, declarative))

    def each_invalid(self, path: str, value: Any, details: Iterable[str], *, declarative: bool = False) -> None:
        for detail in details:
            self.invalid(path, value, detail, declarative=declarative)

    def forbidden(self, path: str, detail: str) -> None:
        self.found.append(FieldError("FieldValueForbidden", path, None, detail))

    def too_many(self, path: str, count: int, limit: int, *, declarative: bool = False) -> None:
        detail = f"must have at most {limit} item{'' if limit == 1 else 's'}"
        self.found.append(FieldError("FieldValueTooMany", path, count, detail, declarative))

    def too_long(self, path: str, limit: int, *, declarative: bool = False, unit: str = "bytes") -> None:
        detail = f"may not be more than {limit} {unit}"
        self.found.append(FieldError("FieldValueTooLong", path, None, detail, declarative))

    def duplicate(self, path: str, value: Any, detail: str = "", *, declarative: bool = False) -> None:
        self.found.append(FieldError("FieldValueDuplicate", path, value, detail, declarative))

    def not_supported(self, path: str, value: Any, supported: Iterable[str], *, declarative: bool = False) -> None:
        # Generated rules list the values by name, handwritten ones in the order of the API.
        listed = sorted(supported) if declarative else supported
        detail = "supported values: " + ", ".join(f'"{name}"' for name in listed)
        self.found.append(FieldError("FieldValueNotSupported", path, value, detail, declarative))

    def not_found(self, path: str, value: Any, detail: str = "") -> None:
        self.found.append(FieldError("FieldValueNotFound", path, value, detail))

    def internal(self, path: str, text: str) -> None:
        self.found.append(FieldError("InternalError", path, None, text))
