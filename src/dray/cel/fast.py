"""Typed tree to one optimistic Python expression, for what almost always happens: nothing goes wrong.

`a && b` as Python's `and` is exact unless an exception occurs. On any exception the caller runs the exact code, which knows
what the error means. What has no short form here is left to the exact code altogether.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.cel.ast import NOT_CONSTANT, Bind, Call, Comprehension, Ident, ListLiteral, Node, Select
from dray.cel.chains import Chain, chain_of
from dray.cel.errors import CelError
from dray.cel.functions import Overload, caller
from dray.cel.library import operators
from dray.cel.runtime import is_there, iterated, paired
from dray.cel.types import BOOL, INT, QUANTITY, STRING
from dray.cel.values import MISSING, equal

_MAX_DEPTH = 40
_INLINE = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}


class _NotFast(Exception):
    """The exact code has to do it."""


_MATCHER = """
def main(v0):
    if v0.problem is None:
        try:
            answer = {body}
        except Exception:
            return exact(v0)
        if answer is True or answer is False:
            return answer
    return exact(v0)
"""


def matcher(root: Node, variable: str, exact: Callable[[Any], bool]) -> Callable[[Any], bool] | None:
    """A function of a device that asks `exact` where the short form has no answer; None if there is no short form."""
    return _compiled(root, [variable], _MATCHER, {"exact": exact})


def generate(root: Node, variables: list[str]) -> Callable[..., Any] | None:
    """A function of the variables that gives the value or raises anything; None if there is no short form."""
    parameters = ", ".join(f"v{i}" for i in range(len(variables)))
    return _compiled(root, variables, f"def main({parameters}): return {{body}}", {})


def _compiled(root: Node, variables: list[str], frame: str, known: dict[str, Any]) -> Callable[..., Any] | None:
    writer = _Writer()
    names = [f"v{i}" for i in range(len(variables))]
    writer.scope = list(zip(variables, names, strict=False))
    try:
        body = writer.value(root)
    except _NotFast:
        return None
    namespace = writer.constants | known
    exec(compile(frame.replace("{body}", body), "<cel fast>", "exec"), namespace)
    main: Callable[..., Any] = namespace["main"]
    return main


def _loop_over(range_: Any) -> Any:
    items = iterated(range_)
    if type(items) is CelError:
        raise items
    return items


def _pairs_of(range_: Any) -> Any:
    items = paired(range_)
    if type(items) is CelError:
        raise items
    return items


def _as_bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise CelError("no such overload")


class _Writer:
    def __init__(self) -> None:
        self.scope: list[tuple[str, str]] = []
        self.depth = 0
        self.count = 0
        self.in_range = False  # Python allows no assignment inside what a comprehension runs over
        self.constants: dict[str, Any] = {
            "eq": equal,
            "ne": operators.not_equal,
            "index": operators.index,
            "is_there": is_there,
            "loop_over": _loop_over,
            "pairs_of": _pairs_of,
            "as_bool": _as_bool,
            "contained": operators.contained,
            "MISSING": MISSING,
        }

    def constant(self, value: Any) -> str:
        if type(value) in (bool, str) or value is None or (type(value) is int and value >= 0):
            return repr(value)
        return self.named("k", value)

    def named(self, prefix: str, value: Any) -> str:
        self.count += 1
        name = f"{prefix}{self.count}_"
        self.constants[name] = value
        return name

    def value(self, node: Node) -> str:
        if node.constant is not NOT_CONSTANT:
            return self.constant(node.constant)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotFast
        kind = type(node)
        if kind is Ident or kind is Select:
            text = self.chain(chain_of(node))
        elif kind is Call:
            text = self.call(node)  # type: ignore[arg-type]
        elif kind is Comprehension:
            text = self.comprehension(node)  # type: ignore[arg-type]
        elif kind is Bind:
            text = self.bind(node)  # type: ignore[arg-type]
        elif kind is ListLiteral and not node.optional:  # type: ignore[attr-defined]
            text = f"[{', '.join(self.value(e) for e in node.children())}]"
        else:
            raise _NotFast
        self.depth -= 1
        return text

    def truth(self, node: Node) -> str:
        """A value that must be a bool."""
        text = self.value(node)
        return text if node.type == BOOL else f"as_bool({text})"

    # --- names and selections

    def variable(self, name: str) -> str:
        for scoped, python in reversed(self.scope):
            if scoped == name.removeprefix("."):
                return python
        raise _NotFast

    def chain(self, chain: Chain) -> str:
        if chain.base_is_optional or any(step.optional for step in chain.steps):
            raise _NotFast
        base = chain.base
        text = self.variable(base.name) if isinstance(base, Ident) else self.value(base)
        for step in chain.steps:
            if step.test_only:
                text = f"is_there({text}, {step.field!r})"
            elif step.struct_field is not None:
                text = f"{text}.{step.struct_field}"
            elif step.index is None:
                text = f"{text}[{step.field!r}]"
            elif type(step.index.constant) is str:
                text = f"{text}[{step.index.constant!r}]"
            else:
                text = f"index({text}, {self.value(step.index)})"
        return text

    # --- calls

    def call(self, node: Call) -> str:
        function, args = node.function, node.args
        if function == "_&&_":
            return f"({self.truth(args[0])} and {self.truth(args[1])})"
        if function == "_||_":
            return f"({self.truth(args[0])} or {self.truth(args[1])})"
        if function == "!_":
            return f"(not {self.truth(args[0])})"
        if function == "_?_:_":
            return f"({self.value(args[1])} if {self.truth(args[0])} else {self.value(args[2])})"
        if function in _INLINE:
            return self.comparison(node)
        if function == "_[_]":
            return self.chain(chain_of(node))
        if function == "@in":
            return self.membership(node)
        if function in ("orValue", "hasValue"):
            return self.optional(node)
        if function in ("isGreaterThan", "isLessThan"):
            return self.amounts_compared(node, ">" if function == "isGreaterThan" else "<") or self.plain(node)
        if function == "_+_" and node.type == STRING:
            return f"({self.value(args[0])} + {self.value(args[1])})" if _all_are(node, STRING) else self.plain(node)
        return self.plain(node)

    def plain(self, node: Call) -> str:
        if any(o.implementation is None for o in node.overloads):
            raise _NotFast
        parsed = _parsed_constant(node)
        if parsed is not None:
            return self.constant(parsed)
        name = self.named("f", _implementation(node))
        return f"{name}({', '.join(self.value(child) for child in node.children())})"

    def comparison(self, node: Call) -> str:
        left, right = node.args
        operator = _INLINE[node.function]
        if _all_are(node, STRING) or _all_are(node, INT) or (_all_are(node, BOOL) and operator in ("==", "!=")):
            return f"({self.value(left)} {operator} {self.value(right)})"
        quantities = self.quantity_comparison(node, operator)
        if quantities is not None:
            return quantities
        guessed = self.guessed_comparison(node, operator)
        if guessed is not None:
            return guessed
        if operator in ("==", "!="):
            return f"{'eq' if operator == '==' else 'ne'}({self.value(left)}, {self.value(right)})"
        return self.plain(node)

    def guessed_comparison(self, node: Call, operator: str) -> str | None:
        """What is compared with a constant text or number is probably one; the value's class tells before it matters."""
        left, right = node.args
        kind = type(right.constant)
        if self.in_range or kind not in (str, int) or left.type.kind not in ("dyn", "any"):
            return None
        self.count += 1
        name = f"t{self.count}_"
        value = self.value(left)
        constant = self.constant(right.constant)
        otherwise = f"{self.named('f', _implementation(node))}({name}, {constant})"
        return f"({name} {operator} {constant} if ({name} := {value}).__class__ is {kind.__name__} else {otherwise})"

    def quantity_comparison(self, node: Call, operator: str) -> str | None:
        """`a.compareTo(b) >= 0` on quantities compares their amounts at once."""
        left, right = node.args
        if not (isinstance(left, Call) and left.function == "compareTo" and type(right.constant) is int):
            return None
        return self.amounts_compared(left, operator) if right.constant == 0 else None

    def amounts_compared(self, call: Call, operator: str) -> str | None:
        """For a call on two quantities; None for other values."""
        target, other = call.target, call.args[0]
        if target is None or target.type != QUANTITY or other.type != QUANTITY:
            return None
        known = _parsed_constant(other) if isinstance(other, Call) else None
        amount = f"{self.value(other)}.nanos" if known is None else repr(known.nanos)
        return f"({self.value(target)}.nanos {operator} {amount})"

    def membership(self, node: Call) -> str:
        element, container = node.args
        members = container.constant
        if type(members) is tuple and members and all(type(m) is str for m in members):
            return f"({self.value(element)} in {self.named('k', frozenset(members))})"
        return f"contained({self.value(element)}, {self.value(container)})"

    def optional(self, node: Call) -> str:
        """`map.?key.orValue(constant)` and `map.?key.hasValue()` on a plain map."""
        if not isinstance(node.target, Call) or node.target.function not in ("_?._", "_[?_]"):
            raise _NotFast
        chain = chain_of(node.target)
        *before, last = chain.steps
        key = last.field if last.index is None else last.index.constant
        operand = node.target.args[0]
        if any(step.optional for step in before) or chain.base_is_optional or type(key) is not str:
            raise _NotFast
        if operand.type.kind != "map" or not before or not before[-1].never_fails or before[-1].struct_field:
            raise _NotFast
        if node.function == "hasValue":
            return f"({key!r} in {self.value(operand)})"
        return f"{self.value(operand)}.get({key!r}, {self.value(node.args[0])})"

    # --- loops and bindings

    def comprehension(self, node: Comprehension) -> str:
        outer_range, self.in_range = self.in_range, True
        items = self.value(node.range)
        self.in_range = outer_range
        self.count += 1
        first, second = f"i{self.count}_", f"j{self.count}_"
        loop = f"for {first} in loop_over({items})"
        if node.variable2 is not None:
            loop = f"for {first}, {second} in pairs_of({items})"
        outer = len(self.scope)
        self.scope.append((node.variable, first))
        if node.variable2 is not None:
            self.scope.append((node.variable2, second))
        text = self.looped(node, loop)
        del self.scope[outer:]
        return text

    def looped(self, node: Comprehension, loop: str) -> str:
        step = node.step
        assert isinstance(step, Call)
        if node.macro == "all":
            return f"all({self.truth(step.args[1])} {loop})"
        if node.macro == "exists":
            return f"any({self.truth(step.args[1])} {loop})"
        if node.macro == "exists_one":
            return f"(sum(1 {loop} if {self.truth(step.args[0])}) == 1)"
        if node.macro in ("map", "filter", "transformList"):
            return self.collected(step, loop)
        raise _NotFast

    def collected(self, step: Call, loop: str) -> str:
        condition = ""
        if step.function == "_?_:_":
            condition = f" if {self.truth(step.args[0])}"
            chosen = step.args[1]
            assert isinstance(chosen, Call)
            step = chosen
        literal = step.args[1]
        assert isinstance(literal, ListLiteral)
        return f"[{self.value(literal.elements[0])} {loop}{condition}]"

    def bind(self, node: Bind) -> str:
        init = self.value(node.init)
        self.count += 1
        name = f"b{self.count}_"
        self.scope.append((node.name, name))
        body = self.value(node.result)
        self.scope.pop()
        return f"(lambda {name}: {body})({init})"


def _parsed_constant(node: Call) -> Any:
    """The value of `quantity("1Gi")` or `semver("1.2.3")`; None for other calls and for texts that do not parse."""
    if node.function not in ("quantity", "semver") or any(a.constant is NOT_CONSTANT for a in node.args):
        return None
    try:
        return caller(node.overloads)(*(a.constant for a in node.args))
    except CelError:
        return None


def _all_are(node: Call, t: Any) -> bool:
    return all(child.type == t for child in node.children())


def _implementation(node: Call) -> Callable[..., Any]:
    """Without the check of values where the types are known."""
    overload: Overload = node.overloads[0]
    known = all(
        child.type.kind not in ("dyn", "any", "list", "map") and not child.type.params for child in node.children()
    )
    if len(node.overloads) == 1 and known and overload.implementation is not None:
        return overload.implementation
    return caller(node.overloads)
