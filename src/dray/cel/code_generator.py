"""Typed tree to Python code: errors are values, `&&` and `||` absorb them, every step is counted where the count matters.

Each node becomes a few statements and an expression for its value. What almost always happens is written out, as Python's own
operators behind a test of the value's class; functions of `runtime` do the rest. `n` is the cost so far. Deep parts become functions of
their own, since Python limits how deep blocks may nest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.api.semver import Semver
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
from dray.cel.code_writer import COMPARISONS, OperatorText, compares_amounts, parsed_constant
from dray.cel.cost_ranges import (
    LIST_COST,
    MAP_COST,
    STRUCT_COST,
)
from dray.cel.errors import CelError, CostExceeded
from dray.cel.functions import caller
from dray.cel.library.operators import has_key
from dray.cel.quantities import CelQuantity
from dray.cel.selection_chains import (
    Chain,
    Step,
    chain_of,
    is_conditional,
)
from dray.cel.values import MISSING, NONE, Optional, to_key

GeneratedCode = Callable[..., tuple[Any, int]]

_MAX_INDENT = 10
# Nodes within nodes that are written as one function; writing each takes a few calls of ours.
_MAX_DEPTH = 30
_GIVE_BOOL = frozenset({*COMPARISONS, "_&&_", "_||_", "!_", "@in"})
_UNSET = object()
_BASE: dict[str, Any] = {
    "E": CelError,
    "X": CostExceeded,
    "MISSING": MISSING,
    "NONE": NONE,
    "Optional": Optional,
    "UNSET": _UNSET,
    "CelQuantity": CelQuantity,
    "Semver": Semver,
    "rt": runtime,
    **{name: getattr(runtime, name) for name in ("select", "indexed", "call1", "call2", "both", "either")},
}


def generate(
    root: AstNode, variables: list[str], limit: int, traced: dict[int, AstNode] | None = None
) -> GeneratedCode:
    """A function of the variables, giving (value or CelError, cost); raises CostExceeded.

    With `traced` it takes a last argument that is told the value of every node; `traced` receives the nodes by number.
    """
    writer = _Writer(limit, traced, variables)
    writer.function("main", writer.parameters(), lambda: writer.value(root))
    return writer.compiled({})


def generate_matcher(root: AstNode, variable: str, otherwise: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A function of a device that says whether it matches, for an expression that cannot cost too much.

    It counts nothing, and where a part has no answer it asks `otherwise`.
    """
    writer = _Writer(None, None, [variable])
    writer.function("main", writer.parameters(), lambda: writer.match(root))
    return writer.compiled({"otherwise": otherwise})


