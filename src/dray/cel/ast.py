"""The tree. Every node knows its offset in the text; the checker writes types and overloads onto the nodes.

Macros are expanded while parsing, as CEL defines them, since cost is counted over the expansion. A Comprehension keeps
the macro it came from, so that generated code may use Python's own loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dray.cel.types import DYN, Type

if TYPE_CHECKING:
    from dray.cel.functions import Overload

NOT_CONSTANT: Any = object()


class AstNode:
    __slots__ = ("constant", "end", "offset", "start", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.start = self.end = offset  # the text from which the node was read
        self.type: Type = DYN
        self.constant: Any = NOT_CONSTANT  # the value, where it is known before evaluation

    def children(self) -> tuple[AstNode, ...]:
        return ()


class Literal(AstNode):
    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Ident(AstNode):
    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Select(AstNode):
    """`operand.field`, or the test whether it is there."""

    __slots__ = ("field", "operand", "test_only", "variable")

    def __init__(self, offset: int, operand: AstNode, field: str, test_only: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.variable: str | None = None  # the declared name with dots that this is, if it is one

    def children(self) -> tuple[AstNode, ...]:
        return (self.operand,)


class FunctionCall(AstNode):
    """A function or an operator (`_+_`, `_[_]`, `_?._`); a member call has a target."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[AstNode], target: AstNode | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[Overload, ...] = ()

    def children(self) -> tuple[AstNode, ...]:
        return tuple(self.args) if self.target is None else (self.target, *self.args)


class ListLiteral(AstNode):
    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[AstNode], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional

    def children(self) -> tuple[AstNode, ...]:
        return tuple(self.elements)


class MapLiteral(AstNode):
    __slots__ = ("entries", "optional")

    def __init__(
        self, offset: int, entries: list[tuple[AstNode, AstNode]], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(offset)
        self.entries = entries
        self.optional = optional

    def children(self) -> tuple[AstNode, ...]:
        return tuple(node for entry in self.entries for node in entry)


class StructLiteral(AstNode):
    __slots__ = ("fields", "is_constructible", "name", "optional")

    def __init__(
        self, offset: int, name: str, fields: list[tuple[str, AstNode]], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(offset)
        self.name = name
        self.fields = fields
        self.optional = optional
        # Set by the checker: the environment can make values of this type.
        self.is_constructible = False

    def children(self) -> tuple[AstNode, ...]:
        return tuple(value for _, value in self.fields)


class Comprehension(AstNode):
    """A loop over `range` that starts with `init`, goes on while `condition`, and gives `result`."""

    __slots__ = ("accu", "condition", "init", "macro", "range", "result", "step", "variable", "variable2")

    def __init__(
        self,
        offset: int,
        macro: str,
        range: AstNode,
        variables: tuple[str, str | None],
        accu: str,
        init: AstNode,
        condition: AstNode,
        step: AstNode,
        result: AstNode,
    ) -> None:
        super().__init__(offset)
        self.macro = macro
        self.range = range
        self.variable, self.variable2 = variables
        self.accu = accu
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result

    def children(self) -> tuple[AstNode, ...]:
        return (self.range, self.init, self.condition, self.step, self.result)


class Bind(AstNode):
    """`cel.bind(name, init, result)`: `init` is computed when first needed, and once."""

    __slots__ = ("init", "name", "result")

    def __init__(self, offset: int, name: str, init: AstNode, result: AstNode) -> None:
        super().__init__(offset)
        self.name = name
        self.init = init
        self.result = result

    def children(self) -> tuple[AstNode, ...]:
        return (self.init, self.result)
