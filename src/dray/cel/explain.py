"""Why an expression gave what it gave: the sub-expressions that decided, with the values they saw."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dray.cel import code_generator
from dray.cel.ast import NOT_CONSTANT, AstNode, Bind, Comprehension, FunctionCall, Ident, Select
from dray.cel.constant_folding import nodes
from dray.cel.device import CelDevice
from dray.cel.errors import CelError, CelRuntimeError, CostExceeded
from dray.cel.program import Program
from dray.cel.selection_chains import chain_of
from dray.cel.values import type_name


@dataclass(frozen=True, slots=True)
class Seen:
    """A part of the expression and what it was on this device."""

    expression: str
    value: Any


@dataclass(frozen=True, slots=True)
class MatchReason:
    """A sub-expression that decided, its value (an error is a CelRuntimeError), what it looked at, and its place in the text."""

    expression: str
    value: Any
    seen: tuple[Seen, ...]
    start: int = 0
    end: int = 0
    mismatch: str = ""

    def __str__(self) -> str:
        text = f"`{self.expression}` is {shown(self.value)}"
        if self.mismatch:
            return f"{text}: {self.mismatch}"
        looked_at = [s for s in self.seen if not isinstance(s.value, CelRuntimeError)]
        if looked_at and not isinstance(self.value, CelRuntimeError):
            text += ": " + ", ".join(f"{s.expression} is {shown(s.value)}" for s in looked_at)
        return text


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that the expression uses and the device lacks, and the nearest that it has; `likeness` is 0 to 1.

    `name` is the name in its parts: attributes or capacity, domain, and the name in the domain, empty if the domain is missing.
    """

    what: str
    name: tuple[str, str, str]
    nearest: str = ""
    likeness: float = 0.0

    def __str__(self) -> str:
        return f"{self.what} is not published" + (f"; did you mean {self.nearest}?" if self.nearest else "")


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    value: Any  # bool, or CelRuntimeError
    cost: int | None
    reasons: tuple[MatchReason, ...]
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons)) or shown(self.value)


def explain(program: Program, device: CelDevice) -> MatchExplanation:
    outcome = program.evaluate_with_cost(device)
    if outcome.cost is None or (isinstance(outcome.value, CelRuntimeError) and outcome.value.cost_exceeded):
        return MatchExplanation(outcome.value, outcome.cost, (), ())
    values = _trace(program, device)
    reasons: list[MatchReason] = []
    _Decider(program.text, values, reasons).decide(program.root)
    return MatchExplanation(outcome.value, outcome.cost, tuple(reasons[:8]), tuple(missing_names(program, device)))


def _trace(program: Program, device: CelDevice) -> dict[int, Any]:
    """The last value of every node, by the node's identity."""
    run, traced = _traced_code(program)
    values: dict[int, Any] = {}

    def tell(number: int, value: Any) -> None:
        values[id(traced[number])] = value

    with contextlib.suppress(CostExceeded):
        run(0, device, tell)
    return values


@lru_cache(maxsize=64)
def _traced_code(program: Program) -> tuple[code_generator.GeneratedCode, dict[int, AstNode]]:
    """Code that tells the value of every node by number, and the nodes by number."""
    traced: dict[int, AstNode] = {}
    return code_generator.generate(program.root, program.variables, program.environment.cost_limit, traced), traced


