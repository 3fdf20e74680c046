"""Chains of selections: a variable (or any value) and the fields and indexes taken from it, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dray.cel.ast import NOT_CONSTANT, AstNode, FunctionCall, Ident, Literal, Select
from dray.cel.runtime import DEVICE_FIELDS
from dray.cel.types import is_optional

DEVICE = "kubernetes.DRADevice"


@dataclass(frozen=True, slots=True)
class Step:
    """`.field` or `[index]`; `optional` for `.?` and `[?]`, `test_only` for the last one in `has()`."""

    field: str = ""
    index: AstNode | None = None
    optional: bool = False
    test_only: bool = False
    struct_field: str | None = None  # attribute of the device object that holds it
    never_fails: bool = False
    in_device_map: bool = (
        False  # an entry of a domain of `device.attributes` or `device.capacity`, with a constant name
    )

    @property
    def key(self) -> Any:
        """The field or the constant index."""
        return self.field if self.index is None else self.index.constant


@dataclass(frozen=True, slots=True)
class Chain:
    base: AstNode
    steps: tuple[Step, ...]

    @property
    def base_is_optional(self) -> bool:
        return is_optional(self.base.type)

    @property
    def is_optional(self) -> bool:
        return bool(self.steps) and (self.base_is_optional or any(step.optional for step in self.steps))


def is_conditional(node: AstNode) -> bool:
    """`c ? a : b`, which costs nothing by itself."""
    return isinstance(node, FunctionCall) and node.function == "_?_:_"


def chain_of(node: AstNode) -> Chain:
    steps: list[Step] = []
    while node.constant is NOT_CONSTANT:
        if isinstance(node, Select) and node.variable is not None:
            named = Ident(node.offset, node.variable)
            named.type = node.type
            node = named
            break
        if isinstance(node, Select):
            steps.append(_selection(node))
            node = node.operand
        elif isinstance(node, FunctionCall) and node.function in ("_[_]", "_[?_]"):
            operand, index = node.args
            is_named, optional = type(index.constant) is str, node.function == "_[?_]"
            sure, in_map = is_named and not optional and _is_device_map(operand), is_named and _is_domain(operand)
            steps.append(Step(index=index, optional=optional, never_fails=sure, in_device_map=in_map))
            node = operand
        elif isinstance(node, FunctionCall) and node.function == "_?._":
            assert isinstance(node.args[1], Literal)
            steps.append(Step(field=node.args[1].value, optional=True, in_device_map=_is_domain(node.args[0])))
            node = node.args[0]
        else:
            break
    return Chain(node, tuple(reversed(steps)))


def _selection(node: Select) -> Step:
    if node.test_only:
        return Step(node.field, test_only=True, in_device_map=_is_domain(node.operand))
    if node.operand.type.name == DEVICE and isinstance(node.operand, Ident):
        return Step(node.field, struct_field=DEVICE_FIELDS[node.field], never_fails=True)
    return Step(node.field, never_fails=_is_device_map(node.operand), in_device_map=_is_domain(node.operand))


def _is_device_map(node: AstNode) -> bool:
    """`device.attributes` or `device.capacity`: maps that answer every key."""
    return (
        isinstance(node, Select)
        and not node.test_only
        and node.field in ("attributes", "capacity")
        and isinstance(node.operand, Ident)
        and node.operand.type.name == DEVICE
    )


def _is_domain(node: AstNode) -> bool:
    """An entry of one of those maps under a constant name: a map with texts as keys."""
    if isinstance(node, Select):
        return not node.test_only and _is_device_map(node.operand)
    return (
        isinstance(node, FunctionCall)
        and node.function == "_[_]"
        and _is_device_map(node.args[0])
        and type(node.args[1].constant) is str
    )