class _Writer(OperatorText):
    def __init__(self, limit: int | None, traced: dict[int, AstNode] | None, variables: list[str]) -> None:
        super().__init__(limit, traced)
        self.scope = [(name, f"v_{at}", False) for at, name in enumerate(variables)]

    def compiled(self, known: dict[str, Any]) -> Callable[..., Any]:
        """The function `main`, with all that it calls."""
        self.write_all()
        namespace = {**_BASE, **self.constants, **known}
        exec(compile("\n".join(line for body in self.functions for line in body), "<cel>", "exec"), namespace)
        main: Callable[..., Any] = namespace["main"]
        return main

    def match(self, root: AstNode) -> str:
        """The parts that `&&` joins, one after another: the first that is false decides. `otherwise` absorbs errors."""
        self.emit("if v_0.problem is None:")
        self.emit("  try:")
        self.indent += 2
        for part in _conjuncts(root):
            if self.never_fails(part):
                self.emit(f"if not {self.text(part)}: return False")
                continue
            value = self.value(part)
            self.emit(f"if {value} is not True:")
            self.emit(f"  if {value} is False: return False")
            self.emit("  raise E")
        self.emit("return True")
        self.indent -= 2
        self.emit("  except Exception: pass")
        return "otherwise(v_0)"

    def text(self, node: AstNode, charged: bool = True) -> str:
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
            result = self.held(result)
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
            self.emit(f"{self.counted(result)} = init_{python}({parameters})")
            self.emit(f"{python}[0] = {result}")

        self.block(f"if {result} is UNSET:", compute)
        return result

    # --- names, selections, indexes

    def chain(self, chain: Chain, charged: bool, wrapped: bool = True) -> str:
        """A base and what is selected from it. A step that fails ends the chain, and later steps cost nothing.

        `wrapped=False`: the value of an optional chain itself, or MISSING.
        """
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
        steps = list(chain.steps)
        is_open = chain.base_is_optional
        while steps and steps[0].never_fails and not fallible:
            start += self.sure_step(steps.pop(0))
        if steps and steps[0].in_device_map and not fallible:
            is_open, fallible = steps[0].optional, True
            start = self.published(start, steps.pop(0))
        if steps:
            start = self.assigned(f"rt.opened({start})" if is_open else start)
        for step in steps:
            is_open = is_open or step.optional
            self.step(start, step, fallible, is_open)
            fallible = True
        if test_only:
            self.charge(-1)
        elif is_open and wrapped and chain.steps:
            return f"rt.wrapped({start})"
        return start

    def sure_step(self, step: Step) -> str:
        self.charge(1)
        return f"[{self.constant(step.key)}]" if step.struct_field is None else f".{step.struct_field}"

    def published(self, domain: str, step: Step) -> str:
        """An attribute or a capacity of a domain, or whether it is there."""
        key = self.constant(step.key)
        if step.optional:
            result = self.assigned(f"{domain}.get({key}, MISSING)")
            self.charge_computed(f"{result} is not MISSING")
            return result
        self.charge(1)
        if step.test_only:
            return f"({key} in {domain})"
        result = self.fresh()
        self.emit(f"try: {result} = {domain}[{key}]")
        self.emit(f"except KeyError: {result} = {self.constant(CelError(f'no such key: {step.key}'))}")
        return result

    def step(self, result: str, step: Step, fallible: bool, is_open: bool) -> None:
        """One selection."""
        if is_open:
            self.open_step(result, step)
            return
        if step.test_only:
            self.charge(1)
            test = f"rt.is_there({result}, {self.constant(step.field)})"
            self.emit(
                f"{result} = {result} if {result}.__class__ is E else {test}" if fallible else f"{result} = {test}"
            )
            return
        if step.index is not None and step.index.constant is NOT_CONSTANT:
            self.block(f"if {result}.__class__ is not E:", lambda: self.computed_index(result, step))
            return
        key = self.constant(step.key)
        action = f"select({result}, {key})" if step.index is None else f"indexed({result}, {key})"

        def take() -> None:
            self.charge(1)
            self.emit(f"{result} = {action}")

        if fallible:
            self.block(f"if {result}.__class__ is not E:", take)
        else:
            take()

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
            self.charge_computed(f"{result} is not MISSING")

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
        if self.traced is None and compares_amounts(node):
            return self.amounts_compared(node)
        args = [self.value(child) for child in node.children()]
        self.charge_call(node, args)
        parsed = parsed_constant(node)
        if parsed is not None:
            return self.constant(parsed)
        return self.as_operator(node, args) or self.called(node, args)

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
        left, right = node.args
        result = self.assigned(self.text(left))

        def rest() -> None:
            second = self.value(right)
            absorbed = f"{absorber}({result}, {second})"
            if not _gives_bool(right):
                self.emit(f"{result} = {absorbed}")
            elif self.never_fails(left):
                self.emit(f"{result} = {second}")
            else:
                self.emit(f"{result} = {second} if {result} is {not decisive} else {absorbed}")

        self.block(f"if {result} is not {decisive}:", rest)
        return result

    def conditional(self, node: FunctionCall) -> str:
        condition = self.value(node.args[0])
        result = self.fresh()

        def branch(chosen: AstNode) -> Callable[[], None]:
            return lambda: self.emit(f"{result} = {self.text(chosen, charged=False)}")

        self.block(f"if {condition} is True:", branch(node.args[1]))
        self.block(f"elif {condition} is False:", branch(node.args[2]))
        self.block("else:", lambda: self.emit(f"{result} = rt.not_bool({condition})"))
        return result

    def optional_or(self, node: FunctionCall) -> str:
        assert node.target is not None
        chain = chain_of(node.target)
        if node.function == "orValue" and self.traced is None and chain.is_optional:
            found = self.chain(chain, charged=True, wrapped=False)
            self.block(f"if {found} is MISSING:", lambda: self.emit(f"{found} = {self.text(node.args[0])}"))
            return found
        left = self.value(node.target)
        result = self.fresh()

        def second() -> None:
            self.emit(f"{result} = {self.text(node.args[0])}")

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
        found = f"{element} if {element}.__class__ is E else has_key({members}, {element})"
        return f"({element} in {members} if {element}.__class__ is str else {found})"

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


def _conjuncts(root: AstNode) -> list[AstNode]:
    """The parts that `&&` joins, from left to right."""
    parts: list[AstNode] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if type(node) is FunctionCall and node.function == "_&&_" and node.constant is NOT_CONSTANT:
            stack += reversed(node.args)
        else:
            parts.append(node)
    return parts


def _gives_bool(node: AstNode) -> bool:
    """Whether the value is a bool or an error, whatever the operands are."""
    return type(node) is FunctionCall and node.function in _GIVE_BOOL


def _is_set(members: tuple[Any, ...]) -> bool:
    return all(type(m) in (str, int, float, bool) or isinstance(m, int) for m in members)


def _member_set(members: tuple[Any, ...]) -> dict[Any, bool]:
    return {to_key(m): True for m in members}
