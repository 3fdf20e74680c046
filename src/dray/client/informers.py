"""One informer per kind and selection, shared by every component of a process."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

from dray.client.informer import Informer
from dray.client.kinds import ApiObject, Kind
from dray.client.rest import Client

T = TypeVar("T", bound=ApiObject)


class Informers:
    """Components ask for what they need, then the owner starts all and waits: `start()`, `await synced()`."""

    def __init__(self, client: Client, *, resync_s: float = 0.0) -> None:
        self.client = client
        self._resync_s = resync_s
        self._informers: dict[tuple[str, str, str, str, type], Informer[Any]] = {}
        self._started = False

    def of(
        self, kind: Kind[T], *, namespace: str = "", field_selector: str = "", label_selector: str = ""
    ) -> Informer[T]:
        identity = (kind.path(), namespace, field_selector, label_selector, kind.type)
        informer = self._informers.get(identity)
        if informer is None:
            informer = Informer(
                self.client,
                kind,
                namespace=namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                resync_s=self._resync_s,
            )
            self._informers[identity] = informer
            if self._started:
                informer.start()
        return cast("Informer[T]", informer)

    def start(self) -> None:
        self._started = True
        for informer in self._informers.values():
            informer.start()

    async def synced(self) -> None:
        await asyncio.gather(*(informer.synced() for informer in self._informers.values()))

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._informers.values())

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))
