"""Objects read from the store each time, for tests of parts that need no caches."""

import builtins
from typing import Any

from dray.apiserver.watch.stored_object import Stored, document_of, namespace_prefix, object_key, resource_prefix
from dray.store.interface import Store

Document = dict[str, Any]


class StoredObjects:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        entry = await self._store.get(object_key(group, plural, namespace, name))
        return document_of(entry) if entry else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        prefix = namespace_prefix(group, plural, namespace) if namespace else resource_prefix(group, plural)
        page = await self._store.list(prefix)
        return [document_of(entry) for entry in page.entries]

    async def stored(self, group: str, plural: str, namespace: str) -> builtins.list[Stored]:
        prefix = namespace_prefix(group, plural, namespace)
        entries = (await self._store.list(prefix)).entries
        return [Stored(entry.key, namespace, entry.value, entry.revision, entry.created, 0) for entry in entries]

    async def look(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        return await self.get(group, plural, namespace, name)

    async def look_at_all(self, group: str, plural: str) -> builtins.list[Document]:
        return await self.list(group, plural)
