"""Gives every node its type and every call its overloads, or says what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dray.cel.ast import (
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
from dray.cel.deep_calls import DeepCall, run
from dray.cel.errors import Issue, Refused
from dray.cel.functions import Overload
from dray.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Substitution,
    Type,
    assignable,
    is_dyn,
    is_optional,
    list_of,
    map_of,
    more_general,
    optional_of,
    param,
    substitute,
    type_of,
)
from dray.cel.values import TypeValue, UInt

if TYPE_CHECKING:
    from dray.cel.environment import Environment

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


def check(root: AstNode, environment: Environment) -> None:
    """Types the tree in place; raises Refused with every complaint."""
    checker = _Checker(environment)
    run(checker.visit(root))
    if checker.issues:
        raise Refused(checker.issues)
    checker.finish()


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.issues: list[Issue] = []
        self.sub: Substitution = {}
        self.scopes: list[tuple[str, Type]] = []
        self.fresh = 0
        self.typed: list[AstNode] = []

    # --- bookkeeping

    def complain(self, node: AstNode, message: str, hint: str = "") -> Type:
        self.issues.append(Issue(node.offset, message, hint))
        return ERROR

    def shown(self, t: Type) -> str:
        return str(substitute(self.sub, t, True))

    def resolved(self, t: Type) -> Type:
        return substitute(self.sub, t, False)

    def new_param(self) -> Type:
        self.fresh += 1
        return param(f"_{self.fresh}")

    def fits(self, given: Type, expected: Type) -> bool:
        trial = dict(self.sub)
        if assignable(trial, given, expected):
            self.sub = trial
            return True
        return False

    def finish(self) -> None:
        """Parameters that stayed free become dyn."""
        for node in self.typed:
            node.type = substitute(self.sub, node.type, True)

    # --- nodes

    def visit(self, node: AstNode) -> DeepCall[Type]:
        kind = type(node)
        if kind is Literal:
            return self.literal(node)  # type: ignore[arg-type]
        if kind is FunctionCall:
            result = yield from self.call(node)  # type: ignore[arg-type]
        elif kind is Select:
            result = yield from self.select(node)  # type: ignore[arg-type]
        elif kind is Ident:
            result = self.ident(node)  # type: ignore[arg-type]
        elif kind is ListLiteral:
            result = yield from self.list_literal(node)  # type: ignore[arg-type]
        elif kind is MapLiteral:
            result = yield from self.map_literal(node)  # type: ignore[arg-type]
        elif kind is Comprehension:
            result = yield from self.comprehension(node)  # type: ignore[arg-type]
        elif kind is Bind:
            result = yield from self.bind(node)  # type: ignore[arg-type]
        else:
            result = yield from self.struct(node)  # type: ignore[arg-type]
        node.type = result
        self.typed.append(node)
        return result

    def literal(self, node: Literal) -> Type:
        node.type = _LITERALS[type(node.value)]
        return node.type

    def ident(self, node: Ident) -> Type:
        name = node.name
        for scoped, t in reversed(self.scopes):
            if scoped == name:
                return t
        found = self.environment.lookup(name.removeprefix("."))
        if found is None:
            known = [scoped for scoped, _ in self.scopes if not scoped.startswith("@")]
            hint = near(name, [*known, *self.environment.variables])
            return self.complain(node, f"undeclared reference to '{name.removeprefix('.')}' (in container '')", hint)
        return self.use_name(node, found)

    def use_name(self, node: AstNode, found: Type | TypeValue) -> Type:
        if isinstance(found, TypeValue):
            node.constant = found
            return type_of(DYN)
        return found

    def select(self, node: Select) -> DeepCall[Type]:
        qualified = self.qualified(node) if not node.test_only else None
        if qualified is not None:
            found = self.environment.lookup(qualified)
            if found is not None:
                node.variable = qualified
                return self.use_name(node, found)
        operand = self.resolved((yield self.visit(node.operand)))
        optional = is_optional(operand)
        if optional:
            operand = self.resolved(operand.params[0])
        result = self.field_type(node, operand, node.field)
        if node.test_only:
            return ERROR if result is ERROR else BOOL
        return optional_of(result) if optional and result is not ERROR else result

    def qualified(self, node: AstNode) -> str | None:
        """The dotted name, unless its first part is a variable in scope."""
        if isinstance(node, Ident):
            scoped = any(name == node.name for name, _ in self.scopes)
            return None if scoped else node.name.removeprefix(".")
        if isinstance(node, Select) and not node.test_only:
            prefix = self.qualified(node.operand)
            return None if prefix is None else f"{prefix}.{node.field}"
        return None

    def field_type(self, node: AstNode, operand: Type, field: str) -> Type:
        if operand.kind == "map":
            return operand.params[1]  # whatever its keys are: a map without such a key has no such field
        if operand.kind == "struct":
            fields = self.environment.fields.get(operand.name)
            if fields is not None and field in fields:
                return fields[field]
            return self.complain(node, f"undefined field '{field}'", near(field, fields or ()))
        if is_dyn(operand) or operand.kind == "param":
            return DYN
        return self.complain(node, f"type '{self.shown(operand)}' does not support field selection")

    def list_literal(self, node: ListLiteral) -> DeepCall[Type]:
        element: Type | None = None
        for at, item in enumerate(node.elements):
            t = yield self.visit(item)
            if at in node.optional:
                t = self.unwrapped(item, t)
            element = self.joined(element, t)
        return list_of(element if element is not None else self.new_param())

    def map_literal(self, node: MapLiteral) -> DeepCall[Type]:
        key: Type | None = None
        value: Type | None = None
        for at, (key_node, value_node) in enumerate(node.entries):
            key = self.joined(key, (yield self.visit(key_node)))
            t = yield self.visit(value_node)
            if at in node.optional:
                t = self.unwrapped(value_node, t)
            value = self.joined(value, t)
        return map_of(key or self.new_param(), value or self.new_param())

    def unwrapped(self, node: AstNode, t: Type) -> Type:
        t = self.resolved(t)
        if is_optional(t):
            return t.params[0]
        if is_dyn(t):
            return DYN
        return self.complain(node, f"expected type 'optional_type({self.shown(t)})' but found '{self.shown(t)}'")

    def joined(self, before: Type | None, t: Type) -> Type:
        """One type for all elements of a literal; the dynamic one if they differ, which is judged later."""
        if before is None:
            return t
        if self.fits(before, t):
            return more_general(before, t)
        return DYN

    def struct(self, node: StructLiteral) -> DeepCall[Type]:
        name = node.name.removeprefix(".")
        fields = self.environment.constructible(name)
        node.is_constructible = fields is not None
        fields = self.environment.fields.get(name) if fields is None else fields
        if fields is None:
            hint = near(name, self.environment.fields)
            return self.complain(node, f"undeclared reference to '{name}' (in container '')", hint)
        for at, (field, value) in enumerate(node.fields):
            t = yield self.visit(value)
            if at in node.optional:
                t = self.unwrapped(value, t)
            expected = fields.get(field)
            if expected is None:
                self.complain(node, f"undefined field '{field}'", near(field, fields))
            elif not self.fits(t, expected):
                self.complain(
                    value, f"expected type of field '{field}' is '{expected}' but provided type is '{self.shown(t)}'"
                )
        return Type("struct", name)

    def comprehension(self, node: Comprehension) -> DeepCall[Type]:
        range_type = self.resolved((yield self.visit(node.range)))
        first, second = self.iteration_types(node, range_type)
        init = yield self.visit(node.init)
        self.scopes.append((node.accu, init))
        self.scopes.append((node.variable, first))
        if node.variable2 is not None:
            self.scopes.append((node.variable2, second))
        self.expect(node.condition, (yield self.visit(node.condition)), BOOL)
        self.expect(node.step, (yield self.visit(node.step)), init)
        del self.scopes[-1 if node.variable2 is None else -2 :]
        result = yield self.visit(node.result)
        self.scopes.pop()
        return self.resolved(result)

    def iteration_types(self, node: Comprehension, t: Type) -> tuple[Type, Type]:
        """Types of the loop's variables. A single variable runs over elements of a list and keys of a map."""
        if t.kind == "list":
            return (t.params[0], DYN) if node.variable2 is None else (INT, t.params[0])
        if t.kind == "map":
            return t.params[0], t.params[1]
        if t.kind == "dyn" or t.kind == "!error!" or t.kind == "param":
            return DYN, DYN
        message = (
            f"expression of type '{self.shown(t)}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )
        return self.complain(node.range, message), ERROR

    def expect(self, node: AstNode, given: Type, expected: Type) -> None:
        if not self.fits(given, expected):
            self.complain(node, f"expected type '{self.shown(expected)}' but found '{self.shown(given)}'")

    def bind(self, node: Bind) -> DeepCall[Type]:
        init = yield self.visit(node.init)
        self.scopes.append((node.name, init))
        result = yield self.visit(node.result)
        self.scopes.pop()
        return self.resolved(result)

    # --- calls

    def call(self, node: FunctionCall) -> DeepCall[Type]:
        function = node.function.removeprefix(".")
        target = node.target
        if target is not None:
            qualified = self.qualified(target)
            if qualified is not None and f"{qualified}.{function}" in self.environment.functions:
                node.function = function = f"{qualified}.{function}"
                node.target = target = None
        elif function != node.function:
            node.function = function
        overloads = self.environment.functions.get(function)
        args: list[Type] = []
        for child in node.children():
            args.append(self.literal(child) if type(child) is Literal else self.resolved((yield self.visit(child))))
        if overloads is None:
            hint = near(function, self.environment.functions)
            return self.complain(node, f"undeclared reference to '{function}' (in container '')", hint)
        if function == "_?._":
            return self.optional_select(node, args)
        return self.resolve(node, overloads, args)

    def optional_select(self, node: FunctionCall, args: list[Type]) -> Type:
        operand = args[0]
        if is_optional(operand):
            operand = self.resolved(operand.params[0])
        field = node.args[1].value if isinstance(node.args[1], Literal) else ""
        result = self.field_type(node, operand, field)
        node.overloads = tuple(self.environment.functions["_?._"])
        return result if result is ERROR else optional_of(result)

    def resolve(self, node: FunctionCall, overloads: Iterable[Overload], args: list[Type]) -> Type:
        """Every overload that may be meant; more than one only where arguments are dynamic."""
        is_member = node.target is not None
        chosen: list[Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.is_member != is_member or len(overload.args) != len(args):
                continue
            expected, produced = overload.args, overload.result
            if overload.is_generic:
                expected, produced = self.instantiated(overload)
            if not self.all_fit(args, expected):
                continue
            chosen.append(overload)
            produced = self.resolved(produced)
            if result is None:
                result = produced
            elif not is_dyn(result) and result != produced:
                result = DYN
        if result is None:
            if any(t is ERROR for t in args):
                return ERROR
            return self.no_overload(node, args)
        node.overloads = tuple(chosen)
        return result

    def instantiated(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        own: Substitution = {}

        def renamed(t: Type) -> Type:
            if t.kind == "param":
                fresh = own.get(t.name)
                if fresh is None:
                    fresh = own[t.name] = self.new_param()
                return fresh
            return Type(t.kind, t.name, tuple(map(renamed, t.params))) if t.params else t

        return tuple(map(renamed, overload.args)), renamed(overload.result)

    def all_fit(self, given: list[Type], expected: tuple[Type, ...]) -> bool:
        trial = dict(self.sub)
        for mine, theirs in zip(given, expected, strict=False):
            if not assignable(trial, mine, theirs):
                return False
        self.sub = trial
        return True

    def no_overload(self, node: FunctionCall, args: list[Type]) -> Type:
        shown = [self.shown(t) for t in args]
        if node.target is not None:
            signature = f"{shown[0]}.({', '.join(shown[1:])})"
        else:
            signature = f"({', '.join(shown)})"
        hint = ""
        if node.function in ("_<_", "_<=_", "_>_", "_>=_") and any("kubernetes." in s for s in shown):
            hint = "quantities and versions have isLessThan, isGreaterThan and compareTo"
        return self.complain(node, f"found no matching overload for '{node.function}' applied to '{signature}'", hint)


def near(name: str, known: Iterable[str]) -> str:
    import difflib

    candidates = [k for k in known if not k.startswith(("_", "@", "!", "-")) and "@" not in k]
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"did you mean `{found[0]}`?" if found and found[0] != name else ""
