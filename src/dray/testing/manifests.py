"""Manifests as a test gives them: a file, YAML text, a document, or `kind/name` for an object that is there."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dray.api import scheme

Document = dict[str, Any]
Manifest = str | Path | Document

_OF_FILES = (".yaml", ".yml", ".json")
_REFERENCE = re.compile(r"([a-z]+)/([a-z0-9][a-z0-9.-]*)")


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """Where the API server has an object."""

    row: scheme.Resource
    version: str
    namespace: str
    name: str

    @classmethod
    def of(cls, document: Document, namespace: str) -> "ObjectPath":
        try:
            group, _, version = document["apiVersion"].rpartition("/")
            kind, metadata = document["kind"], document["metadata"]
            name = metadata["name"]
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"an object needs apiVersion, kind and metadata.name: {document}") from None
        try:
            row = scheme.by_kind(kind, group)
        except KeyError:
            raise ValueError(f"{kind} {name}: the API server knows no {kind} of {document['apiVersion']}") from None
        return cls(row, version, metadata.get("namespace", namespace) if row.namespaced else "", name)

    @classmethod
    def parse(cls, text: str, namespace: str) -> "ObjectPath":
        """`pod/NAME`, `deviceclass/NAME`, with any name of the kind that kubectl knows."""
        found = _REFERENCE.fullmatch(text)
        row = scheme.find(found[1]) if found is not None else None
        if found is None or row is None:
            raise ValueError(f"{text!r}: neither a file with {', '.join(_OF_FILES)} nor kind/name of an object")
        return cls(row, row.versions[0].name, namespace if row.namespaced else "", found[2])

    @property
    def url(self) -> str:
        return self.row.path(self.namespace, self.name, version=self.version)

    def __str__(self) -> str:
        return f"{self.row.kind.lower()}/{self.name}"


def documents_of(manifests: Iterable[Manifest]) -> list[Document]:
    """What files, texts of several lines and documents hold, in order."""
    return [document for manifest in manifests for document in _documents(manifest)]


def _documents(manifest: Manifest) -> list[Document]:
    if isinstance(manifest, dict):
        return [manifest]
    is_text = isinstance(manifest, str) and "\n" in manifest
    text = str(manifest) if is_text else Path(manifest).read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def paths_of(manifests: Iterable[Manifest], namespace: str) -> Iterator[ObjectPath]:
    for manifest in manifests:
        if isinstance(manifest, str) and "\n" not in manifest and Path(manifest).suffix not in _OF_FILES:
            yield ObjectPath.parse(manifest, namespace)
        else:
            yield from (ObjectPath.of(document, namespace) for document in _documents(manifest))