class _Decider:
    def __init__(self, text: str, values: dict[int, Any], reasons: list[MatchReason]) -> None:
        self.text = text
        self.values = values
        self.reasons = reasons

    def value(self, node: AstNode) -> Any:
        if node.constant is not NOT_CONSTANT:
            return node.constant
        return self.values.get(id(node), _NEVER)

    def decide(self, node: AstNode) -> None:
        """Goes down to the parts that made the node what it is."""
        value = self.value(node)
        parts = self.deciding_parts(node, value)
        for part in parts:
            self.decide(part)
        if not parts:
            self.add(node, value)

    def deciding_parts(self, node: AstNode, value: Any) -> list[AstNode]:
        if isinstance(node, Bind):
            return [node.result]
        if isinstance(node, FunctionCall) and node.function in ("_&&_", "_||_"):
            return self.logical_parts(node, value)
        if (
            isinstance(node, FunctionCall)
            and node.function == "!_"
            and isinstance(node.args[0], (FunctionCall, Comprehension, Bind))
        ):
            inner = node.args[0]
            if not isinstance(inner, FunctionCall) or inner.function in ("_&&_", "_||_", "!_"):
                return [inner]
        if isinstance(node, FunctionCall) and node.function == "_?_:_":
            condition = self.value(node.args[0])
            if type(condition) is bool:
                return [node.args[1] if condition else node.args[2]]
            return [node.args[0]]
        if isinstance(node, Comprehension) and node.macro == "all" and value is False:
            assert isinstance(node.step, FunctionCall)
            return [node.step.args[1]]
        if type(value) is CelError:
            return self.failed_part(node)
        return []

    def logical_parts(self, node: FunctionCall, value: Any) -> list[AstNode]:
        """The operand that decided alone, or all of them."""
        seen = [(arg, self.value(arg)) for arg in node.args]
        decisive = node.function == "_||_"
        if value is decisive:
            return [next(arg for arg, v in seen if v is decisive)]
        if type(value) is CelError:
            return [arg for arg, v in seen if type(v) is CelError][:1]
        return [arg for arg, v in seen if v is not _NEVER]

    def failed_part(self, node: AstNode) -> list[AstNode]:
        """The innermost sub-expression that fails; selections are told as a whole."""
        if isinstance(node, (Ident, Select)) or (
            isinstance(node, FunctionCall) and node.function in ("_[_]", "_[?_]", "_?._")
        ):
            return []
        return [child for child in node.children() if type(self.value(child)) is CelError][:1]

    def add(self, node: AstNode, value: Any) -> None:
        if value is _NEVER:
            return
        shown_value = CelRuntimeError.of(value) if type(value) is CelError else value
        seen = []
        for child in self.looked_at(node):
            child_value = self.value(child)
            if child_value is not _NEVER and child.constant is NOT_CONSTANT and type(child_value) is not CelError:
                seen.append(Seen(self.source(child), child_value))
        self.reasons.append(
            MatchReason(self.source(node), shown_value, tuple(_once(seen)), node.start, node.end, self.mismatch(node))
        )

    def mismatch(self, node: AstNode) -> str:
        """In words, if the node compares values that are never equal and have no order."""
        if not isinstance(node, FunctionCall) or node.function not in _COMPARISONS or len(node.args) != 2:
            return ""
        sides = [(self.source(arg), self.value(arg)) for arg in node.args]
        kinds = [type_name(value) for _, value in sides if value is not _NEVER and type(value) is not CelError]
        if len(kinds) != 2 or kinds[0] == kinds[1] or set(kinds) <= _NUMBERS:
            return ""
        (left, left_value), (right, right_value) = sides
        other = _described(right_value) if right == shown(right_value) else f"{right}, {_described(right_value)}"
        return f"{left} is {_described(left_value)}, compared with {other}"

    def looked_at(self, node: AstNode) -> Iterable[AstNode]:
        """The largest parts below whose values tell something."""
        if isinstance(node, Comprehension):
            return [node.range]
        if isinstance(node, Select) and node.test_only:
            return []
        if isinstance(node, FunctionCall) and node.function not in ("_[_]", "_[?_]", "_?._"):
            return [self.telling(child) for child in node.children()]
        return []

    def telling(self, node: AstNode) -> AstNode:
        """Below `x.compareTo(...)` and the like, the value of x says more than -1."""
        if (
            isinstance(node, FunctionCall)
            and node.target is not None
            and node.function in ("compareTo", "size", "value")
        ):
            return node.target
        return node

    def source(self, node: AstNode) -> str:
        return " ".join(self.text[node.start : node.end].split()) or "expression"


_NEVER = object()
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_NUMBERS = frozenset({"int", "uint", "double"})
_KIND_WORDS = {
    "string": "the string",
    "int": "the number",
    "uint": "the number",
    "double": "the number",
    "bool": "the boolean",
    "kubernetes.Semver": "the version",
    "kubernetes.Quantity": "the quantity",
}


def _described(value: Any) -> str:
    kind = type_name(value)
    return f"{_KIND_WORDS.get(kind, f'of type {kind},')} {shown(value)}"


