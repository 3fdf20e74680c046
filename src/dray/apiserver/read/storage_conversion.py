"""One stored object, many views: other versions of resource.k8s.io, and events of events.k8s.io, which are core events."""

from __future__ import annotations

from typing import Any

from dray.api import versions
from dray.api.scheme import Resource, by_kind, group_version

Document = dict[str, Any]

EVENTS_GROUP = "events.k8s.io"
# events.k8s.io name, core name
EVENT_FIELDS = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def storage_row(row: Resource) -> Resource:
    """The row under which objects of this one are kept."""
    return by_kind("Event", "") if row.group == EVENTS_GROUP else row


def to_storage(row: Resource, document: Document) -> Document:
    if row.group == versions.GROUP:
        return versions.to_storage(document)
    if row.group == EVENTS_GROUP:
        return _renamed(document, dict(EVENT_FIELDS), "v1")
    return document


def from_storage(row: Resource, version: str, document: Document) -> Document:
    if row.group == versions.GROUP:
        return versions.from_storage(document, group_version(row.group, version))
    if row.group == EVENTS_GROUP:
        return _renamed(document, {core: new for new, core in EVENT_FIELDS}, "events.k8s.io/v1")
    return document


def is_stored_form(row: Resource, version: str) -> bool:
    """Whether objects are kept just as this version shows them."""
    return row.group != EVENTS_GROUP and version == row.storage_version


def _renamed(document: Document, names: dict[str, str], api_version: str) -> Document:
    made = {names.get(key, key): value for key, value in document.items()}
    return {**made, "apiVersion": api_version}
