"""The definitions that exist, and the kinds that are served for them.

A definition is served once its condition `Established` is true. Then its kind has a row like any other, a cache, and a place in discovery; a
change of the definition replaces all three and ends the watches of the kind, which start over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from dray.api.safe_get import mapping, mappings, part, text, uid_of
from dray.api.scheme import Resource
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import CollectedLoad, KindCaches, StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.store.interface import Change, Entry

log = logging.getLogger(__name__)

GROUP, PLURAL, KIND = "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"
PREFIX = resource_prefix(GROUP, PLURAL)
ESTABLISHED, NAMES_ACCEPTED, TERMINATING = "Established", "NamesAccepted", "Terminating"


@dataclass(frozen=True, slots=True)
class Definition:
    document: Document
    revision: int

    @property
    def is_established(self) -> bool:
        return condition_is_true(self.document, ESTABLISHED)

    @property
    def is_terminating(self) -> bool:
        return bool(part(self.document, "metadata", "deletionTimestamp"))

    @property
    def serving_state(self) -> tuple[object, ...]:
        """What the served kind is made of; a change of anything else changes nothing for it."""
        return (uid_of(self.document), part(self.document, "metadata", "generation"), self.is_terminating,
                repr(mapping(self.document, "status", "acceptedNames")))  # fmt: skip


def condition_is_true(document: Document, kind: str) -> bool:
    return any(
        entry.get("type") == kind and entry.get("status") == "True"
        for entry in mappings(document, "status", "conditions")
    )


class ServesKinds(Protocol):
    def set_custom(self, rows: Iterable[Resource]) -> None: ...


class CustomDefinitions:
    def __init__(self, served: ServesKinds, caches: KindCaches) -> None:
        self._served = served
        self._caches = caches
        self._states: dict[str, tuple[object, ...]] = {}
        self._on_change: list[Callable[[str], None]] = []
        self.found: dict[str, Definition] = {}
        self.rows: dict[str, Resource] = {}

    def follow(self, follower: StoreFollower) -> None:
        follower.subscribe(PREFIX, self)

    def on_change(self, action: Callable[[str], None]) -> None:
        """Calls `action` with the name of each definition that comes, changes or goes."""
        self._on_change.append(action)

    # --- the follower calls these

    def loading(self) -> CollectedLoad:
        return CollectedLoad(self._load)

    def _load(self, entries: Sequence[Entry], revision: int) -> None:
        gone = self.found.keys() - {entry.key.removeprefix(PREFIX) for entry in entries}
        for name in gone:
            self._put(name, None, revision)
        for entry in entries:
            self._put(
                entry.key.removeprefix(PREFIX), Definition(msgspec.json.decode(entry.value), entry.revision), revision
            )

    def apply(self, change: Change) -> None:
        name = change.key.removeprefix(PREFIX)
        found = None if change.value is None else Definition(msgspec.json.decode(change.value), change.revision)
        self._put(name, found, change.revision)

    def _put(self, name: str, found: Definition | None, revision: int) -> None:
        self.found.pop(name, None)
        if found is not None:
            self.found[name] = found
        try:
            self._serve(name, found, revision)
        except Exception:
            # One definition that cannot be served must not stop the others.
            log.exception("the kind of definition %s cannot be served", name)
        for action in self._on_change:
            action(name)

    def _serve(self, name: str, found: Definition | None, revision: int) -> None:
        before = self.rows.get(name)
        if found is None or not found.is_established:
            if before is not None:
                del self.rows[name], self._states[name]
                self._served.set_custom(self.rows.values())
                self._caches.drop(before)
            return
        if before is not None and self._states[name] == found.serving_state:
            return
        # Schemas, rules and conversions are loaded with the first definition; most clusters have none.
        from dray.apiserver.custom_resources.custom_kind import custom_resource

        row = custom_resource(found.document)
        self._states[name] = found.serving_state
        self.rows[name] = row
        self._caches.put(row, revision)
        self._served.set_custom(self.rows.values())

    # --- names

    def users_of_name(self, group: str, but: str) -> Iterable[tuple[str, Document]]:
        """The names that other definitions of a group have been given."""
        for name, found in self.found.items():
            if name != but and text(found.document, "spec", "group") == group:
                yield name, mapping(found.document, "status", "acceptedNames")
