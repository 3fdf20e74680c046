"""Who owns which field: metadata.managedFields, kept up to date by every write.

An update makes its author the owner of what it changed. An apply makes its author the owner of all it names, takes away what it
named before and names no more, and refuses to change what others own unless forced to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from dray.api.schemas import schema_for
from dray.api.scheme import Resource
from dray.api.shaping import as_written
from dray.api.strategies import strategy_of
from dray.apiserver.errors import ApiError
from dray.apiserver.subresources.pod_resize_and_ephemeral_containers import (
    resized,
    with_ephemeral_containers,
)
from dray.apiserver.watch.stored_object import from_storage
from dray.apiserver.write import field_sets
from dray.apiserver.write.field_sets import FieldSet, OwnershipSchema

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

Document = dict[str, Any]

UPDATE, APPLY = "Update", "Apply"
BEFORE_FIRST_APPLY = "before-first-apply"
# Fields that belong to the server, whoever sends them.
SYSTEM_FIELDS: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        f"f:{name}": {}
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion",
        )
    },
}  # fmt: skip


class Manager(msgspec.Struct, frozen=True):
    """The author of writes, as one entry of managedFields names it."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""
    # What tells one entry from another. An applier is the same whatever version it speaks.
    identity: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        version = "" if self.operation == APPLY else self.api_version
        force_setattr(self, "identity", (self.name, self.operation, version, self.subresource))

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class ManagerFields(msgspec.Struct, frozen=True):
    manager: Manager
    fields: FieldSet
    time: str


@dataclass(frozen=True, slots=True)
class ManagedKind:
    """How to see a document in the version of each manager; `reset` is what an endpoint ignores."""

    schema_of: Callable[[str], OwnershipSchema | None]
    in_version: Callable[[Document, str], Document]
    reset: FieldSet


Owners = dict[tuple[str, ...], ManagerFields]


def read(entries: list[Document] | None) -> Owners:
    owners: Owners = {}
    for entry in entries or ():
        get = entry.get
        manager = Manager(get("manager", ""), get("operation", ""), get("apiVersion", ""), get("subresource", ""))
        owners[manager.identity] = ManagerFields(manager, entry.get("fieldsV1") or {}, entry.get("time", ""))
    return owners


def write(owners: Owners) -> list[Document]:
    """Appliers first, then by time and name."""
    by_place = {(owned.manager.operation, owned.time, identity): owned for identity, owned in owners.items()}
    return [_entry(by_place[place]) for place in sorted(by_place)]


def _entry(owned: ManagerFields) -> Document:
    manager = owned.manager
    entry: Document = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version}
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": owned.fields}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def owned_by_creator(
    document: Document, empty: Document, manager: Manager, kind: ManagedKind, now: str
) -> list[Document]:
    """The entries of a new object; both documents are in the manager's version."""
    schema = kind.schema_of(manager.api_version)
    if schema is None:
        return []
    fields = _own(field_sets.compare(empty, document, schema).changed, kind)
    return write({manager.identity: ManagerFields(manager, fields, now)}) if fields else []


def _own(fields: FieldSet, kind: ManagedKind) -> FieldSet:
    return field_sets.without_below(_without_system(fields), kind.reset)


def _without_system(fields: FieldSet) -> FieldSet:
    return field_sets.difference(fields, SYSTEM_FIELDS)


def after_update(owners: Owners, old: Document, new: Document, manager: Manager, kind: ManagedKind, now: str) -> Owners:
    """Ownership after `manager` turned `old` into `new` (both in the storage version)."""
    schema = kind.schema_of(manager.api_version)
    if schema is None or not owners:
        return owners
    changes = FieldChanges(old, new, kind)
    change = changes.seen_in(manager.api_version)
    assert change is not None
    owners, identity = _give_up(owners, changes, manager), manager.identity
    mine = owners.get(identity)
    before = mine.fields if mine else {}
    fields = _without_system(field_sets.union(field_sets.difference(before, change.removed), change.changed))
    if not fields:
        owners.pop(identity, None)
    elif mine is None or fields != before:
        owners[identity] = ManagerFields(manager, fields, now)
    return owners


class FieldChanges:
    """What a write changed, as the version of each manager shows it: compared once for each version."""

    __slots__ = ("_found", "_kind", "_lost", "_new", "_old")

    def __init__(self, old: Document, new: Document, kind: ManagedKind) -> None:
        self._old = old
        self._new = new
        self._kind = kind
        self._found: dict[str, field_sets.Comparison] = {}
        self._lost: dict[str, FieldSet] = {}

    def seen_in(self, version: str) -> field_sets.Comparison | None:
        """Only what the endpoint lets anybody own. None for a version that the kind does not have."""
        found = self._found.get(version)
        if found is None:
            schema = self._kind.schema_of(version)
            if schema is None:
                return None
            before, after = (self._kind.in_version(document, version) for document in (self._old, self._new))
            change = field_sets.compare(_plain(before), _plain(after), schema)
            found = self._found[version] = field_sets.Comparison(
                _own(change.changed, self._kind), _own(change.removed, self._kind)
            )
        return found

    def lost_to_others(self, version: str) -> FieldSet | None:
        """What nobody but the author of the write owns any more."""
        lost = self._lost.get(version)
        if lost is None:
            change = self.seen_in(version)
            if change is None:
                return None
            lost = self._lost[version] = field_sets.union(change.changed, change.removed)
        return lost


