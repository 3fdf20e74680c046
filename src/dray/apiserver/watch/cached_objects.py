"""Other objects, for admission and tokens: read from the caches, as new as the store."""

from __future__ import annotations

from typing import Any

from dray.api.scheme import by_plural
from dray.apiserver.core import Core

Document = dict[str, Any]


class CachedObjects:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        row = by_plural(group, plural)
        assert row is not None, f"{group}/{plural} is not served"
        await self._core.fresh()
        stored = self._core.cache(row).get(namespace, name)
        return stored.document() if stored else None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        row = by_plural(group, plural)
        assert row is not None, f"{group}/{plural} is not served"
        await self._core.fresh()
        return [stored.document() for stored in self._core.cache(row).list(namespace)]
