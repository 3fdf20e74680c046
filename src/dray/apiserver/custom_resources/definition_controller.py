"""Accepts the names of new definitions, establishes them, and removes the objects of definitions that are deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from dray.api.safe_get import mapping, mappings, strings, text
from dray.api.scheme import RESOURCES
from dray.apiserver.core import Core
from dray.apiserver.custom_resources.definitions import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    PREFIX,
    TERMINATING,
    CustomDefinitions,
    Definition,
)
from dray.apiserver.request.request_info import LOOPBACK, Document, Request
from dray.apiserver.watch.stored_object import to_value
from dray.http.responses import Response
from dray.store.errors import Conflict, NotFound, StoreError
from dray.store.interface import Delete, Operation, Precondition, Put
from dray.tasks import cancelled

log = logging.getLogger(__name__)

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
RETRY_S = 1.0
Handle = Callable[[Request], Awaitable[Response]]


class DefinitionController:
    """One definition after the other, from a queue; a definition that has to wait is looked at again after a second."""

    def __init__(self, definitions: CustomDefinitions, core: Core, handle: Handle) -> None:
        self._definitions = definitions
        self._core = core
        self._handle = handle
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._later: set[asyncio.Task[None]] = set()
        definitions.on_change(self._changed.put_nowait)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._try(await self._changed.get())
        finally:
            await cancelled(*self._later)

    async def _try(self, name: str) -> None:
        try:
            await self._look_at(name)
        except (Conflict, NotFound):
            return  # somebody else changed it, which brings it back
        except StoreError as error:
            log.warning("definition %s: %s", name, error)
            self._look_again(name)
        except Exception:
            log.exception("definition %s", name)

    def _look_again(self, name: str) -> None:
        async def later() -> None:
            await self._core.clock.sleep(RETRY_S)
            self._changed.put_nowait(name)

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _look_at(self, name: str) -> None:
        found = self._definitions.found.get(name)
        if found is None:
            # Its names are free now; somebody may have waited for them.
            for other, waiting in self._definitions.found.items():
                if not waiting.is_established:
                    self._changed.put_nowait(other)
        elif found.is_terminating:
            await self._clean_up(name, found)
        else:
            await self._accept(name, found)

    # --- names

    async def _accept(self, name: str, found: Definition) -> None:
        document = found.document
        names, conflict = mapping(document, "spec", "names"), self._conflict(name, document)
        status = dict(mapping(document, "status"))
        accepted = dict(names) if not conflict else mapping(status, "acceptedNames") or {"plural": "", "kind": ""}
        conditions = list(mappings(status, "conditions"))
        if conflict:
            self._set(conditions, NAMES_ACCEPTED, "False", *conflict)
            if not found.is_established:
                self._set(conditions, ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
        else:
            self._set(conditions, NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
            self._set(conditions, ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")
        made = {**status, "conditions": conditions, "acceptedNames": accepted}
        if made != mapping(document, "status"):
            await self._write(name, found, {**document, "status": made})

    def _conflict(self, name: str, document: Document) -> tuple[str, str] | None:
        """The reason and the message of a name that somebody else has."""
        group, wanted = text(document, "spec", "group"), mapping(document, "spec", "names")
        plurals, kinds = self._taken(group, name)
        for field, used in (("plural", plurals), ("singular", plurals), ("kind", kinds), ("listKind", kinds)):
            value = text(wanted, field)
            if value in used:
                return f"{field[0].upper()}{field[1:]}Conflict", f'"{value}" is already in use'
        for value in strings(wanted, "shortNames"):
            if value in plurals:
                return "ShortNamesConflict", f'"{value}" is already in use'
        return None

    def _taken(self, group: str, but: str) -> tuple[set[str], set[str]]:
        plurals: set[str] = set()
        kinds: set[str] = set()
        for row in RESOURCES:
            if row.group == group:
                plurals |= {row.plural, row.singular, *row.short_names}
                kinds |= {row.kind, row.list_kind}
        for _, names in self._definitions.users_of_name(group, but):
            plurals |= {text(names, "plural"), text(names, "singular"), *strings(names, "shortNames")}
            kinds |= {text(names, "kind"), text(names, "listKind")}
        return plurals - {""}, kinds - {""}

    def _set(self, conditions: list[Document], kind: str, status: str, reason: str, message: str) -> None:
        set_condition(conditions, kind, status, reason, message, self._core.now())

    async def _write(self, name: str, found: Definition, document: Document) -> None:
        key = PREFIX + name
        await self._core.commit(
            [Put(key, to_value(document))], [Precondition(key, found.revision)], found.document, document
        )

    # --- the end

    async def _clean_up(self, name: str, found: Definition) -> None:
        finalizers = strings(found.document, "metadata", "finalizers")
        if CLEANUP not in finalizers:
            return
        if not await self._is_empty(name):
            self._look_again(name)
            return
        left = [each for each in finalizers if each != CLEANUP]
        metadata: dict[str, Any] = {**found.document["metadata"], "finalizers": left}
        document = {**found.document, "metadata": metadata}
        key = PREFIX + name
        operation: Operation = Put(key, to_value(document)) if left else Delete(key)
        await self._core.commit(
            [operation], [Precondition(key, found.revision)], found.document, document if left else None
        )

    async def _is_empty(self, name: str) -> bool:
        """Deletes the objects of the kind; False while finalizers hold some of them."""
        row = self._definitions.rows.get(name)
        if row is None:
            return True
        await self._core.fresh()
        cache = self._core.cache(row)
        for namespace in sorted({stored.namespace for stored in cache.list()}):
            path = row.path(namespace)
            response = await self._handle(Request("DELETE", path, user=LOOPBACK))
            if response.status >= 400:
                log.warning("definition %s: its objects cannot be deleted: %s", name, response.body[:500])
        await self._core.fresh()
        return len(cache) == 0


def set_condition(conditions: list[Document], kind: str, status: str, reason: str, message: str, now: str) -> None:
    """Sets a condition in place; its time changes with its status only."""
    made: Document = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    for at, known in enumerate(conditions):
        if known.get("type") == kind:
            if known.get("status") == status:
                made["lastTransitionTime"] = known.get("lastTransitionTime")
            conditions[at] = made
            return
    conditions.append(made)


def mark_terminating(document: Document, now: str) -> None:
    """The first request to delete a definition: it stays until the objects of its kind are gone."""
    metadata = document["metadata"]
    if metadata.get("deletionTimestamp"):
        return
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    status = document["status"] = dict(document.get("status") or {})
    conditions = status["conditions"] = list(status.get("conditions") or ())
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    set_condition(conditions, TERMINATING, "True", "InstanceDeletionPending", text, now)
