"""JSON paths as printer columns, selectable fields and the scale subresource have them: `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z0-9_$\-\\.]+?(?=[.\[]|$))
      | \[(?P<index>-?\d+|\*)\]
      | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
      | \[\?\(\s*@\.?(?P<key>[A-Za-z0-9_.\-]+)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|-?\d+|true|false)\s*\)\]
    """,
    re.VERBOSE,
)
MAX_LENGTH = 1024


class BadPath(ValueError):
    """Not a JSON path of the kind that is understood here."""


@dataclass(frozen=True, slots=True)
class PathStep:
    field: str = ""
    index: int | None = None
    everything: bool = False
    key: str = ""
    equal: bool = True
    wanted: str = ""


@lru_cache(maxsize=2048)
def parsed(path: str) -> tuple[PathStep, ...]:
    """Raises BadPath."""
    if len(path) > MAX_LENGTH or not path.startswith((".", "[")):
        raise BadPath("must be a simple json path starting with .")
    steps: list[PathStep] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or found.end() == at:
            raise BadPath(f"unrecognized character in action: {path[at : at + 20]!r}")
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> PathStep:
    if (name := found["field"]) is not None:
        return PathStep(field=name.replace("\\.", "."))
    if (quoted := found["quoted"]) is not None:
        return PathStep(field=quoted.replace("\\", ""))
    if (index := found["index"]) is not None:
        return PathStep(everything=True) if index == "*" else PathStep(index=int(index))
    return PathStep(key=found["key"], equal=found["operator"] == "==", wanted=found["value"].strip("\"'"))


def read(document: Any, path: str) -> list[Any]:
    """All values at the path; none if the path leads nowhere."""
    values = [document]
    for step in parsed(path):
        values = [inner for value in values for inner in _below(value, step)]
        if not values:
            return []
    return values


def _below(value: Any, step: PathStep) -> list[Any]:
    if step.field:
        return [value[step.field]] if isinstance(value, dict) and step.field in value else []
    if not isinstance(value, list):
        return list(value.values()) if step.everything and isinstance(value, dict) else []
    if step.everything:
        return value
    if step.index is not None:
        return [value[step.index]] if -len(value) <= step.index < len(value) else []
    return [
        entry
        for entry in value
        if isinstance(entry, dict) and (_text(_at(entry, step.key)) == step.wanted) == step.equal
    ]


def _at(entry: Any, key: str) -> Any:
    for name in key.split("."):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def first(document: Any, path: str) -> Any:
    found = read(document, path)
    return found[0] if found else None


def with_value(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of the document with the value at a path of plain fields."""
    name, *rest = (step.field for step in parsed(path))
    return _put(document, name, rest, value)


def _put(document: dict[str, Any], name: str, rest: list[str], value: Any) -> dict[str, Any]:
    if not rest:
        return {**document, name: value}
    inner = document.get(name)
    return {**document, name: _put(inner if isinstance(inner, dict) else {}, rest[0], rest[1:], value)}
