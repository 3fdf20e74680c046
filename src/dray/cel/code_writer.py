"""Writes the text of generated code: lines, constants, cost that is due, variables in scope, loops and `cel.bind`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dray.cel.ast import NOT_CONSTANT, AstNode, Bind, Comprehension, FunctionCall, ListLiteral
from dray.cel.cost_ranges import LIST_COST


class CodeText(ABC):
    """Writes statements. `n` is the cost so far, `X` what is raised when it passes the limit."""

    def __init__(self, limit: int, traced: dict[int, AstNode] | None) -> None:
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
    def value(self, node: AstNode, charged: bool = True) -> str:
        """Writes what computes the node, and gives the Python expression for its value."""


# --- loops and cel.bind -------------------------------------------------------------------------------------------------

_COLLECTORS = frozenset({"map", "filter", "transformList"})
_INSERTERS = frozenset({"transformMap", "transformMapEntry"})


class LoopText(CodeText):
    """The loop of a macro changes its result in place: no other code can see the result before the loop ends."""

    def comprehension(self, node: Comprehension) -> str:
        range_ = self.value(node.range)
        items, result = self.fresh("r"), self.fresh()
        helper = "iterated" if node.variable2 is None else "paired"
        self.flush()
        self.emit(f"{items} = rt.{helper}({range_})")
        self.emit(f"{result} = {items}")
        self.block(f"if {items}.__class__ is not E:", lambda: self.loop(node, items, result))
        return result

    def loop(self, node: Comprehension, items: str, result: str) -> None:
        first, second = self.fresh("i"), self.fresh("i")
        accu = self.fresh("a")
        outer = len(self.scope)
        self.scope.append((node.accu, accu, False))
        collects, inserts = node.macro in _COLLECTORS, node.macro in _INSERTERS
        if collects:
            self.emit(f"{accu} = []; {accu}_e = None")
        elif inserts:
            self.emit(f"{accu} = {{}}")
        else:
            self.emit(f"{accu} = {self.value(node.init)}")
        names = first if node.variable2 is None else f"{first}, {second}"
        self.flush()
        self.emit(f"for {names} in {items}:")
        self.indent += 1
        self.scope.append((node.variable, first, False))
        if node.variable2 is not None:
            self.scope.append((node.variable2, second, False))
        if collects:
            self.collect(node, accu)
        elif inserts:
            self.insert(node, accu, first)
        else:
            self.iterate(node, accu)
        self.check_limit()
        self.indent -= 1
        del self.scope[outer + 1 :]
        if collects:
            self.emit(f"if {accu}_e is not None: {accu} = {accu}_e")
        self.emit(f"{result} = {self.value(node.result)}")
        del self.scope[outer:]

    def iterate(self, node: Comprehension, accu: str) -> None:
        if node.condition.constant is not True:
            condition = self.value(node.condition)
            self.flush()
            self.emit(f"if {condition} is False: break")
        self.emit(f"{accu} = {self.value(node.step)}")

    def collect(self, node: Comprehension, accu: str) -> None:
        """`accu + [value]`, perhaps under a condition; appended in place."""
        step = node.step
        assert isinstance(step, FunctionCall)

        def append(call: AstNode) -> None:
            assert isinstance(call, FunctionCall)
            assert isinstance(call.args[1], ListLiteral)
            self.charge(2 + (LIST_COST if call.args[1].constant is NOT_CONSTANT else 0))
            value = self.value(call.args[1].elements[0])
            self.flush()
            self.emit(f"if {value}.__class__ is E:")
            self.emit(f"  if {accu}_e is None: {accu}_e = {value}")
            self.emit(f"else: {accu}.append({value})")

        if step.function == "_+_":
            append(step)
            return
        condition = self.value(step.args[0])
        self.block(f"if {condition} is True:", lambda: append(step.args[1]))
        self.emit(f"elif {condition} is not False: {accu}_e = rt.not_bool({condition})")

    def insert(self, node: Comprehension, accu: str, key: str) -> None:
        step = node.step
        assert isinstance(step, FunctionCall)

        def put(call: AstNode) -> None:
            assert isinstance(call, FunctionCall)
            if len(call.args) == 3:

                def pair() -> None:
                    self.charge(1)
                    value = self.value(call.args[2])
                    self.charge(1)
                    self.emit(f"{accu} = rt.inserted({accu}, {key}, {value})")

                self.charge(1)
                self.block(f"if {accu}.__class__ is not E:", pair)
                return
            self.charge(2)
            entries = self.value(call.args[1])
            self.emit(f"{accu} = rt.inserted_all({accu}, {entries})")

        if step.function != "_?_:_":
            put(step)
            return
        condition = self.value(step.args[0])
        self.block(f"if {condition} is True:", lambda: put(step.args[1]))
        self.emit(f"elif {condition} is not False: {accu} = rt.not_bool({condition})")

    def bind(self, node: Bind) -> str:
        cell = self.fresh("b")
        parameters = ["n", *dict.fromkeys(python for _, python, _ in self.scope)]
        if self.traced is not None:
            parameters.append("tell")
        self.flush()
        self.function(f"init_{cell}", parameters, lambda: self.value(node.init))
        self.constants[f"args_{cell}"] = ", ".join(parameters)
        self.emit(f"{cell} = [UNSET]")
        self.scope.append((node.name, cell, True))
        result = self.value(node.result)
        self.scope.pop()
        return result
