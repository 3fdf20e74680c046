"""How admission, authorization and tokens read other objects: namespaces, quotas, classes, pods.

They read documents through `Objects`. The server answers from its caches, after waiting until these are as new as the store.
"""

from typing import Protocol

import msgspec

from dray.api.scheme import by_plural
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import KindCache, KindCaches
from dray.apiserver.watch.store_follower import StoreFollower
from dray.store.interface import Entry

_decoder = msgspec.json.Decoder(Document)


class Objects(Protocol):
    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None: ...

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]: ...


def document_of(entry: Entry) -> Document:
    """The stored document, with its revision put in."""
    document = _decoder.decode(entry.value)
    document.setdefault("metadata", {})["resourceVersion"] = str(entry.revision)
    return document


class CachedObjects:
    """Objects read from the caches, as new as the store."""

    def __init__(self, follower: StoreFollower, caches: KindCaches) -> None:
        self._follower = follower
        self._caches = caches

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        cache = await self._fresh_cache(group, plural)
        stored = cache.get(namespace, name)
        return stored.document() if stored else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        cache = await self._fresh_cache(group, plural)
        return [stored.document() for stored in cache.list(namespace)]

    async def _fresh_cache(self, group: str, plural: str) -> KindCache:
        row = by_plural(group, plural)
        assert row is not None, f"{group}/{plural} is not served"
        await self._follower.fresh()
        return self._caches.of(row)
