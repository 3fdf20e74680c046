"""One informer per kind and selection, shared by every component of a process."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, cast

from dray.client.informer import Informer
from dray.client.kinds import ApiObject, Kind
from dray.client.rest import Client

T = TypeVar("T", bound=ApiObject)


class Informers:
    """Components get their informers with `of`; the owner then calls `start()` and `await synced()`."""

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

    def share(self) -> Informers:
        """A view for one component: the same informers, but `synced` waits only for those that it asked for.

        A kind that cannot be read then delays only the components that need it.
        """
        return _Share(self)

    async def synced(self) -> None:
        await asyncio.gather(*(informer.synced() for informer in self._informers.values()))

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._informers.values())

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))


class _Share(Informers):
    def __init__(self, whole: Informers) -> None:
        super().__init__(whole.client)
        self._whole = whole

    def of(
        self, kind: Kind[T], *, namespace: str = "", field_selector: str = "", label_selector: str = ""
    ) -> Informer[T]:
        informer = self._whole.of(
            kind, namespace=namespace, field_selector=field_selector, label_selector=label_selector
        )
        self._informers[kind.path(), namespace, field_selector, label_selector, kind.type] = informer
        return informer

    def start(self) -> None:
        self._whole.start()

    async def stop(self) -> None:
        """The owner stops them."""
