"""Reading other objects while deciding about one.

Admission and authorization need namespaces, quotas, classes, pods. They read documents through `Objects`; who assembles
the server decides whether a cache or the store itself answers.
"""

from typing import Protocol

import msgspec

from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.stored_object import (
    namespace_prefix,
    object_key,
    resource_prefix,
)
from dray.store.interface import Entry, Store

_decoder = msgspec.json.Decoder(Document)


class Objects(Protocol):
    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None: ...

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]: ...


def document_of(entry: Entry) -> Document:
    """The stored document, with its revision put in."""
    document = _decoder.decode(entry.value)
    document.setdefault("metadata", {})["resourceVersion"] = str(entry.revision)
    return document


class StoredObjects:
    """Objects read from the store each time: never stale."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        entry = await self._store.get(object_key(group, plural, namespace, name))
        return document_of(entry) if entry else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        prefix = namespace_prefix(group, plural, namespace) if namespace else resource_prefix(group, plural)
        page = await self._store.list(prefix)
        return [document_of(entry) for entry in page.entries]
