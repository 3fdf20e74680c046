"""Reading other objects while deciding about one.

Admission and authorization need namespaces, quotas, classes, pods. They read documents through `Objects`; who assembles
the server decides whether a cache or the store itself answers.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from dray.api.scheme import Resource, by_plural
from dray.apiserver.attributes import Document
from dray.apiserver.keys import namespace_prefix, object_key, resource_prefix
from dray.apiserver.stored import Stored
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


class Cache(Protocol):
    def get(self, namespace: str, name: str) -> Stored | None: ...

    def list(self, namespace: str = "") -> Iterator[Stored]: ...


class Caches(Protocol):
    """The server's copies in memory."""

    def cache(self, row: Resource) -> Cache: ...

    async def fresh(self) -> int:
        """Waits until the copies have what the store has."""
        ...


class CachedObjects:
    """Objects from the server's caches. What is not there is asked for again once the cache has caught up."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        row = by_plural(group, plural)
        if row is None:
            return None
        found = self._caches.cache(row).get(namespace, name)
        if found is None:
            await self._caches.fresh()
            found = self._caches.cache(row).get(namespace, name)
        return found.document() if found else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        row = by_plural(group, plural)
        if row is None:
            return []
        await self._caches.fresh()
        return [stored.document() for stored in self._caches.cache(row).list(namespace)]
