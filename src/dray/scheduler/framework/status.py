"""The answers of plugins: a status code and the reasons for it."""

import enum
from dataclasses import dataclass

from dray.api.reasons import Reason

FILTER = "filter"
"""The code of a reason that its plugin gives as plain text."""

LACKS_DEVICES = "devices"
"""The code of a refusal that removing pods may lift, since it frees their devices, although it is UNRESOLVABLE."""


class StatusCode(enum.Enum):
    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """A plugin's answer other than a plain yes; `plugin` is filled in by the runner.

    UNRESOLVABLE means that removing other pods from the node would not help. An answer that `is_transient` holds for one attempt
    only, even if nothing changes: another attempt may come to another answer.
    """

    code: StatusCode
    reasons: tuple[Reason, ...] = ()
    plugin: str = ""
    is_transient: bool = False

    @property
    def is_rejected(self) -> bool:
        return self.code is StatusCode.UNSCHEDULABLE or self.code is StatusCode.UNRESOLVABLE

    @property
    def message(self) -> str:
        return ", ".join(reason.text for reason in self.reasons)

    @property
    def reason_code(self) -> str:
        """The code of the first reason, which decides how the refusal is explained."""
        return self.reasons[0].code if self.reasons else FILTER

    def has_reason(self, code: str) -> bool:
        return any(reason.code == code for reason in self.reasons)

    def by(self, plugin: str) -> "PluginStatus":
        return self if self.plugin else PluginStatus(self.code, self.reasons, plugin, self.is_transient)

    def as_one_reason(self, where: str) -> Reason:
        """All reasons as one whose text says first where the answer came from."""
        return Reason(self.reason_code, f"{where}: {self.message}")


SKIP = PluginStatus(StatusCode.SKIP)


def unschedulable(*reasons: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.UNSCHEDULABLE, tuple(map(_as_reason, reasons)))


def unresolvable(*reasons: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.UNRESOLVABLE, tuple(map(_as_reason, reasons)))


def error(reason: Reason | str) -> PluginStatus:
    return PluginStatus(StatusCode.ERROR, (_as_reason(reason),))


def _as_reason(reason: Reason | str) -> Reason:
    return reason if isinstance(reason, Reason) else Reason(FILTER, reason)


def status_word(status: PluginStatus | None) -> str:
    """The code as metrics write it; no status means success."""
    return (status.code if status is not None else StatusCode.SUCCESS).value
