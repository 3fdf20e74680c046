"""Writes the text of generated code: lines, constants, cost that is due, variables in scope, loops, `cel.bind` and operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dray.api.semver import Semver
from dray.cel.ast import NOT_CONSTANT, AstNode, Bind, Comprehension, FunctionCall, Ident, ListLiteral, Select
from dray.cel.cost_ranges import LIST_COST
from dray.cel.errors import CelError
from dray.cel.functions import caller
from dray.cel.quantities import CelQuantity
from dray.cel.selection_chains import DEVICE
from dray.cel.types import is_scalar


class CodeText(ABC):
    """Writes statements. `n` is the cost so far, `X` what is raised when it passes the limit. Without a limit nothing is counted."""

    def __init__(self, limit: int | None, traced: dict[int, AstNode] | None) -> None:
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

    def charge_computed(self, cost: str) -> None:
        """Adds a cost that the values decide."""
        if self.limit is not None:
            self.flush()
            self.emit(f"n += {cost}")

    def flush(self) -> None:
        if self.pending and self.limit is not None:
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
        if self.limit is not None:
            self.flush()
            self.emit(f"if n > {self.limit}: raise X(n)")

    def parameters(self) -> str:
        """The parameters of every function: the cost so far, what is in scope, and who is told."""
        names = [] if self.limit is None else ["n"]
        names += dict.fromkeys(python for _, python, _ in self.scope)
        return ", ".join(names if self.traced is None else [*names, "tell"])

    def counted(self, result: str) -> str:
        """A result as a function gives it, and as its caller takes it."""
        return result if self.limit is None else f"{result}, n"

    def function(self, name: str, parameters: str, body: Callable[[], str]) -> None:
        outer = self.lines, self.indent, self.pending
        self.lines, self.indent, self.pending = [f"def {name}({parameters}):"], 1, 0
        result = body()
        self.check_limit()
        self.emit(f"return {self.counted(result)}")
        self.functions.append(self.lines)
        self.lines, self.indent, self.pending = outer

    def apart(self, body: Callable[[], str]) -> str:
        """Writes a part as a function of its own; gives the variable with its value."""
        name, result = self.fresh("f"), self.fresh()
        parameters = self.parameters()
        self.flush()
        scope = list(self.scope)

        def write() -> None:
            self.scope, self.depth = scope, 0
            self.function(name, parameters, body)

        self.unwritten.append(write)
        self.emit(f"{self.counted(result)} = {name}({parameters})")
        return result

    def write_all(self) -> None:
        """Writes the bodies of all functions that are called."""
        while self.unwritten:
            self.unwritten.pop()()

    @abstractmethod
    def text(self, node: AstNode, charged: bool = True) -> str:
        """Writes what computes the node, and gives the Python expression for its value, which stands right behind that.

        `charged=False`: the node stands where reading its variable is free, as a branch of `?:` does.
        """

    def value(self, node: AstNode, charged: bool = True) -> str:
        """As `text`, but a variable or constant holds the value, so that it may be read twice."""
        return self.held(self.text(node, charged))

    def held(self, text: str) -> str:
        """A field of a variable is as quickly read as a variable."""
        return text if text.replace(".", "", 1).isidentifier() else self.assigned(text)

    def assigned(self, text: str) -> str:
        result = self.fresh()
        self.emit(f"{result} = {text}")
        return result


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
        self.emit(f"{result} = {self.text(node.result)}")
        del self.scope[outer:]

    def iterate(self, node: Comprehension, accu: str) -> None:
        if node.condition.constant is not True:
            condition = self.value(node.condition)
            self.flush()
            self.emit(f"if {condition} is False: break")
        self.emit(f"{accu} = {self.text(node.step)}")

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
        parameters = self.parameters()
        self.flush()
        self.function(f"init_{cell}", parameters, lambda: self.value(node.init))
        self.constants[f"args_{cell}"] = parameters
        self.emit(f"{cell} = [UNSET]")
        self.scope.append((node.name, cell, True))
        result = self.value(node.result)
        self.scope.pop()
        return result


# --- calls as Python's own operators ------------------------------------------------------------------------------------

COMPARISONS = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
# What a call with two values of one class means in Python.
_OPERATORS: dict[tuple[str, type | None], str] = {
    **{(name, of): f"{{0}} {sign} {{1}}" for name, sign in COMPARISONS.items() for of in (str, int)},
    ("isGreaterThan", CelQuantity): "{0}.nanos > {1}.nanos",
    ("isLessThan", CelQuantity): "{0}.nanos < {1}.nanos",
    ("isGreaterThan", Semver): "{1} < {0}",
    ("isLessThan", Semver): "{0} < {1}",
}
_FIELD_CLASSES: dict[str, type] = {"driver": str}


class OperatorText(LoopText):
    """What almost always happens, written out behind a test of the value's class; a function does the rest."""

    def called(self, node: FunctionCall, args: list[str]) -> str:
        function_name = self.constant(caller(node.overloads))
        return f"call{len(args)}({function_name}, {', '.join(args)})" if args else f"{function_name}()"

    def as_operator(self, node: FunctionCall, args: list[str]) -> str | None:
        """Python's own operator, used if both operands are of the one class that the text names; None if it names none."""
        classes = [self.plain_class(child) for child in node.children()]
        named = next(filter(None, reversed(classes)), None)
        form = _OPERATORS.get((node.function, named))
        if named is None or form is None:
            return None
        operation = form.format(*args)
        for arg, of in zip(args, classes, strict=True):
            if of is not named:
                return f"({operation} if {arg}.__class__ is {named.__name__} else {self.called(node, args)})"
        return f"({operation})"

    def plain_class(self, node: AstNode) -> type | None:
        """The Python class of a constant or of a field that every device has."""
        if node.constant is not NOT_CONSTANT:
            return type(node.constant)
        if type(node) is FunctionCall:
            parsed = parsed_constant(node)
            return None if parsed is None else type(parsed)
        if type(node) is Select and type(node.operand) is Ident and node.operand.type.name == DEVICE:
            return _FIELD_CLASSES.get(node.field) if self.is_plain_variable(node.operand) else None
        return None

    def never_fails(self, node: AstNode) -> bool:
        """Whether it is a comparison that gives true or false for every device."""
        if type(node) is not FunctionCall or node.function not in COMPARISONS:
            return False
        classes = {self.plain_class(child) for child in node.children()}
        return len(classes) == 1 and (node.function, classes.pop()) in _OPERATORS

    def amounts_compared(self, node: FunctionCall) -> str:
        """`a.compareTo(quantity("40Gi")) >= 0` compares the amounts at once."""
        compare_to = node.args[0]
        assert type(compare_to) is FunctionCall
        args = [self.value(child) for child in compare_to.children()]
        self.charge_call(compare_to, args)
        self.charge(1)
        direct = f"{args[0]}.nanos {COMPARISONS[node.function]} {args[1]}.nanos"
        called = f"call2({self.constant(caller(node.overloads))}, {self.called(compare_to, args)}, 0)"
        return f"({direct} if {args[0]}.__class__ is CelQuantity else {called})"

    def charge_call(self, node: FunctionCall, args: list[str]) -> None:
        """Charges the cost that depends on the arguments, and checks the limit, before the call."""
        is_comparison = node.function in COMPARISONS
        if is_comparison and all(is_scalar(arg.type) for arg in node.args):
            self.charge(1)
            return
        rule = None
        if len(node.overloads) == 1:
            rule = node.overloads[0].cost
        else:
            rule = next((o.name_cost for o in node.overloads if o.name_cost is not None), None)
        if rule is None or getattr(rule, "__name__", "") == "one":
            self.charge(1)
            return
        self.charge_computed(f"{self.constant(rule)}({', '.join(args)})")
        if not is_comparison:
            self.check_limit()

    def is_plain_variable(self, node: Ident) -> bool:
        """Whether a name is a variable of the program, which holds no error."""
        named = next((python for name, python, _ in reversed(self.scope) if name == node.name.removeprefix(".")), "")
        return named.startswith("v_")


def parsed_constant(node: FunctionCall) -> Any:
    """The value of `quantity("1Gi")` or `semver("1.2.3")`; None for other calls and for texts that do not parse."""
    if node.function not in ("quantity", "semver") or any(arg.constant is NOT_CONSTANT for arg in node.args):
        return None
    try:
        return caller(node.overloads)(*(arg.constant for arg in node.args))
    except CelError:
        return None


def compares_amounts(node: FunctionCall) -> bool:
    """`a.compareTo(quantity("40Gi")) >= 0` and the like."""
    if node.function not in COMPARISONS or type(node.args[0]) is not FunctionCall or node.args[1].constant != 0:
        return False
    compare_to = node.args[0]
    return (
        type(node.args[1].constant) is int
        and compare_to.function == "compareTo"
        and type(compare_to.args[0]) is FunctionCall
        and type(parsed_constant(compare_to.args[0])) is CelQuantity
    )
