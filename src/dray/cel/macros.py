"""Macros: what `has`, `all`, `map`, `cel.bind` and the others stand for."""

from __future__ import annotations

from dray.cel.ast import AstNode, Bind, Comprehension, FunctionCall, Ident, ListLiteral, Literal, MapLiteral, Select
from dray.cel.errors import Issue, Refused

ACCU = "@result"
SORT_INPUT = "@sort_input"

_ONE_VARIABLE = frozenset({"all", "exists", "exists_one", "map", "filter", "sortBy", "optMap", "optFlatMap"})
_TWO_VARIABLES = frozenset({"all", "exists", "exists_one", "existsOne"})
_TRANSFORMS = frozenset({"transformList", "transformMap", "transformMapEntry"})


def expand_global(offset: int, name: str, args: list[AstNode]) -> AstNode | None:
    if name != "has" or len(args) != 1:
        return None
    operand = args[0]
    if not isinstance(operand, Select) or operand.test_only:
        raise Refused([Issue(operand.offset, "invalid argument to has() macro")])
    return Select(offset, operand.operand, operand.field, test_only=True)


def expand_member(dot: int, offset: int, target: AstNode, name: str, args: list[AstNode]) -> AstNode | None:
    """The expansion of `target.name(args)`, or None if that is an ordinary call."""
    count = len(args)
    if name == "bind" and count == 3 and isinstance(target, Ident) and target.name == "cel":
        return Bind(
            offset, _variable(args[0], "cel.bind() variable names must be simple identifiers"), args[1], args[2]
        )
    if name in _ONE_VARIABLE and (count == 2 or (name == "map" and count == 3)):
        return _one_variable(offset, target, name, args)
    if name in _TWO_VARIABLES and count == 3:
        variables = _two_variables(args)
        return _quantifier(offset, target, "exists_one" if name == "existsOne" else name, variables, args[2])
    if name in _TRANSFORMS and count in (3, 4):
        return _transform(offset, target, name, args)
    return None


def _one_variable(offset: int, target: AstNode, name: str, args: list[AstNode]) -> AstNode:
    variable = _variable(args[0], "argument must be a simple name")
    if name == "map":
        predicate = args[1] if len(args) == 3 else None
        return _collect(offset, "map", target, (variable, None), predicate, args[-1])
    if name == "filter":
        return _collect(offset, "filter", target, (variable, None), args[1], Ident(args[0].offset, variable))
    if name == "sortBy":
        keys = _collect(offset, "map", Ident(offset, SORT_INPUT), (variable, None), None, args[1])
        call = FunctionCall(offset, "@sortByAssociatedKeys", [keys], Ident(offset, SORT_INPUT))
        return Bind(offset, SORT_INPUT, target, call)
    if name in ("optMap", "optFlatMap"):
        inner: AstNode = Bind(offset, variable, FunctionCall(offset, "value", [], target), args[1])
        if name == "optMap":
            inner = FunctionCall(offset, "optional.of", [inner])
        present = FunctionCall(offset, "hasValue", [], target)
        return FunctionCall(offset, "_?_:_", [present, inner, FunctionCall(offset, "optional.none", [])])
    return _quantifier(offset, target, name, (variable, None), args[1])


def _quantifier(
    offset: int, target: AstNode, name: str, variables: tuple[str, str | None], predicate: AstNode
) -> AstNode:
    def accu() -> AstNode:
        return Ident(offset, ACCU)

    if name == "all":
        condition: AstNode = FunctionCall(offset, "@not_strictly_false", [accu()])
        step: AstNode = FunctionCall(offset, "_&&_", [accu(), predicate])
        return Comprehension(offset, name, target, variables, ACCU, Literal(offset, True), condition, step, accu())
    if name == "exists":
        condition = FunctionCall(offset, "@not_strictly_false", [FunctionCall(offset, "!_", [accu()])])
        step = FunctionCall(offset, "_||_", [accu(), predicate])
        return Comprehension(offset, name, target, variables, ACCU, Literal(offset, False), condition, step, accu())
    one_more = FunctionCall(offset, "_+_", [accu(), Literal(offset, 1)])
    step = FunctionCall(offset, "_?_:_", [predicate, one_more, accu()])
    result = FunctionCall(offset, "_==_", [accu(), Literal(offset, 1)])
    always = Literal(offset, True)
    return Comprehension(offset, "exists_one", target, variables, ACCU, Literal(offset, 0), always, step, result)


def _collect(
    offset: int,
    macro: str,
    target: AstNode,
    variables: tuple[str, str | None],
    predicate: AstNode | None,
    value: AstNode,
) -> AstNode:
    step: AstNode = FunctionCall(offset, "_+_", [Ident(offset, ACCU), ListLiteral(offset, [value])])
    if predicate is not None:
        step = FunctionCall(offset, "_?_:_", [predicate, step, Ident(offset, ACCU)])
    result, always = Ident(offset, ACCU), Literal(offset, True)
    return Comprehension(offset, macro, target, variables, ACCU, ListLiteral(offset, []), always, step, result)


def _transform(offset: int, target: AstNode, name: str, args: list[AstNode]) -> AstNode:
    variables = _two_variables(args)
    predicate = args[2] if len(args) == 4 else None
    if name == "transformList":
        return _collect(offset, "transformList", target, variables, predicate, args[-1])
    accu = Ident(offset, ACCU)
    if name == "transformMap":
        step: AstNode = FunctionCall(offset, "cel.@mapInsert", [accu, Ident(offset, variables[0]), args[-1]])
    else:
        step = FunctionCall(offset, "cel.@mapInsert", [accu, args[-1]])
    if predicate is not None:
        step = FunctionCall(offset, "_?_:_", [predicate, step, Ident(offset, ACCU)])
    result, always = Ident(offset, ACCU), Literal(offset, True)
    return Comprehension(offset, name, target, variables, ACCU, MapLiteral(offset, []), always, step, result)


def _two_variables(args: list[AstNode]) -> tuple[str, str]:
    first = _variable(args[0], "argument must be a simple name")
    second = _variable(args[1], "argument must be a simple name")
    if first == second:
        raise Refused([Issue(args[1].offset, f"duplicate variable name: {second}")])
    return first, second


def _variable(node: AstNode, complaint: str) -> str:
    if not isinstance(node, Ident):
        raise Refused([Issue(node.offset, complaint)])
    # `.y` is a name, too, but inside the loop it still means the `y` outside: nothing there can name the variable.
    return node.name if not node.name.startswith(".") else f"@{node.name}"
