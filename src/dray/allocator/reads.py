"""What of a device does a selector look at? Devices that agree in that get the same answer."""

from __future__ import annotations

from collections.abc import Iterator

from dray.cel.ast import Call, Comprehension, Ident, Literal, Node, Select

Read = tuple[str, str, str]
"""`attributes` or `capacity`, domain, id."""

SECTIONS = ("attributes", "capacity")


class ReadSet:
    """What some selectors look at together. Interned, so that it is compared by identity."""

    __slots__ = ("reads",)

    def __init__(self, reads: tuple[Read, ...]) -> None:
        self.reads = reads


class LooksAtAll(Exception):
    """The expression takes the device, or a whole map of it, in its hands."""


def reads_of(root: Node) -> frozenset[Read] | None:
    """Attributes and capacities that the expression names; None where that cannot be told from its text.

    Driver name and allowMultipleAllocations are left out: they are cheap to compare and always are.
    """
    try:
        return frozenset(_reads(root))
    except LooksAtAll:
        return None


def _reads(node: Node) -> Iterator[Read]:
    read = _read(node)
    if read is not None:
        yield read
        return
    if _is_field_of_device(node, "driver", "allowMultipleAllocations"):
        return
    if isinstance(node, Ident) and node.name == "device":
        raise LooksAtAll
    if isinstance(node, Comprehension) and "device" in (node.variable, node.variable2, node.accu):
        raise LooksAtAll
    for child in node.children():
        yield from _reads(child)


def _read(node: Node) -> Read | None:
    """`device.SECTION["domain"].id` in any spelling, `has()` of it, and `"id" in device.SECTION["domain"]`."""
    if isinstance(node, Select):
        return _in_domain(node.operand, node.field)
    if isinstance(node, Call) and len(node.args) == 2 and node.target is None:
        if node.function in ("_[_]", "_?._", "_[?_]"):
            return _in_domain(node.args[0], _text(node.args[1]))
        if node.function == "@in":
            return _in_domain(node.args[1], _text(node.args[0]))
    return None


def _in_domain(node: Node, id_: str | None) -> Read | None:
    if id_ is None or not isinstance(node, Call) or node.function != "_[_]" or len(node.args) != 2:
        return None
    domain = _text(node.args[1])
    section = node.args[0]
    if domain is None or not _is_field_of_device(section, *SECTIONS):
        return None
    assert isinstance(section, Select)
    return (section.field, domain, id_)


def _text(node: Node) -> str | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else None


def _is_field_of_device(node: Node, *fields: str) -> bool:
    return (
        isinstance(node, Select)
        and not node.test_only
        and node.field in fields
        and isinstance(node.operand, Ident)
        and node.operand.name == "device"
    )
