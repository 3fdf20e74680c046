"""What a plugin answers."""

import enum
from dataclasses import dataclass


class Code(enum.Enum):
    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """A plugin's answer other than a plain yes; `plugin` is filled in by the runner.

    UNRESOLVABLE means that removing other pods from the node would not help. An answer that `is_passing` holds for one attempt
    only, even if nothing changes: another one may come to another answer.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    is_passing: bool = False

    @property
    def is_rejected(self) -> bool:
        return self.code is Code.UNSCHEDULABLE or self.code is Code.UNRESOLVABLE

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> "PluginStatus":
        return self if self.plugin else PluginStatus(self.code, self.reasons, plugin, self.is_passing)


SKIP = PluginStatus(Code.SKIP)


def unschedulable(*reasons: str) -> PluginStatus:
    return PluginStatus(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> PluginStatus:
    return PluginStatus(Code.UNRESOLVABLE, reasons)


def error(reason: str) -> PluginStatus:
    return PluginStatus(Code.ERROR, (reason,))
