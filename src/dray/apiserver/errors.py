"""Every failure the API answers with, as a Status document with the words Kubernetes users know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.api.meta import DEVICES_HELD
from dray.api.scheme import Resource

Document = dict[str, Any]

CONFLICT_TEXT = "the object has been modified; please apply your changes to the latest version and try again"


class ApiError(Exception):
    """An answer other than success. `headers` go out with it (Retry-After, WWW-Authenticate)."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Document | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers
        # ListMeta of the Status: a continue token that still works, when the one sent does not.
        self.list_metadata: Document = {}

    def status(self) -> Document:
        """The Status document; an empty `details` is kept, an absent one is not."""
        document: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            document["reason"] = self.reason
        if self.details is not None:
            document["details"] = self.details
        document["code"] = self.code
        return document


class FieldErrorLike(Protocol):
    """What `dray.validation` reports: prints as `path: Type: detail`."""

    @property
    def type(self) -> str: ...

    @property
    def field(self) -> str: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OptionError:
    """A field error found in the options of a request rather than in an object."""

    type: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


CAUSE_REASONS = {
    "Required": "FieldValueRequired",
    "Invalid": "FieldValueInvalid",
    "Duplicate": "FieldValueDuplicate",
    "NotFound": "FieldValueNotFound",
    "NotSupported": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "TooLong": "FieldValueTooLong",
    "TooMany": "FieldValueTooMany",
    "InternalError": "InternalError",
    "TypeInvalid": "FieldValueTypeInvalid",
}


def _details(name: str = "", group: str = "", kind: str = "", **more: Any) -> Document:
    found = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in found.items() if value}


def of_object(row: Resource, name: str, **more: Any) -> Document:
    return _details(name, row.group, row.plural, **more)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def other_namespace() -> ApiError:
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(row: Resource, name: str, why: str, causes: Sequence[Document] = ()) -> ApiError:
    subject = f'{row.qualified_plural} "{name}"' if name else row.qualified_plural
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", of_object(row, name, causes=list(causes)))


def not_found(row: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{row.qualified_plural} "{name}" not found', of_object(row, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(row: Resource, name: str, *, deleting: bool = False, generated: bool = False) -> ApiError:
    message = f'{row.qualified_plural} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    if generated:
        message += ", the server was not able to generate a unique name for the object"
        return ApiError(
            409, "AlreadyExists", message, of_object(row, name, retryAfterSeconds=1), (("Retry-After", "1"),)
        )
    return ApiError(409, "AlreadyExists", message, of_object(row, name))


def conflict(row: Resource, name: str, why: str = CONFLICT_TEXT, *, subresource: str = "") -> ApiError:
    plural = f"{row.plural}/{subresource}" if subresource else row.plural
    subject = f"{plural}.{row.group}" if row.group else plural
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {subject} "{name}": {why}',
        _details(name, row.group, plural),
    )


class DevicesHeld(ApiError):
    """409: another claim holds a device, capacity or counter of this one. The cause tells it from an outdated write.

    `holders` are namespaces and names of the claims that the message names.
    """

    def __init__(self, row: Resource, name: str, why: str, holders: Iterable[tuple[str, str]] = ()) -> None:
        refused = conflict(row, name, why)
        details = {**(refused.details or {}), "causes": [{"reason": DEVICES_HELD, "message": why}]}
        super().__init__(refused.code, refused.reason, refused.message, details)
        self._about = row, name, why
        self.holders = tuple(dict.fromkeys(holders))

    def without_names(self) -> DevicesHeld:
        """The same for who may not see these claims."""
        row, name, why = self._about
        named = ", ".join(f"{namespace}/{claim}" for namespace, claim in self.holders)
        return DevicesHeld(row, name, why.replace(f"claim {named}", "another claim"))


def kind_conflict(row: Resource, name: str, why: str) -> ApiError:
    """A delete precondition that did not hold: here Kubernetes names the kind, not the resource."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {row.qualified_kind} "{name}": {why}',
        _details(name, row.group, row.kind),
    )


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def invalid(group: str, kind: str, name: str, found: Iterable[FieldErrorLike]) -> ApiError:
    """422 from field errors, in the order found, each once."""
    errors = {str(error): error for error in found}
    causes = []
    for text, error in errors.items():
        message = text.removeprefix(f"{error.field}: ") if error.field else text
        causes.append({"reason": CAUSE_REASONS.get(error.type, error.type), "message": message, "field": error.field})
    texts = list(errors)
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind}.{group}" if group else kind
    return ApiError(
        422,
        "Invalid",
        f'{subject} "{name}" is invalid: {summary}' if texts else f'{subject} "{name}" is invalid',
        _details(name, group, kind, causes=causes),
    )


def invalid_object(row: Resource, name: str, found: Iterable[FieldErrorLike]) -> ApiError:
    """422 for an object of this kind; an event is the core kind, whichever group it was sent to."""
    return invalid("" if row.kind == "Event" else row.group, row.kind, name, found)


def unprocessable() -> ApiError:
    """A JSON patch that does not apply; Kubernetes does not say why."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def too_many_requests(message: str, retry_after_s: int = 1) -> ApiError:
    """Without a time, clients that are told to wait do not try again by themselves."""
    if not retry_after_s:
        return ApiError(429, "TooManyRequests", message, {})
    return ApiError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": retry_after_s},
        (("Retry-After", str(retry_after_s)),),
    )


def internal(message: str) -> ApiError:
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message, {"retryAfterSeconds": 1}, (("Retry-After", "1"),))


def revision_too_large(requested: int, current: int) -> ApiError:
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        (("Retry-After", "1"),),
    )
