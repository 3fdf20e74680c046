"""The errors of CEL: a text that does not compile, an evaluation that fails, a budget that is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OPTIONAL_CHAINING_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
    "for optional fields"
)
COST_EXCEEDED = "operation cancelled: actual cost limit exceeded"


class CelError(Exception):
    """An error value inside an evaluation; `&&`, `||` and macros may absorb it. Never subclassed: code tests the class."""

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""


class CostExceeded(Exception):
    """The budget is spent. Not a CelError: nothing absorbs it."""

    def __init__(self, cost: int) -> None:
        super().__init__(COST_EXCEEDED)
        self.cost = cost


class CelRuntimeError(Exception):
    """An evaluation that gave no answer, with the text Kubernetes shows."""

    def __init__(self, message: str, cost_exceeded: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.cost_exceeded = cost_exceeded

    @classmethod
    def of(cls, error: CelError) -> CelRuntimeError:
        text = error.message
        if text.startswith("no such key") and not text.endswith(OPTIONAL_CHAINING_HINT):
            text += OPTIONAL_CHAINING_HINT
        return cls(text)


@dataclass(frozen=True, slots=True)
class Issue:
    """One complaint about a text, at an offset in it."""

    offset: int
    message: str
    hint: str = ""

    def shown(self, text: str) -> str:
        """The message with line, column, the line itself and a caret, as CEL compilers print it."""
        offset = min(self.offset, len(text))
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        source = text[start : end if end >= 0 else len(text)].replace("\t", " ")
        line, column = text.count("\n", 0, offset) + 1, offset - start
        hint = f" ({self.hint})" if self.hint else ""
        head = f"ERROR: <input>:{line}:{column + 1}: {self.message}{hint}"
        if len(source) > 400:
            return head
        return f"{head}\n | {source}\n | {'.' * column}^"


class Refused(Exception):
    """Raised inside the compiler; `compile_expression` turns it into a CompileFailure."""

    def __init__(self, issues: list[Issue], internal: bool = False) -> None:
        super().__init__(issues[0].message if issues else "")
        self.issues = issues
        self.internal = internal


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """Why a text is no program. `internal`: it is well formed, but a constant part of it cannot be computed."""

    text: str
    kind: Literal["invalid", "internal"]
    issues: tuple[Issue, ...]

    @property
    def message(self) -> str:
        if self.kind == "internal":
            return f"program instantiation failed: {self.issues[0].message}"
        if len(self.issues) == 1 and self.issues[0].offset < 0:
            return self.issues[0].message
        return "compilation failed: " + "\n".join(issue.shown(self.text) for issue in self.issues)
