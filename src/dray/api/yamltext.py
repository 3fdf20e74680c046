"""YAML texts to documents, read as Kubernetes tools read them, with the line of every value.

Built on the parser's events and without recursion, so that hostile nesting costs nothing; aliases are expanded only up to
a limit. Scalars resolve to what JSON has: strings, numbers, booleans, null. Times stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from dray.api.errors import DecodeError

MAX_NODES = 2_000_000
MAX_DEPTH = 500

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)", re.ASCII).fullmatch
_BASED = re.compile(r"([-+]?)0(b[01_]+|o[0-7_]+|x[0-9a-fA-F_]+|[0-7_]+)", re.ASCII).fullmatch
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)?(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?", re.ASCII).fullmatch
_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII).fullmatch
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **{case(word): True for word in ("true", "yes", "y", "on") for case in (str.lower, str.capitalize, str.upper)},
    **{case(word): False for word in ("false", "no", "n", "off") for case in (str.lower, str.capitalize, str.upper)},
}


@dataclass(slots=True)
class Lines:
    """The line on which a value begins, and the lines of the values inside it."""

    line: int
    keys: dict[str, Lines] = field(default_factory=dict)
    items: list[Lines] = field(default_factory=list)

    def at(self, path: str) -> int:
        """The line of a field path such as `spec.devices[0].attributes[a.b/c].int`; of its nearest holder if it is absent."""
        here = self
        while path:
            step = here._step(path)
            if step is None:
                return here.line
            here, path = step
        return here.line

    def _step(self, path: str) -> tuple[Lines, str] | None:
        path = path.removeprefix(".")
        index = re.match(r"\[(\d+)\]", path)
        if index and int(index[1]) < len(self.items):
            return self.items[int(index[1])], path[index.end() :]
        inside = path.removeprefix("[")
        for key in sorted(self.keys, key=len, reverse=True):
            if inside.startswith(key) and (rest := inside[len(key) :])[:1] in ("", ".", "[", "]"):
                return self.keys[key], rest.removeprefix("]")
        # Errors speak of v1 paths; v1beta1 has a level less in requests and a level more in devices.
        if inside.startswith("exactly."):
            return self, inside.removeprefix("exactly.")
        return (self.keys["basic"], inside) if "basic" in self.keys else None


@dataclass(frozen=True, slots=True)
class YamlDocument:
    value: Any
    lines: Lines
    duplicate_fields: tuple[str, ...]
    # Line and name of each key that its map had before.
    duplicate_keys: tuple[tuple[int, str], ...] = ()


def read_yaml(text: str | bytes) -> Iterator[YamlDocument]:
    """Every document of a YAML text (JSON is YAML, too); DecodeError where it is malformed."""
    text = _utf8(text) if isinstance(text, bytes) else text
    try:
        yield from _Builder().documents(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "malformed"
        if message.startswith("did not find expected"):
            message += "; check the indentation here and above"
        raise DecodeError(
            f"invalid YAML: {message}",
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
        ) from None
    except yaml.YAMLError as error:
        raise DecodeError(f"invalid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise DecodeError("the YAML is nested too deeply") from None


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError("not UTF-8", line=data[: error.start].count(b"\n") + 1) from None


@dataclass(slots=True)
class _Open:
    """A list or map that is not complete yet."""

    value: Any
    lines: Lines
    anchor: str | None
    path: str
    first_node: int
    key: str | None = None
    key_line: int = 0
    awaits_key: bool = False


class _Builder:
    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, Lines, int]] = {}
        self.duplicates: list[str] = []
        self.duplicate_keys: list[tuple[int, str]] = []
        self.nodes = 0
        self.done: tuple[Any, Lines] | None = None

    def documents(self, events: Any) -> Iterator[YamlDocument]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors, self.duplicates, self.duplicate_keys, self.done = {}, [], [], None
            elif isinstance(event, yaml.DocumentEndEvent):
                value, lines = self.done or (None, Lines(event.start_mark.line + 1 if event.start_mark else 1))
                yield YamlDocument(value, lines, tuple(self.duplicates), tuple(self.duplicate_keys))
            else:
                self.node(event)

    def node(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self.count(1, line)
            value = _scalar(event, line)
            if event.anchor:
                self.anchors[event.anchor] = (value, Lines(line), 1)
            self.put(value, Lines(line))
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self.begin(event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.end()
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event, line)

    def begin(self, event: Any, line: int) -> None:
        self.count(1, line)
        if len(self.open) >= MAX_DEPTH:
            raise DecodeError("the YAML is nested too deeply", line=line)
        is_map = isinstance(event, yaml.MappingStartEvent)
        value: Any = {} if is_map else []
        path = self.path_of_next()
        self.open.append(_Open(value, Lines(line), event.anchor, path, self.nodes, awaits_key=is_map))

    def end(self) -> None:
        closed = self.open.pop()
        if closed.anchor:
            self.anchors[closed.anchor] = (closed.value, closed.lines, self.nodes - closed.first_node + 1)
        self.put(closed.value, closed.lines)

    def alias(self, event: Any, line: int) -> None:
        if event.anchor not in self.anchors:
            raise DecodeError(f"invalid YAML: unknown anchor {event.anchor!r}", line=line)
        value, lines, size = self.anchors[event.anchor]
        self.count(size, line)
        self.put(value, lines)

    def count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise DecodeError(f"the YAML holds more than {MAX_NODES} values", line=line)

    def path_of_next(self) -> str:
        if not self.open:
            return ""
        holder = self.open[-1]
        if isinstance(holder.value, list):
            return f"{holder.path}[{len(holder.value)}]"
        return f"{holder.path}.{holder.key}" if holder.path else str(holder.key)

    def put(self, value: Any, lines: Lines) -> None:
        if not self.open:
            self.done = (value, lines)
            return
        holder = self.open[-1]
        if isinstance(holder.value, list):
            holder.value.append(value)
            holder.lines.items.append(lines)
        elif holder.awaits_key:
            holder.key, holder.key_line, holder.awaits_key = key_text(value, lines.line), lines.line, False
        else:
            self.put_field(holder, value, lines)

    def put_field(self, holder: _Open, value: Any, lines: Lines) -> None:
        assert holder.key is not None
        if holder.key == "<<" and isinstance(value, dict):
            for key, inner in value.items():
                holder.value.setdefault(key, inner)
        else:
            if holder.key in holder.value and len(self.duplicates) < 100:
                self.duplicates.append(self.path_of_next())
                self.duplicate_keys.append((holder.key_line, holder.key))
            holder.value[holder.key] = value
            # A finding about a field points at its name, which is where an editor should land.
            holder.lines.keys[holder.key] = Lines(holder.key_line, lines.keys, lines.items)
        holder.key, holder.awaits_key = None, True


def key_text(value: Any, line: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        return "null"
    raise DecodeError("invalid YAML: a map key must be a scalar", line=line)


def _scalar(event: Any, line: int) -> Any:
    text = event.value
    if event.tag in ("!", "tag:yaml.org,2002:str") or (not event.tag and not event.implicit[0]):
        return text
    if event.tag == "tag:yaml.org,2002:binary":
        return "".join(text.split())
    return plain_scalar(text, line)


def plain_scalar(text: str, line: int) -> Any:
    """The value of a scalar without quotes and tag."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first in "+-.0123456789":
        return _number(text, line)
    return text


def _number(text: str, line: int) -> Any:
    if len(text) > 1000:
        return text
    if _INT(text):
        return int(text.replace("_", ""))
    if based := _BASED(text):
        digits = based[2].lower().replace("_", "")
        base = {"b": 2, "o": 8, "x": 16}.get(digits[0], 8)
        whole = int(digits.lstrip("box") or "0", base)
        return -whole if based[1] == "-" else whole
    if _FLOAT(text) and any(c.isdigit() for c in text):
        value = float(text.replace("_", ""))
        if value in (float("inf"), float("-inf")):
            raise DecodeError(f"invalid YAML: number {text} is out of range", line=line)
        return value
    if _NOT_A_NUMBER(text):
        raise DecodeError(f"invalid YAML: {text} is not a number that JSON has", line=line)
    return text
