"""Before evaluation: constant parts are computed, and literals that can never work are refused."""

from __future__ import annotations

from typing import Any

from dray.cel.ast import NOT_CONSTANT, AstNode, FunctionCall, ListLiteral, Literal, MapLiteral
from dray.cel.environment import Environment
from dray.cel.errors import CelError, Issue, Refused
from dray.cel.functions import caller
from dray.cel.library.formatting import TAKES, clauses
from dray.cel.library.regex import compiled
from dray.cel.types import Type, is_dyn
from dray.cel.values import Duration, Timestamp, to_key

_CONVERSIONS = frozenset(["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"])


def validate(every: list[AstNode], environment: Environment) -> None:
    """Complaints about literals among the `nodes` of a tree: durations, timestamps, patterns, formats, mixed lists."""
    issues: list[Issue] = []
    formatted = {id(below) for node in every if _is_format(node) for below in nodes(node)}
    for node in every:
        if type(node) is FunctionCall:
            _validate_call(node, issues)
        elif not environment.mixed_literals and id(node) not in formatted:
            _validate_literal(node, issues)
    if issues:
        raise Refused(issues)


def _is_format(node: AstNode) -> bool:
    """`format` takes values of different types in one list."""
    return type(node) is FunctionCall and node.function == "format"


def nodes(root: AstNode) -> list[AstNode]:
    """Every node once, children before parents."""
    out: list[AstNode] = []
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            out.append(node)
            stack.extend(node.children())
    out.reverse()
    return out


def _validate_call(node: FunctionCall, issues: list[Issue]) -> None:
    function, args = node.function, node.args
    try:
        if function in ("duration", "timestamp") and len(args) == 1 and type(args[0]) is Literal:
            caller(node.overloads)(args[0].value)
        elif function == "matches" and type(args[-1]) is Literal and type(args[-1].value) is str:
            compiled(args[-1].value)
        elif function == "format" and type(node.target) is Literal and type(args[0]) is ListLiteral:
            _validate_format(node.target.value, args[0])
    except CelError as problem:
        at = args[-1] if function == "matches" else node
        what = {"duration": "duration", "timestamp": "timestamp", "matches": "matches"}.get(function, "string.format")
        issues.append(Issue(at.offset, f"invalid {what} argument: {problem.message}"))


def _validate_format(text: Any, args: ListLiteral) -> None:
    used = 0
    for _, _, letter in clauses(text):
        if not letter:
            continue
        if letter not in TAKES:
            raise CelError(f'unrecognized formatting clause "{letter}"')
        if used >= len(args.elements):
            raise CelError(f"index {used} out of range")
        t = args.elements[used].type
        if not is_dyn(t) and t.kind not in TAKES[letter]:
            raise CelError(f"clause %{letter} cannot format a value of type {t}")
        used += 1
    if used < len(args.elements):
        raise CelError(f"too many arguments supplied to string.format (expected {used}, got {len(args.elements)})")


def _validate_literal(node: AstNode, issues: list[Issue]) -> None:
    if type(node) is ListLiteral:
        _validate_alike([_element_type(e, at in node.optional) for at, e in enumerate(node.elements)], node, issues)
    elif type(node) is MapLiteral:
        _validate_alike([key.type for key, _ in node.entries], node, issues)
        values = [_element_type(v, at in node.optional) for at, (_, v) in enumerate(node.entries)]
        _validate_alike(values, node, issues)


def _element_type(node: AstNode, optional: bool) -> Type:
    return node.type.params[0] if optional and node.type.params else node.type


def _validate_alike(types: list[Type], node: AstNode, issues: list[Issue]) -> None:
    for t in types[1:]:
        if t != types[0]:
            issues.append(Issue(node.offset, f"expected type '{types[0]}' but found '{t}'"))
            return


def fold(every: list[AstNode]) -> None:
    """Writes the values of constant parts onto the `nodes` of a tree; raises Refused (internal) if one cannot be computed."""
    for node in every:
        if node.constant is not NOT_CONSTANT:
            continue
        if type(node) is Literal:
            node.constant = node.value
        elif type(node) is ListLiteral:
            if not node.optional and all(e.constant is not NOT_CONSTANT for e in node.elements):
                node.constant = tuple(e.constant for e in node.elements)
        elif type(node) is MapLiteral:
            _fold_map(node)
        elif type(node) is FunctionCall:
            _fold_call(node)


# Types with which cel-go looks nothing up, by their names in its message.
_GO_TYPES = {bytes: "types.Bytes", type(None): "types.Null", Duration: "types.Duration", Timestamp: "types.Timestamp"}


def refuse_indexes(every: list[AstNode], environment: Environment) -> None:
    """Refuses (internal) an index whose constant value nothing can be looked up with. The language allows it, Kubernetes does not."""
    if environment.mixed_literals:
        return
    for node in every:
        if type(node) is FunctionCall and node.function in ("_[_]", "_[?_]"):
            index = node.args[-1].constant
            if index is not NOT_CONSTANT and type(index) in _GO_TYPES:
                problem = f"invalid qualifier type: {_GO_TYPES[type(index)]}"
                raise Refused([Issue(node.offset, problem)], internal=True)


def _fold_map(node: MapLiteral) -> None:
    if node.optional:
        return
    if any(n.constant is NOT_CONSTANT for entry in node.entries for n in entry):
        return
    try:
        node.constant = {to_key(key.constant): value.constant for key, value in node.entries}
    except CelError:
        return


def _fold_call(node: FunctionCall) -> None:
    try:
        if node.function in _CONVERSIONS and node.target is None and len(node.args) == 1:
            if node.args[0].constant is not NOT_CONSTANT:
                node.constant = caller(node.overloads)(node.args[0].constant)
        elif node.function in ("find", "findAll") and type(node.args[0].constant) is str:
            compiled(node.args[0].constant)
        elif node.function == "@in" and node.args[1].constant == ():
            node.constant = False
    except CelError as problem:
        raise Refused([Issue(node.offset, problem.message)], internal=True) from None