def _plain(document: Document) -> Document:
    """Without managedFields, which nobody owns."""
    metadata = dict(document["metadata"])
    metadata.pop("managedFields", None)
    return {**document, "metadata": metadata}


def _give_up(owners: Owners, changes: FieldChanges, manager: Manager) -> Owners:
    """What everybody else still owns after the change."""
    left, author = {}, manager.identity
    for identity, owned in owners.items():
        if identity == author:
            left[identity] = owned
            continue
        lost = changes.lost_to_others(owned.manager.api_version)
        if lost is None:
            continue
        fields = field_sets.difference(owned.fields, lost)
        if fields:
            left[identity] = ManagerFields(owned.manager, fields, owned.time)
    return left


# --- apply -----------------------------------------------------------------------------------------------------------


def conflicts(owners: Owners, changes: FieldChanges, manager: Manager) -> list[tuple[Manager, str]]:
    """Fields of others that an apply would change, with their owners."""
    found = []
    for identity, owned in sorted(owners.items()):
        if identity == manager.identity:
            continue
        change = changes.seen_in(owned.manager.api_version)
        if change is None:
            continue
        found += [
            (owned.manager, field_sets.path_text(path))
            for path in field_sets.paths(field_sets.intersection(owned.fields, change.changed))
        ]
    return found


def conflict_error(found: list[tuple[Manager, str]]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in found
    ]
    if len(found) == 1:
        message = f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    else:
        by_manager: dict[str, list[str]] = {}
        for manager, path in found:
            by_manager.setdefault(str(manager), []).append(path)
        lines = []
        for text, fields in sorted(by_manager.items()):
            lines += [f"conflicts with {text}:", *(f"- {path}" for path in fields)]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def applied_fields(config: Document, schema: OwnershipSchema, kind: ManagedKind) -> FieldSet:
    return _own(field_sets.fields_set(_plain(config), schema), kind)


def abandoned(owners: Owners, manager: Manager, fields: FieldSet) -> FieldSet:
    """What `manager` applied before, does not apply now, and nobody else owns: it goes away."""
    mine = owners.get(manager.identity)
    if mine is None:
        return {}
    left = field_sets.difference(field_sets.with_parents(mine.fields), field_sets.with_parents(fields))
    for identity, owned in owners.items():
        if left and identity != manager.identity:
            left = field_sets.difference(left, field_sets.with_parents(owned.fields))
    return left


def after_apply(owners: Owners, changes: FieldChanges, manager: Manager, fields: FieldSet, now: str) -> Owners:
    owners = _give_up(owners, changes, manager)
    mine = owners.get(manager.identity)
    if not fields:
        owners.pop(manager.identity, None)
    elif mine is None or mine.fields != fields or mine.manager != manager:
        owners[manager.identity] = ManagerFields(manager, fields, now)
    return owners


def owned_before_first_apply(
    document: Document, empty: Document, api_version: str, kind: ManagedKind, now: str
) -> Owners:
    """The owners of an object that has no managedFields when it is first applied: one manager owns all its fields."""
    manager = Manager(BEFORE_FIRST_APPLY, UPDATE, api_version)
    return read(owned_by_creator(_plain(kind.in_version(document, api_version)), empty, manager, kind, now))


# Endpoints that take one part of a pod: nobody comes to own what they ignore.
PARTS_OF_PODS: dict[str, Callable[[Document, Document], Document]] = {
    "resize": resized,
    "ephemeralcontainers": with_ephemeral_containers,
}


@lru_cache(maxsize=256)
def managed_kind(row: Resource, subresource: str) -> ManagedKind:
    strategy = strategy_of(row)
    reset = strategy.reset_status if subresource == "status" else strategy.reset_main

    def in_version(document: Document, api_version: str) -> Document:
        return from_storage(row, api_version.rpartition("/")[2], document)

    return ManagedKind(lambda api_version: ownership_schema(row, api_version), in_version, reset or {})


def ownership_schema(row: Resource, api_version: str) -> OwnershipSchema | None:
    """How the fields of a kind are told apart in a version; None for a version that the kind does not have."""
    kind: CustomKind | None = row.custom
    if kind is None:
        return schema_for(api_version, row.kind)
    version = kind.versions.get(api_version.rpartition("/")[2])
    return version.owned if version else None


def owned_update(
    row: Resource, old: Document, document: Document, manager: Manager, now: str, *, resets: bool = False
) -> Document:
    """`document` with the managedFields that follow from changing `old` into it (both in the storage version)."""
    metadata = document["metadata"]
    sent = metadata.pop("managedFields", None)
    if resets and not manager.subresource:
        return document
    entries = (not manager.subresource and sent) or old["metadata"].get("managedFields")
    owners = read(entries)
    kind = managed_kind(row, manager.subresource)
    takes = PARTS_OF_PODS.get(manager.subresource)
    effective = takes(document, old) if takes else as_written(document)
    owners = after_update(owners, old, effective, manager, kind, now)
    if owners:
        metadata["managedFields"] = write(owners)
    return document
