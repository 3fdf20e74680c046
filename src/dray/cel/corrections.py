"""Edits after which an expression may select a device that it refuses now: names that are published, values that the device has,
conditions that are left out. Whether one selects the device is for the caller to try."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dray.cel.ast import AstNode, FunctionCall, Literal
from dray.cel.constant_folding import nodes
from dray.cel.device import CelDevice
from dray.cel.explain import MatchExplanation, MatchReason, Missing, explain, shown
from dray.cel.program import Program
from dray.cel.values import type_name

NAME, TYPE, VALUE, LEFT_OUT = range(4)
# Functions around the text of a value, and the type of that value.
_WRITTEN_IN = {"quantity": "kubernetes.Quantity", "semver": "kubernetes.Semver"}


@dataclass(frozen=True, slots=True)
class Correction:
    """An expression with one edit. `rank` is NAME, TYPE, VALUE or LEFT_OUT; of values, larger ones come first."""

    rank: int
    text: str
    amount: float = 0.0

    @property
    def is_of_another_type(self) -> bool:
        return self.rank == TYPE

    @property
    def order(self) -> tuple[int, float]:
        return (self.rank, -self.amount)


def corrections(program: Program, device: CelDevice) -> list[Correction]:
    why = explain(program, device)
    found = [*_renamed(program, why), *_other_values(program, why), *_without_conditions(program, why)]
    return sorted(found, key=lambda correction: correction.order)


def _renamed(program: Program, why: MatchExplanation) -> Iterator[Correction]:
    """All names that are not published become the nearest that are."""
    text = program.text
    for missing in why.missing:
        if missing.nearest:
            text = _with_name(text, missing)
    if text != program.text:
        yield Correction(NAME, text)


def _with_name(text: str, missing: Missing) -> str:
    domain = re.fullmatch(r'device\.(?:attributes|capacity)\["([^"]*)"\]', missing.what)
    if domain:
        return re.sub(rf"""(["']){re.escape(domain[1])}\1""", lambda _: missing.nearest, text)
    name = missing.what.rpartition(".")[2]
    if missing.nearest.startswith("`"):
        return re.sub(rf"\b{re.escape(name)}\b", missing.nearest.strip("`"), text)
    return text.replace(missing.what, missing.nearest) if missing.nearest.startswith("device.") else text


def _other_values(program: Program, why: MatchExplanation) -> Iterator[Correction]:
    functions = {
        id(arg): node.function
        for node in nodes(program.root)
        if isinstance(node, FunctionCall)
        for arg in (node.args[1:] if node.function == "_[_]" else node.args)
    }
    keys = {
        id(node.args[1]) for node in nodes(program.root) if isinstance(node, FunctionCall) and node.function == "_[_]"
    }
    for literal in nodes(program.root):
        if not isinstance(literal, Literal) or id(literal) in keys:
            continue
        for reason in why.reasons:
            if reason.start <= literal.start and literal.end <= reason.end:
                for rank, written, amount in _values_for(literal, functions.get(id(literal), ""), reason):
                    edited = program.text[: literal.start] + written + program.text[literal.end :]
                    yield Correction(rank, edited, amount)


def _values_for(literal: Literal, function: str, reason: MatchReason) -> Iterator[tuple[int, str, float]]:
    for seen in reason.seen:
        if function in _WRITTEN_IN:
            if type_name(seen.value) == _WRITTEN_IN[function]:
                yield VALUE, f'"{seen.value}"', float(getattr(seen.value, "nanos", 0))
        elif type(seen.value) is type(literal.value) and not isinstance(literal.value, bool):
            yield VALUE, _written(seen.value), float(seen.value) if isinstance(seen.value, (int, float)) else 0.0
        elif type(seen.value) is int and isinstance(literal.value, str) and re.fullmatch(r"-?\d+", literal.value):
            yield TYPE, literal.value, 0.0
        elif type(seen.value) is str and type(literal.value) is int:
            yield TYPE, f'"{literal.value}"', 0.0
            yield VALUE, _written(seen.value), 0.0
        elif type(seen.value) is bool and literal.value in ("true", "false"):
            yield TYPE, literal.value, 0.0


def _written(value: Any) -> str:
    return json.dumps(value) if type(value) is str else shown(value)


def _without_conditions(program: Program, why: MatchExplanation) -> Iterator[Correction]:
    """The conditions that do not speak against the device, if there are any."""
    conditions = list(_conditions(program.root))
    left = [
        part
        for part in conditions
        if not any(part.start <= reason.start and reason.end <= part.end for reason in why.reasons)
    ]
    if left and len(left) < len(conditions):
        yield Correction(LEFT_OUT, " && ".join(_in_brackets(program.text, part) for part in left))


def _conditions(node: AstNode) -> Iterator[AstNode]:
    if isinstance(node, FunctionCall) and node.function == "_&&_":
        for arg in node.args:
            yield from _conditions(arg)
    else:
        yield node


def _in_brackets(text: str, node: AstNode) -> str:
    written = text[node.start : node.end]
    is_loose = isinstance(node, FunctionCall) and node.function in ("_||_", "_?_:_")
    return f"({written})" if is_loose else written
