"""Objects by key, with secondary indexes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from dray.client.kinds import ApiObject, object_key

T = TypeVar("T", bound=ApiObject)
Indexer = Callable[[T], Iterable[str]]

BY_NAMESPACE = "namespace"


def by_namespace(obj: ApiObject) -> Iterable[str]:
    return (obj.metadata.namespace,)


K = TypeVar("K", bound=Hashable)


class KeysByValue(Generic[K]):
    """Sets of keys, each in the order of arrival, so that the order of results does not depend on hashing."""

    def __init__(self) -> None:
        # A single key stands by itself, as in most sets of most indexes: a dict for it takes four times as much memory.
        self._keys: dict[str, K | dict[K, None]] = {}

    def __getitem__(self, value: str) -> Iterable[K]:
        keys = self._keys.get(value)
        if keys is None:
            return ()
        return keys if isinstance(keys, dict) else (keys,)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def add(self, value: str, key: K) -> None:
        keys = self._keys.get(value)
        if keys is None:
            self._keys[value] = key
        elif isinstance(keys, dict):
            keys[key] = None
        elif keys != key:
            self._keys[value] = {keys: None, key: None}

    def discard(self, value: str, key: K) -> None:
        keys = self._keys.get(value)
        if isinstance(keys, dict):
            keys.pop(key, None)
        if keys == key or keys == {}:
            del self._keys[value]


class IndexedObjects(Generic[T]):
    """A dictionary with secondary indexes that follow every change. Not thread-safe: one event loop owns it."""

    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._objects: dict[str, T] = {}
        self._indexers: dict[str, Indexer[T]] = {}
        self._indexes: dict[str, KeysByValue[str]] = {}
        # Index name -> key -> its values there: most changes of an object change no index.
        self._entered: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, indexer in (indexers or {}).items():
            self.add_indexer(name, indexer)

    def add_indexer(self, name: str, indexer: Indexer[T]) -> None:
        if name in self._indexers:
            return
        self._indexers[name] = indexer
        self._indexes[name] = KeysByValue()
        self._entered[name] = {}
        for key, obj in self._objects.items():
            self._enter(name, key, tuple(indexer(obj)))

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def by_index(self, name: str, value: str) -> list[T]:
        return [self._objects[key] for key in self._indexes[name][value]]

    @property
    def indexers(self) -> Mapping[str, Indexer[T]]:
        return self._indexers

    def index_values(self, name: str) -> Iterable[str]:
        return self._indexes[name]

    def keys(self) -> Iterable[str]:
        return self._objects.keys()

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def put(self, obj: T, key: str = "") -> T | None:
        """Store the object, under its key if that is known already; returns the one it replaces."""
        key = key or object_key(obj)
        old = self._objects.get(key)
        self._objects[key] = obj
        entered = self._entered
        for name, indexer in self._indexers.items():
            values = tuple(indexer(obj))
            if values != entered[name].get(key, ()):
                if old is not None:
                    self._leave(name, key)
                self._enter(name, key, values)
        return old

    def remove(self, key: str) -> T | None:
        old = self._objects.pop(key, None)
        if old is not None:
            for name in self._indexers:
                self._leave(name, key)
        return old

    def _enter(self, name: str, key: str, values: tuple[str, ...]) -> None:
        if not values:
            return
        self._entered[name][key] = values
        for value in values:
            self._indexes[name].add(value, key)

    def _leave(self, name: str, key: str) -> None:
        for value in self._entered[name].pop(key, ()):
            self._indexes[name].discard(value, key)
