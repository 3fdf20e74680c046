"""Reads manifest files: YAML or JSON, one document or many; a List is replaced by its items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dray.api.errors import DecodeError
from dray.api.jsontext import MAX_BYTES
from dray.api.yamltext import Lines, read_yaml

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file, as written, with the place of everything in it."""

    document: Document
    lines: Lines
    duplicate_fields: tuple[str, ...]

    @property
    def kind(self) -> str:
        return str(self.document.get("kind") or "")

    @property
    def api_version(self) -> str:
        return str(self.document.get("apiVersion") or "")


def read_manifests(data: bytes, *, max_bytes: int = MAX_BYTES) -> Iterator[Manifest]:
    """The objects of a file in their order; empty documents are passed over, Lists are replaced by their items."""
    if len(data) > max_bytes:
        raise DecodeError(f"{len(data)} bytes are too large: the limit is {max_bytes}")
    for document in read_yaml(data):
        if document.value is None:
            continue
        if not isinstance(document.value, dict):
            raise DecodeError("expected an object with apiVersion and kind", line=document.lines.line)
        yield from _opened(Manifest(document.value, document.lines, document.duplicate_fields))


def _opened(manifest: Manifest) -> Iterator[Manifest]:
    items = manifest.document.get("items")
    if not manifest.kind.endswith("List") or not isinstance(items, list):
        yield manifest
        return
    lines = manifest.lines.keys.get("items", manifest.lines)
    for i, item in enumerate(items):
        line = lines.items[i] if i < len(lines.items) else lines
        if not isinstance(item, dict):
            raise DecodeError("expected an object with apiVersion and kind", path=f"items[{i}]", line=line.line)
        prefix = f"items[{i}]."
        twice = tuple(p.removeprefix(prefix) for p in manifest.duplicate_fields if p.startswith(prefix))
        yield Manifest(_as_item(manifest, item), line, twice)


def _as_item(manifest: Manifest, item: Document) -> Document:
    """Items of a typed list may omit apiVersion and kind."""
    if manifest.kind == "List":
        return item
    said = {"apiVersion": manifest.api_version, "kind": manifest.kind.removesuffix("List")}
    return {**said, **item}
