"""Shorthands that people write and the API does not take, with what to write instead.

The KEPs' own examples have them: a selector as a bare string, attributes and capacities as bare values. Texts without
quotes that YAML reads as a boolean or a number are told here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.errors import DecodeError
from dray.api.manifests import Manifest, read_manifests
from dray.api.schemas import StructSchema, TypeRef, struct

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShorthandHint:
    path: str
    message: str


def repair(document: Document, schema: StructSchema) -> tuple[Document, list[ShorthandHint]]:
    """The document with shorthands written out, and a hint for each; the document itself if it has none."""
    hints: list[ShorthandHint] = []
    made = _struct(document, schema.name, "", hints)
    return (made, hints) if hints else (document, [])


def _value(value: Any, ref: TypeRef, path: str, hints: list[ShorthandHint]) -> Any:
    if ref.shape == "struct":
        return _struct(value, ref.name, path, hints)
    if ref.shape == "scalar":
        return _quoted(value, path, hints) if ref.name == "string" else value
    if ref.item is None:
        return value
    if ref.shape == "list" and isinstance(value, list):
        return [_value(inner, ref.item, f"{path}[{i}]", hints) for i, inner in enumerate(value)]
    if ref.shape == "map" and isinstance(value, dict):
        return {key: _value(inner, ref.item, f"{path}[{key}]", hints) for key, inner in value.items()}
    return value


def _quoted(value: Any, path: str, hints: list[ShorthandHint]) -> Any:
    """A name such as `no` or `1e3` without quotes is a boolean or a number in YAML."""
    if not isinstance(value, bool | int | float):
        return value
    words = "y, yes, on and true" if value else "n, no, off and false"
    meaning = f"a boolean, as YAML reads {words}" if isinstance(value, bool) else "a number"
    hints.append(ShorthandHint(path, f"{_shown(value)} is {meaning}: write it in quotes"))
    return _shown(value)


def _struct(value: Any, name: str, path: str, hints: list[ShorthandHint]) -> Any:
    if isinstance(value, dict):
        fields = struct(name).fields
        return {
            key: _value(inner, fields[key].type, f"{path}.{key}" if path else key, hints) if key in fields else inner
            for key, inner in value.items()
        }
    meant = next(_meant(value, name.rpartition(".")[2]), None)
    if meant is None:
        return value
    hints.append(ShorthandHint(path, f"write {_shown(meant)} instead of {_shown(value)}"))
    return meant


def _meant(value: Any, bare: str) -> Iterator[Document]:
    if bare == "CELDeviceSelector" and isinstance(value, str):
        yield {"expression": value}
    elif bare == "DeviceAttribute" and isinstance(value, bool | int | str):
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
        yield {kind: value}
    elif bare in ("DeviceCapacity", "Counter") and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield {"value": str(value)}


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- mistakes in the text itself -------------------------------------------------------------------------------------

_MAX_TEXT_HINTS = 50
_ELLIPSES = frozenset(("...", ". . .", "…", "[...]"))


def read_with_hints(data: bytes) -> tuple[list[Manifest], list[tuple[int, str]]]:
    """The objects of a file, and what is wrong with its YAML, by line; an ellipsis or a shifted `---` is read over."""
    said: list[tuple[int, str]] = []
    for _ in range(_MAX_TEXT_HINTS):
        manifests: list[Manifest] = []
        try:
            manifests.extend(read_manifests(data))
            return manifests, said
        except DecodeError as error:
            mended = _mended(data, error.line)
            if mended is None:
                return list(_until_it_breaks(data)), [*said, (error.line or 1, error.message)]
            data, line, message = mended
            said.append((line, message))
    return list(_until_it_breaks(data)), said


def _until_it_breaks(data: bytes) -> Iterator[Manifest]:
    try:
        yield from read_manifests(data)
    except DecodeError:
        return


def _mended(data: bytes, line: int | None) -> tuple[bytes, int, str] | None:
    """The text without the mistake at or shortly before `line`; None if there is none that we know."""
    if line is None:
        return None
    lines = data.split(b"\n")
    for number in range(min(line, len(lines)), max(line - 4, 0), -1):
        text = lines[number - 1].decode("utf-8", "replace")
        if text.strip() in _ELLIPSES:
            lines[number - 1] = b""
            return b"\n".join(lines), number, f"{text.strip()} is not YAML: leave out what you do not say"
        if text.strip() == "---" and text != "---":
            lines[number - 1] = b"---"
            return b"\n".join(lines), number, "--- between documents has to start in the first column"
    return None
