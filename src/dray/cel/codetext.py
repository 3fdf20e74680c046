"""The text of generated code: lines, indentation, constants, cost that is due, variables in scope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dray.cel.ast import Node


class CodeText(ABC):
    """Writes statements. `n` is the cost so far, `X` what is raised when it passes the limit."""

    def __init__(self, limit: int, traced: dict[int, Node] | None) -> None:
        self.limit = limit
        self.traced = traced
        self.functions: list[list[str]] = []
        # Functions whose call is written and whose body is not; a deep tree is written part by part.
        self.unwritten: list[Callable[[], None]] = []
        self.depth = 0  # of the nodes whose text is being written
        self.lines: list[str] = []
        self.indent = 1
        self.pending = 0  # cost that is due but not yet written
        self.constants: dict[str, Any] = {}
        self.count = 0
        # CEL name, Python name, whether it is the cell of a `cel.bind`
        self.scope: list[tuple[str, str, bool]] = []

    def fresh(self, prefix: str = "x") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def flush(self) -> None:
        if self.pending:
            self.emit(f"n += {self.pending}")
            self.pending = 0

    def charge(self, cost: int) -> None:
        self.pending += cost

    def constant(self, value: Any) -> str:
        if type(value) is bool or value is None:
            return repr(value)
        name = self.fresh("k")
        self.constants[name] = value
        return name

    def block(self, head: str, body: Callable[[], None]) -> None:
        self.flush()
        self.emit(head)
        self.indent += 1
        before = len(self.lines)
        body()
        self.flush()
        if len(self.lines) == before:
            self.emit("pass")
        self.indent -= 1

    def check_limit(self) -> None:
        self.flush()
        self.emit(f"if n > {self.limit}: raise X(n)")

    def function(self, name: str, parameters: list[str], body: Callable[[], str]) -> None:
        outer = self.lines, self.indent, self.pending
        self.lines, self.indent, self.pending = [f"def {name}({', '.join(parameters)}):"], 1, 0
        result = body()
        self.check_limit()
        self.emit(f"return {result}, n")
        self.functions.append(self.lines)
        self.lines, self.indent, self.pending = outer

    def apart(self, body: Callable[[], str]) -> str:
        """Writes a part as a function of its own; gives the variable with its value."""
        name, result = self.fresh("f"), self.fresh()
        parameters = ["n", *dict.fromkeys(python for _, python, _ in self.scope)]
        if self.traced is not None:
            parameters.append("tell")
        self.flush()
        scope = list(self.scope)

        def write() -> None:
            self.scope, self.depth = scope, 0
            self.function(name, parameters, body)

        self.unwritten.append(write)
        self.emit(f"{result}, n = {name}({', '.join(parameters)})")
        return result

    def write_all(self) -> None:
        """Writes the bodies of all functions that are called."""
        while self.unwritten:
            self.unwritten.pop()()

    @abstractmethod
    def value(self, node: Node, charged: bool = True) -> str:
        """Writes what computes the node, and gives the Python expression for its value."""
