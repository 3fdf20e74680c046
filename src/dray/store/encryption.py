"""Encrypts values before they reach a store, and decrypts them on the way back: AES-GCM, with the key's name in front, as Kubernetes stores them.

A value is bound to its key in the store, so that the value of one object cannot be passed off as another's. The first provider of a prefix encrypts; all of
them decrypt, so that keys can be changed one after the other: add the new key behind, then move it to the front, write everything again, and remove the
old one. What a provider `identity` stands for is not encrypted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dray.store.errors import Conflict, NotFound, StoreError
from dray.store.interface import Batch, Change, Entry, Operation, Page, Precondition, Put, Store
from dray.store.store_base import StoreBase

PREFIX = b"k8s:enc:"
NONCE_BYTES = 12


class CannotDecrypt(StoreError):
    """A value that no provider can read."""


@dataclass(frozen=True, slots=True)
class AesGcm:
    """One key, by its name."""

    name: str
    secret: bytes

    @property
    def mark(self) -> bytes:
        return PREFIX + f"aesgcm:v1:{self.name}:".encode()

    def encrypt(self, key: str, value: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return self.mark + nonce + AESGCM(self.secret).encrypt(nonce, value, key.encode())

    def decrypt(self, key: str, stored: bytes) -> bytes:
        sealed = stored[len(self.mark) :]
        try:
            return AESGCM(self.secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], key.encode())
        except (InvalidTag, ValueError):
            raise CannotDecrypt(f"{key}: the key {self.name} does not open this value") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """Values as they are."""

    mark = b""

    def encrypt(self, key: str, value: bytes) -> bytes:
        return value

    def decrypt(self, key: str, stored: bytes) -> bytes:
        return stored


Provider = AesGcm | Identity


class EncryptedStore(StoreBase):
    """A store whose values below some prefixes are encrypted. `providers` has one list for each prefix, the writing one first."""

    def __init__(self, inner: Store, providers: Mapping[str, Sequence[Provider]]) -> None:
        self.inner = inner
        # Longer prefixes first: they are the more special ones.
        self._providers = sorted(providers.items(), key=lambda item: -len(item[0]))

    def _providers_of(self, key: str) -> Sequence[Provider]:
        return next((found for prefix, found in self._providers if key.startswith(prefix)), ())

    # --- reading

    def _opened(self, key: str, stored: bytes) -> bytes:
        providers = self._providers_of(key)
        if not providers:
            return stored
        is_sealed = stored.startswith(PREFIX)
        for provider in providers:
            if stored.startswith(provider.mark) and bool(provider.mark) == is_sealed:
                return provider.decrypt(key, stored)
        what = (
            "is encrypted with a key that is not configured"
            if is_sealed
            else "is not encrypted, and identity is no provider"
        )
        raise CannotDecrypt(f"{key}: the value {what}")

    def _entry(self, entry: Entry) -> Entry:
        opened = self._opened(entry.key, entry.value)
        return entry if opened is entry.value else msgspec.structs.replace(entry, value=opened)

    async def get(self, key: str) -> Entry | None:
        entry = await self.inner.get(key)
        return self._entry(entry) if entry is not None else None

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        return {key: self._entry(entry) for key, entry in (await self.inner.get_many(keys)).items()}

    async def list(self, prefix: str, *, limit: int = 0, start_after: str = "", revision: int = 0) -> Page:
        page = await self.inner.list(prefix, limit=limit, start_after=start_after, revision=revision)
        return Page(tuple(map(self._entry, page.entries)), page.revision, page.remaining)

    async def pages(self, prefix: str) -> AsyncGenerator[Page, None]:
        async with contextlib.aclosing(self.inner.pages(prefix)) as pages:
            async for page in pages:
                yield Page(tuple(map(self._entry, page.entries)), page.revision, page.remaining)

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Batch, None]:
        batches = self.inner.watch(prefix, after_revision)
        try:
            async for batch in batches:
                yield Batch(batch.revision, tuple(map(self._change, batch.changes))) if batch.changes else batch
        finally:
            await batches.aclose()

    def _change(self, change: Change) -> Change:
        if not self._providers_of(change.key):
            return change
        value = self._opened(change.key, change.value) if change.value is not None else None
        previous = self._opened(change.key, change.previous) if change.previous is not None else None
        return msgspec.structs.replace(change, value=value, previous=previous)

    # --- writing

    async def commit(self, operations: Sequence[Operation], preconditions: Sequence[Precondition] = ()) -> int:
        return await self.inner.commit([self._sealed(each) for each in operations], preconditions)

    def _sealed(self, operation: Operation) -> Operation:
        providers = self._providers_of(operation.key)
        if not providers or not isinstance(operation, Put):
            return operation
        return msgspec.structs.replace(operation, value=providers[0].encrypt(operation.key, operation.value))

    async def rewrite(self) -> int:
        """Writes again what is not encrypted as it would be now; answers how many values."""
        written = 0
        for prefix, providers in self._providers:
            for entry in (await self.inner.list(prefix)).entries:
                if self._providers_of(entry.key) is not providers or _is_sealed_by(providers[0], entry.value):
                    continue
                try:
                    await self.update(entry.key, self._opened(entry.key, entry.value), entry.revision)
                    written += 1
                except (Conflict, NotFound):
                    continue  # another server wrote it just now
        return written

    # --- the rest is the store's own

    async def current_revision(self) -> int:
        return await self.inner.current_revision()

    async def compacted_revision(self) -> int:
        return await self.inner.compacted_revision()

    async def compact(self, revision: int) -> None:
        await self.inner.compact(revision)

    async def close(self) -> None:
        await self.inner.close()


def _is_sealed_by(provider: Provider, stored: bytes) -> bool:
    return stored.startswith(provider.mark) if provider.mark else not stored.startswith(PREFIX)
