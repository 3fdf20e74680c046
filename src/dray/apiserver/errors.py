"""Answers that are refusals, as exceptions: raised anywhere below a handler, sent as a Status by the handler.

Texts, reasons and details are those of Kubernetes; clients match on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`."""

    reason: str
    message: str
    field: str = ""


class ApiError(Exception):
    """A request that is answered with a Status of the given code."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        group: str = "",
        kind: str = "",
        name: str = "",
        uid: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: int = 0,
        with_details: bool = True,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.group = group
        self.kind = kind
        self.name = name
        self.uid = uid
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.with_details = with_details

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "group": self.group,
            "kind": self.kind,
            "uid": self.uid,
            "causes": [_cause_document(cause) for cause in self.causes],
            "retryAfterSeconds": self.retry_after_s,
        }
        return {key: value for key, value in found.items() if value}

    def document(self) -> dict[str, Any]:
        """The Status object to send."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.with_details:
            status["details"] = self.details()
        return status


def _cause_document(cause: Cause) -> dict[str, Any]:
    document = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in document.items() if value}


def qualified(group: str, resource: str) -> str:
    """`resourceclaims.resource.k8s.io`; core resources have no suffix."""
    return f"{resource}.{group}" if group else resource


def _subject(group: str, resource: str, name: str) -> str:
    return f'{qualified(group, resource)} "{name}"' if name else qualified(group, resource)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message, with_details=False)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized", with_details=False)


def forbidden(group: str, resource: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    message = f"{_subject(group, resource, name)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, group=group, kind=resource, name=name, causes=causes)


def forbidden_path(why: str) -> ApiError:
    """A path that is no resource."""
    return ApiError(403, "Forbidden", f"forbidden: {why}")


def not_found(group: str, resource: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{qualified(group, resource)} "{name}" not found', group=group, kind=resource, name=name
    )


def conflict(group: str, resource: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, group=group, kind=resource, name=name)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422; each cause's message already reads like `Invalid value: 0: must be greater than zero`."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{qualified(group, kind)} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, group=group, kind=kind, name=name, causes=causes)


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=[Cause("", message)])