def _once(seen: list[Seen]) -> list[Seen]:
    out: list[Seen] = []
    for item in seen:
        if all(item.expression != other.expression for other in out):
            out.append(item)
    return out


def missing_names(program: Program, device: CelDevice) -> list[Missing]:
    """Attributes and capacities that the expression names and the device lacks, each with the nearest that is there."""
    out: list[Missing] = []
    for kind, domain, name in referenced_names(program):
        published = device.attributes if kind == "attributes" else device.capacity
        if domain in published and name and name not in published[domain]:
            out.append(_missing_name(kind, domain, name, device))
        elif domain not in published:
            out.append(_missing_domain(kind, domain, name, published))
    return list(dict.fromkeys(out))


Published = Mapping[str, Mapping[str, Any]]


def _missing_domain(kind: str, domain: str, name: str, published: Published) -> Missing:
    near = _closest(domain, published)
    if not near and name:
        near = next((each for each in sorted(published) if name in published[each]), "")
    what = f'device.{kind}["{domain}"]'
    return Missing(what, (kind, domain, ""), f'"{near}"' if near else "", _likeness(domain, near))


def _missing_name(kind: str, domain: str, name: str, device: CelDevice) -> Missing:
    """The user may have written an attribute and meant a capacity, or the other way round."""
    what, parts = f'device.{kind}["{domain}"].{name}', (kind, domain, name)
    published, others = device.attributes, device.capacity
    other_kind = "capacity"
    if kind == "capacity":
        published, others, other_kind = others, published, "attributes"
    if near := _closest(name, published[domain]):
        return Missing(what, parts, f"`{near}`", _likeness(name, near))
    if near := _closest(name, others.get(domain, ())):
        return Missing(what, parts, f'device.{other_kind}["{domain}"].{near}', _likeness(name, near))
    elsewhere = next((each for each in sorted(published) if name in published[each]), "")
    return Missing(what, parts, f'"{elsewhere}" has `{name}`' if elsewhere else "")


@lru_cache(maxsize=64)
def referenced_names(program: Program) -> tuple[tuple[str, str, str], ...]:
    """(attributes or capacity, domain, id or "") wherever an expression names them literally."""
    longest: dict[tuple[str, str, str], None] = {}
    for node in nodes(program.root):
        if not (
            isinstance(node, Select) or (isinstance(node, FunctionCall) and node.function in ("_[_]", "_[?_]", "_?._"))
        ):
            continue
        chain = chain_of(node)
        keys = [step.field if step.index is None else step.index.constant for step in chain.steps]
        if not (isinstance(chain.base, Ident) and chain.base.type.name == "kubernetes.DRADevice") or len(keys) < 2:
            continue
        if keys[0] in ("attributes", "capacity") and type(keys[1]) is str:
            name = keys[2] if len(keys) > 2 and type(keys[2]) is str else ""
            longest[(keys[0], keys[1], name)] = None
    return tuple(key for key in longest if key[2] or not any(k[:2] == key[:2] and k[2] for k in longest))


def _closest(name: str, known: Iterable[str]) -> str:
    candidates = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    return candidates[found[0]] if found else ""


def _likeness(name: str, near: str) -> float:
    return difflib.SequenceMatcher(None, name.lower(), near.lower()).ratio() if near else 0.0


def shown(value: Any, depth: int = 0) -> str:
    """A value as a person writes it; what is large or deep is cut short."""
    if isinstance(value, CelRuntimeError):
        return f"an error: {value.message}"
    if type(value) is str:
        return f'"{value}"' if len(value) <= 200 else f'"{value[:200]}..."'
    if type(value) is bool:
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)) and depth > 2:
        return "..."
    if isinstance(value, (list, tuple)):
        items = [shown(item, depth + 1) for item in value[:16]]
        return f"[{', '.join(items)}{', ...' if len(value) > 16 else ''}]"
    if isinstance(value, dict):
        parts = [f"{shown(k) if type(k) is str else k}: {shown(v, depth + 1)}" for k, v in list(value.items())[:16]]
        return f"{{{', '.join(parts)}{', ...' if len(value) > 16 else ''}}}"
    if value is None:
        return "null"
    if type_name(value) == "kubernetes.Quantity":
        return f'quantity("{value}")'
    if type_name(value) == "kubernetes.Semver":
        return f'semver("{value}")'
    return str(value)
