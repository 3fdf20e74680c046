"""Does a device match class and request? Asked when first needed, then remembered with the kind of device."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dray import cel
from dray.allocator.device_kinds import DeviceKind
from dray.allocator.types import Features
from dray.cel.ast import AstNode, Comprehension, FunctionCall, Ident, Literal, Select
from dray.cel.corrections import Correction, corrections
from dray.cel.explain import MatchExplanation, explain

# Expressions kept compiled per set of features.
MOST_PROGRAMS = 2048


Read = tuple[str, str, str]
"""`attributes` or `capacity`, domain, id."""


SECTIONS = ("attributes", "capacity")


class ReadSet:
    """The properties that a set of selectors reads. Interned, so that it is compared by identity."""

    __slots__ = ("reads",)

    def __init__(self, reads: tuple[Read, ...]) -> None:
        self.reads = reads


class SelectorFailure:
    """A selector that cannot be answered for a kind of device; fatal once the search gets there."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


SelectorAnswer = bool | SelectorFailure


class Selectors:
    """Compiled expressions of one set of features, with their answers remembered per kind of device."""

    def __init__(self, features: Features) -> None:
        self._environment = cel.Environment.devices(
            stored=True,
            list_attributes=features.list_type_attributes,
            consumable_capacity=features.consumable_capacity,
        )
        self._programs: dict[str, cel.Program | cel.CompileFailure] = {}
        self._read_sets: dict[tuple[Read, ...], ReadSet] = {}

    def _program(self, expression: str) -> cel.Program | cel.CompileFailure:
        program = self._programs.get(expression)
        if program is None:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
            program = self._programs[expression] = cel.compile_selector(expression, self._environment)
        return program

    def read_set(self, expressions: Sequence[str]) -> ReadSet | None:
        """The properties that the expressions read; None if they may read all."""
        together: set[Read] = set()
        for expression in expressions:
            program = self._program(expression)
            reads = None if isinstance(program, cel.CompileFailure) else reads_of(program.root)
            if reads is None:
                return None
            together |= reads
        known = tuple(sorted(together))
        if known not in self._read_sets:
            if len(self._read_sets) >= MOST_PROGRAMS:
                self._read_sets.clear()
            self._read_sets[known] = ReadSet(known)
        return self._read_sets[known]

    def verdict(self, expression: str, kind: DeviceKind) -> SelectorAnswer:
        known: SelectorAnswer | None = kind.answers.get(expression)
        if known is None:
            known = self._evaluate(expression, kind)
            kind.remember(kind.answers, expression, known)
        return known

    def _evaluate(self, expression: str, kind: DeviceKind) -> SelectorAnswer:
        program = self._program(expression)
        if isinstance(program, cel.CompileFailure):
            return SelectorFailure(f"CEL compile error: {program.message}")
        try:
            return program.evaluate(cel_device(kind))
        except cel.CelRuntimeError as problem:
            return SelectorFailure(f"CEL runtime error: {problem}")

    def explain(self, expression: str, kind: DeviceKind) -> MatchExplanation | cel.CompileFailure:
        """Which part of the expression decided, and what it saw on the device."""
        key = ("explained", expression)
        known: MatchExplanation | cel.CompileFailure | None = kind.answers.get(key)
        if known is None:
            program = self._program(expression)
            known = program if isinstance(program, cel.CompileFailure) else explain(program, cel_device(kind))
            kind.remember(kind.answers, key, known)
        return known

    def corrections(self, expression: str, kind: DeviceKind) -> list[Correction]:
        """Edits of the expression after which it may select the device."""
        program = self._program(expression)
        return [] if isinstance(program, cel.CompileFailure) else corrections(program, cel_device(kind))

    def derived(self, expression: str, kind: DeviceKind) -> object | SelectorFailure:
        """The value of a derived attribute's expression, as CEL gives it."""
        key = ("derived", expression)
        known = kind.answers.get(key)
        if known is None:
            known = (self._derive(expression, kind),)
            kind.remember(kind.answers, key, known)
        value: object = known[0]
        return value

    def _derive(self, expression: str, kind: DeviceKind) -> object | SelectorFailure:
        program = cel.compile_expression(expression, self._environment)
        if isinstance(program, cel.CompileFailure):
            return SelectorFailure(f"compile derived attribute: {program.message}")
        try:
            value: object = program.value(cel_device(kind))
        except cel.CelRuntimeError as problem:
            return SelectorFailure(str(problem))
        return value


def value_read(kind: DeviceKind, read: Read) -> Hashable:
    """The values that a selector reads, in comparable form; a device that cannot be read equals no other."""
    device = kind.cel_device or cel_device(kind)
    if device.problem is not None:
        return kind
    section, domain, id_ = read
    if section == "attributes":
        value = device.attributes[domain].get(id_)
        return value if type(value) is str or type(value) is int else (type(value), value)
    amount = device.capacity[domain].get(id_)
    return None if amount is None else (amount.nanos, amount.format, amount.scale)


def cel_device(kind: DeviceKind) -> cel.CelDevice:
    """The `device` variable, built once per kind."""
    if kind.cel_device is None:
        kind.cel_device = cel.CelDevice.of(kind.driver, kind.device)
    device: cel.CelDevice = kind.cel_device
    return device


# --- which attributes and capacities an expression names ----------------------------------------------------------------


def reads_of(root: AstNode) -> frozenset[Read] | None:
    """Attributes and capacities that the expression names; None where that cannot be told from its text.

    Driver name and allowMultipleAllocations are left out: they are cheap to compare and always are.
    """
    found: set[Read] = set()
    nodes = [root]
    while nodes:
        node = nodes.pop()
        read = _read(node)
        if read is not None:
            found.add(read)
        elif not _is_field_of_device(node, "driver", "allowMultipleAllocations"):
            if _uses_whole_device(node):
                return None
            nodes.extend(node.children())
    return frozenset(found)


def _uses_whole_device(node: AstNode) -> bool:
    """Whether the expression uses the device, or a whole map of it, as a value; or hides it behind a loop variable."""
    if isinstance(node, Comprehension):
        return "device" in (node.variable, node.variable2, node.accu)
    return isinstance(node, Ident) and node.name == "device"


def _read(node: AstNode) -> Read | None:
    """`device.SECTION["domain"].id` in any spelling, `has()` of it, and `"id" in device.SECTION["domain"]`."""
    if isinstance(node, Select):
        return _in_domain(node.operand, node.field)
    if isinstance(node, FunctionCall) and len(node.args) == 2 and node.target is None:
        if node.function in ("_[_]", "_?._", "_[?_]"):
            return _in_domain(node.args[0], _text(node.args[1]))
        if node.function == "@in":
            return _in_domain(node.args[1], _text(node.args[0]))
    return None


def _in_domain(node: AstNode, id_: str | None) -> Read | None:
    if id_ is None or not isinstance(node, FunctionCall) or node.function != "_[_]" or len(node.args) != 2:
        return None
    domain = _text(node.args[1])
    section = node.args[0]
    if domain is None or not _is_field_of_device(section, *SECTIONS):
        return None
    assert isinstance(section, Select)
    return (section.field, domain, id_)


def _text(node: AstNode) -> str | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else None


def _is_field_of_device(node: AstNode, *fields: str) -> bool:
    return (
        isinstance(node, Select)
        and not node.test_only
        and node.field in fields
        and isinstance(node.operand, Ident)
        and node.operand.name == "device"
    )
