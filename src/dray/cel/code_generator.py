"""Typed tree to Python code that is exact: errors are values, `&&` and `||` absorb them, every step is counted.

Each node becomes a few statements that leave its value in a local variable. `n` is the cost so far. Deep parts become
functions of their own, since Python limits how deep blocks may nest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.cel import runtime
from dray.cel.ast import (
    NOT_CONSTANT,
    AstNode,
    Bind,
    Comprehension,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
    StructLiteral,
)
from dray.cel.code_writer import LoopText
from dray.cel.cost_ranges import (
    LIST_COST,
    MAP_COST,
    STRUCT_COST,
)
from dray.cel.errors import CelError, CostExceeded
from dray.cel.functions import caller
from dray.cel.library.operators import has_key
from dray.cel.selection_chains import (
    Chain,
    Step,
    chain_of,
    is_conditional,
)
from dray.cel.types import is_scalar
from dray.cel.values import MISSING, NONE, Optional, to_key

GeneratedCode = Callable[..., tuple[Any, int]]

_MAX_INDENT = 10
# Nodes within nodes that are written as one function; writing each takes a few calls of ours.
_MAX_DEPTH = 30
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_UNSET = object()
_BASE: dict[str, Any] = {
    "E": CelError,
    "X": CostExceeded,
    "MISSING": MISSING,
    "NONE": NONE,
    "Optional": Optional,
    "UNSET": _UNSET,
    "rt": runtime,
    **{name: getattr(runtime, name) for name in ("select", "indexed", "call1", "call2", "both", "either")},
}


def generate(
    root: AstNode, variables: list[str], limit: int, traced: dict[int, AstNode] | None = None
) -> GeneratedCode:
    """A function of the variables, giving (value or CelError, cost); raises CostExceeded.

    With `traced` it takes a last argument that is told the value of every node; `traced` receives the nodes by number.
    """
    writer = _Writer(limit, traced)
    names = [f"v_{i}" for i in range(len(variables))]
    writer.scope = [(name, python, False) for name, python in zip(variables, names, strict=False)]
    parameters = ["n", *names] + (["tell"] if traced is not None else [])
    writer.function("main", parameters, lambda: writer.value(root))
    writer.write_all()
    source = "\n".join(line for body in writer.functions for line in body)
    namespace = {**_BASE, **writer.constants}
    exec(compile(source, "<cel>", "exec"), namespace)
    main: Callable[..., tuple[Any, int]] = namespace["main"]
    return main


class _Writer(LoopText):
    def value(self, node: AstNode, charged: bool = True) -> str:
        """Statements that compute the node; gives the variable or constant that holds its value.

        `charged=False`: the node stands where reading its variable is free, as a branch of `?:` does.
        """
        if node.constant is not NOT_CONSTANT:
            return self.constant(node.constant)
        if (self.indent > _MAX_INDENT or self.depth > _MAX_DEPTH) and type(node) is not Ident:
            return self.apart(lambda: self.told(node, charged))
        return self.told(node, charged)

    def told(self, node: AstNode, charged: bool) -> str:
        self.depth += 1
        result = self.plain(node, charged)
        self.depth -= 1
        if self.traced is not None:
            number = len(self.traced)
            self.traced[number] = node
            self.emit(f"tell({number}, {result})")
        return result

    def plain(self, node: AstNode, charged: bool) -> str:
        kind = type(node)
        if kind is Ident or kind is Select:
            return self.chain(chain_of(node), charged)
        if kind is FunctionCall:
            return self.call(node, charged)  # type: ignore[arg-type]
        if kind is Comprehension:
            return self.comprehension(node)  # type: ignore[arg-type]
        if kind is Bind:
            return self.bind(node)  # type: ignore[arg-type]
        if kind is ListLiteral:
            return self.list_literal(node)  # type: ignore[arg-type]
        if kind is MapLiteral:
            return self.map_literal(node)  # type: ignore[arg-type]
        assert kind is StructLiteral or kind is Literal
        return self.struct(node)  # type: ignore[arg-type]

    def variable(self, node: Ident) -> tuple[str, bool]:
        """The Python variable of a name, and whether it may hold an error."""
        name = node.name
        for scoped, python, is_cell in reversed(self.scope):
            if scoped == name.removeprefix("."):
                return (self.cell(python), True) if is_cell else (python, scoped.startswith("@"))
        raise AssertionError(f"variable {name}")

    def cell(self, python: str) -> str:
        """Reads a bound name; the first reader computes it."""
        result = self.fresh()
        self.flush()
        self.emit(f"{result} = {python}[0]")
        parameters = self.constants[f"args_{python}"]

        def compute() -> None:
            self.emit(f"{result}, n = init_{python}({parameters})")
            self.emit(f"{python}[0] = {result}")

        self.block(f"if {result} is UNSET:", compute)
        return result

    # --- names, selections, indexes

    def chain(self, chain: Chain, charged: bool) -> str:
        """A base and what is selected from it. A step that fails ends the chain, and later steps cost nothing."""
        base = chain.base
        fallible = True
        if base.constant is not NOT_CONSTANT:
            start, fallible = self.constant(base.constant), False
        elif type(base) is Ident:
            start, fallible = self.variable(base)
        else:
            start = self.value(base)
        test_only = bool(chain.steps) and chain.steps[-1].test_only
        if (charged or test_only) and not is_conditional(chain.base):
            self.charge(1)
        if not chain.steps:
            return start
        result = self.fresh()
        is_open = chain.base_is_optional
        self.emit(f"{result} = rt.opened({start})" if is_open else f"{result} = {start}")
        for step in chain.steps:
            is_open = is_open or step.optional
            fallible = self.step(result, step, fallible, is_open)
        if test_only:
            self.charge(-1)
        elif is_open:
            self.emit(f"{result} = rt.wrapped({result})")
        return result

    def step(self, result: str, step: Step, fallible: bool, is_open: bool) -> bool:
        """One selection; gives whether the value may now be an error."""
        if is_open:
            self.open_step(result, step)
            return True
        if step.test_only:
            self.charge(1)
            test = f"rt.is_there({result}, {self.constant(step.field)})"
            self.emit(
                f"{result} = {result} if {result}.__class__ is E else {test}" if fallible else f"{result} = {test}"
            )
            return True
        if step.index is not None and step.index.constant is NOT_CONSTANT:
            self.block(f"if {result}.__class__ is not E:", lambda: self.computed_index(result, step))
            return True
        key = self.constant(step.field if step.index is None else step.index.constant)
        if step.never_fails and not fallible:
            self.charge(1)
            self.emit(
                f"{result} = {result}[{key}]"
                if step.struct_field is None
                else f"{result} = {result}.{step.struct_field}"
            )
            return False
        action = f"select({result}, {key})" if step.index is None else f"indexed({result}, {key})"
        if fallible:
            self.flush()
            self.emit(f"if {result}.__class__ is not E: n += 1; {result} = {action}")
        else:
            self.charge(1)
            self.emit(f"{result} = {action}")
        return True

    def computed_index(self, result: str, step: Step) -> None:
        assert step.index is not None
        key = self.value(step.index, charged=False)
        self.charge(0 if is_conditional(step.index) else 1)
        self.emit(f"{result} = indexed({result}, {key})")

    def open_step(self, result: str, step: Step) -> None:
        def find() -> None:
            if step.index is not None:
                key = self.value(step.index, charged=False)
            else:
                key = self.constant(step.field)
            self.emit(f"{result} = rt.if_there({result}, {key})")
            self.flush()
            self.emit(f"if {result} is not MISSING: n += 1")

        self.block(f"if {result}.__class__ is not E and {result} is not MISSING:", find)
        if step.test_only:
            self.emit(f"{result} = {result} if {result}.__class__ is E else {result} is not MISSING")

    # --- calls

    def call(self, node: FunctionCall, charged: bool) -> str:
        function = node.function
        if function == "_&&_" or function == "_||_":
            return self.logical(node, "both" if function == "_&&_" else "either", function == "_||_")
        if function == "_?_:_":
            return self.conditional(node)
        if function in ("_[_]", "_[?_]", "_?._"):
            return self.chain(chain_of(node), charged)
        if function == "@not_strictly_false":
            operand = self.value(node.args[0])
            self.charge(1)
            return self.assigned(f"{operand} is not False")
        if function in ("or", "orValue"):
            return self.optional_or(node)
        if function == "@in" and type(node.args[1].constant) is tuple and _is_set(node.args[1].constant):
            return self.membership(node)
        if len(node.children()) > 2:
            return self.many_arguments(node)
        args = [self.value(child) for child in node.children()]
        self.charge_call(node, args)
        function_name = self.constant(caller(node.overloads))
        if not args:
            return self.assigned(f"{function_name}()")
        return self.assigned(f"call{len(args)}({function_name}, {', '.join(args)})")

    def assigned(self, expression: str) -> str:
        result = self.fresh()
        self.emit(f"{result} = {expression}")
        return result

    def charge_call(self, node: FunctionCall, args: list[str]) -> None:
        """Charges the cost that depends on the arguments, and checks the limit, before the call."""
        is_comparison = node.function in _COMPARISONS
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
        self.flush()
        self.emit(f"n += {self.constant(rule)}({', '.join(args)})")
        if not is_comparison:
            self.check_limit()

    def many_arguments(self, node: FunctionCall) -> str:
        """Three and more: the first error ends it, and the call is only charged if the last argument was reached."""
        result = self.fresh()
        children = node.children()
        function_name = self.constant(caller(node.overloads))

        def rest(at: int, args: list[str]) -> None:
            value = self.value(children[at])
            args = [*args, value]
            if at == len(children) - 1:
                self.charge_call(node, args)
                self.emit(f"{result} = rt.call_many({function_name}, {', '.join(args)})")
                return
            if children[at].constant is not NOT_CONSTANT:
                rest(at + 1, args)
                return
            self.flush()
            self.emit(f"{result} = {value}")
            self.block(f"if {value}.__class__ is not E:", lambda: rest(at + 1, args))

        rest(0, [])
        self.flush()
        return result

    def logical(self, node: FunctionCall, absorber: str, decisive: bool) -> str:
        left = self.value(node.args[0])
        result = self.fresh()
        self.flush()
        self.emit(f"{result} = {decisive}")

        def right() -> None:
            second = self.value(node.args[1])
            self.emit(f"{result} = {absorber}({left}, {second})")

        self.block(f"if {left} is not {decisive}:", right)
        return result

    def conditional(self, node: FunctionCall) -> str:
        condition = self.value(node.args[0])
        result = self.fresh()

        def branch(chosen: AstNode) -> Callable[[], None]:
            return lambda: self.emit(f"{result} = {self.value(chosen, charged=False)}")

        self.block(f"if {condition} is True:", branch(node.args[1]))
        self.block(f"elif {condition} is False:", branch(node.args[2]))
        self.block("else:", lambda: self.emit(f"{result} = rt.not_bool({condition})"))
        return result

    def optional_or(self, node: FunctionCall) -> str:
        assert node.target is not None
        left = self.value(node.target)
        result = self.fresh()

        def second() -> None:
            self.emit(f"{result} = {self.value(node.args[0])}")

        self.block(f"if {left} is NONE:", second)
        held = left if node.function == "or" else f"{left}.value"
        self.emit(f"elif {left}.__class__ is Optional: {result} = {held}")
        self.emit(f"else: {result} = rt.not_bool({left})")
        return result

    def membership(self, node: FunctionCall) -> str:
        """`in` with a list of constants: a lookup that costs nothing."""
        members = self.constant(_member_set(node.args[1].constant))
        element = self.value(node.args[0])
        self.constants.setdefault("has_key", has_key)
        return self.assigned(f"{element} if {element}.__class__ is E else has_key({members}, {element})")

    # --- literals

    def list_literal(self, node: ListLiteral) -> str:
        return self.aggregate(list(node.elements), LIST_COST, lambda v: self.list_made(node, v))

    def list_made(self, node: ListLiteral, values: list[str]) -> str:
        items = f"[{', '.join(values)}]"
        return items if not node.optional else f"rt.list_literal({items}, {self.constant(node.optional)})"

    def map_literal(self, node: MapLiteral) -> str:
        def made(values: list[str]) -> str:
            keys, held = ", ".join(values[::2]), ", ".join(values[1::2])
            return f"rt.map_literal([{keys}], [{held}], {self.constant(node.optional)})"

        return self.aggregate([n for entry in node.entries for n in entry], MAP_COST, made)

    def struct(self, node: StructLiteral) -> str:
        if node.is_constructible:
            names = self.constant(tuple(name for name, _ in node.fields))
            of_type = self.constant(node.name.removeprefix("."))
            return self.aggregate(
                [value for _, value in node.fields],
                STRUCT_COST,
                lambda values: (
                    f"rt.struct_literal({of_type}, {names}, [{', '.join(values)}], {self.constant(node.optional)})"
                ),
            )
        problem = self.constant(CelError(f"unknown type: {node.name}"))
        return self.aggregate([value for _, value in node.fields], STRUCT_COST, lambda _: problem)

    def aggregate(self, parts: list[AstNode], cost: int, made: Callable[[list[str]], str]) -> str:
        """Parts in order until one fails; the construction is charged in any case."""
        result = self.fresh()
        self.charge(cost)
        depth = self.indent
        values: list[str] = []
        for part in parts:
            if self.indent > _MAX_INDENT:
                values.append(self.apart(lambda part=part: self.told(part, True)))  # type: ignore[misc]
            else:
                values.append(self.value(part))
            if part.constant is NOT_CONSTANT:
                self.flush()
                self.emit(f"{result} = {values[-1]}")
                if self.indent <= _MAX_INDENT:
                    self.emit(f"if {result}.__class__ is not E:")
                    self.indent += 1
        self.flush()
        failed = (
            " or ".join(f"{v}.__class__ is E" for v in values if not v.startswith("k"))
            if self.indent > _MAX_INDENT
            else ""
        )
        self.emit(f"{result} = {made(values)}" if not failed else f"if not ({failed}): {result} = {made(values)}")
        self.indent = depth
        return result


def _is_set(members: tuple[Any, ...]) -> bool:
    return all(type(m) in (str, int, float, bool) or isinstance(m, int) for m in members)


def _member_set(members: tuple[Any, ...]) -> dict[Any, bool]:
    return {to_key(m): True for m in members}
