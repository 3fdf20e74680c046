"""The errors of calls to the API server."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dray.api.meta import DEVICES_HELD, Status, StatusCause
from dray.kubeconfig_file import KubeconfigError as KubeconfigError

RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"


class ApiError(Exception):
    """The server refused. `code` is the HTTP status, `reason` the API's reason."""

    def __init__(
        self, code: int, reason: str, message: str, status: Status | None = None, retry_after: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.status = status or Status(status="Failure", code=code, reason=reason, message=message)
        # From the Retry-After header: flow control answers in plain text without a Status.
        self._retry_after = retry_after

    @classmethod
    def from_status(cls, status: Status) -> ApiError:
        return cls(status.code, status.reason, status.message, status)

    @classmethod
    def from_answer(cls, code: int, body: bytes, retry_after: str = "") -> ApiError:
        """Reads a Status body; plain text from a server or proxy still gives a readable error."""
        try:
            status = msgspec.json.decode(body, type=Status)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            status = Status()
        if status.kind == "Status" and status.message:
            return cls(status.code or code, status.reason, status.message, status, retry_after)
        text = body[:500].decode(errors="replace").strip()
        text = text or f"the server answered with status {code}"
        return cls(code, _REASONS.get(code, ""), text, retry_after=retry_after)

    @property
    def is_not_found(self) -> bool:
        return self.code == 404

    @property
    def is_already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """The object has changed since it was read, or a precondition did not hold."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_device_conflict(self) -> bool:
        """Another claim holds one of the devices: writing again cannot help, choosing again can."""
        return self.is_conflict and any(cause.reason == DEVICES_HELD for cause in self._causes())

    @property
    def is_expired(self) -> bool:
        """The requested revision is compacted, or newer than a store that was replaced: the caller must list again."""
        return self.code == 410 or any(cause.reason == RESOURCE_VERSION_TOO_LARGE for cause in self._causes())

    @property
    def is_transient(self) -> bool:
        """The server is in trouble or busy, or takes our credentials for ended: the same call may succeed later."""
        return self.code in (401, 429) or self.code >= 500

    @property
    def is_namespace_terminating(self) -> bool:
        return self.code == 403 and any(cause.reason == "NamespaceTerminating" for cause in self._causes())

    @property
    def retry_after_s(self) -> float | None:
        details = self.status.details
        if details and details.retry_after_seconds:
            return float(details.retry_after_seconds)
        return float(self._retry_after) if self._retry_after.isdigit() else None

    def _causes(self) -> tuple[StatusCause, ...]:
        return self.status.details.causes if self.status.details else ()


class ServerUnreachable(Exception):
    """No answer: connection refused, cut, or timed out. Whether a write took place is unknown."""


class CredentialsError(Exception):
    """A credential plugin or token file gave nothing usable."""


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or another holder has it."""


_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
