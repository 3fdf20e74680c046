"""Checks that every acknowledged write is visible and went over nothing that its writer had not seen, and that no deleted object comes back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dray.proof.history import History, Listed, ObjectKey, SeenEvent, Write, key_of, metadata_of, revision_of
from dray.proof.violation import Violation
from dray.proof.watch_streams import (
    changes_seen,
    coverage,
    is_being_deleted,
)


def check_writes(history: History) -> Iterator[Violation]:
    changes = changes_seen(history)
    watched = coverage(history)
    listed = _last_lists(history)
    for write in history.writes:
        seen = changes.get(write.key, {})
        if write.verb == "delete":
            yield from _check_delete(write, seen, watched, listed)
        elif write.revision:
            yield from _check_change(write, seen, watched, listed)
            yield from _check_origin(write, seen)
    yield from _resurrected(changes)


def _check_change(
    write: Write, seen: dict[int, SeenEvent], watched: dict[str, list[tuple[int, int]]], listed: dict[str, Listed]
) -> Iterator[Violation]:
    event = seen.get(write.revision)
    if event is not None:
        if _is_comparable(write, event) and event.document != write.answer:
            yield Violation("lost-write", write.revision, str(write.key), f"{write.verb} was stored with other content")
        return
    if any(after < write.revision <= until for after, until in watched.get(write.key.resource, ())):
        yield Violation("lost-write", write.revision, str(write.key), f"no watch ever showed this {write.verb}")
        return
    last = listed.get(write.key.resource)
    if last is not None and last.revision >= write.revision and not any(each > write.revision for each in seen):
        found = {key_of(last.resource, each): revision_of(each) for each in last.documents}
        if found.get(write.key, 0) < write.revision:
            yield Violation("lost-write", write.revision, str(write.key), f"the last list lacks this {write.verb}")


def _check_origin(write: Write, seen: dict[int, SeenEvent]) -> Iterator[Violation]:
    """A write may name the revision that it was made from; then nothing has changed the object since."""
    request = msgspec.json.decode(write.request)
    made_from = revision_of(request) if isinstance(request, dict) else 0
    since = [revision for revision in seen if made_from < revision < write.revision]
    if made_from and since:
        message = f"{write.verb} from revision {made_from} went over revision {min(since)}"
        yield Violation("lost-update", write.revision, str(write.key), message, (write.key,))


def _check_delete(
    write: Write, seen: dict[int, SeenEvent], watched: dict[str, list[tuple[int, int]]], listed: dict[str, Listed]
) -> Iterator[Violation]:
    """The answer of a delete has no revision: at the end the object must be gone or terminating."""
    last = listed.get(write.key.resource)
    if last is None or last.at < write.at:
        return
    if any(is_being_deleted(event) and _uid(event) == write.uid for event in seen.values()):
        return
    for document in last.documents:
        metadata = metadata_of(document)
        if key_of(last.resource, document) == write.key and metadata.get("uid") == write.uid:
            if metadata.get("deletionTimestamp") is None:
                yield Violation("lost-write", last.revision, str(write.key), "it was deleted and is still there")
            return


def _resurrected(changes: dict[ObjectKey, dict[int, SeenEvent]]) -> Iterator[Violation]:
    for key, seen in changes.items():
        gone: dict[str, int] = {}
        for revision in sorted(seen):
            event = seen[revision]
            uid = _uid(event)
            if uid in gone:
                yield Violation("resurrected", revision, str(key), f"{uid} was deleted at revision {gone[uid]}")
            if event.type == "DELETED":
                gone[uid] = revision


def _is_comparable(write: Write, event: SeenEvent) -> bool:
    """Whether an answer can be compared field by field: not in an older API version or for another kind (Binding)."""
    return write.answer is not None and write.answer.get("apiVersion") == event.document.get("apiVersion")


def _uid(event: SeenEvent) -> str:
    return str(metadata_of(event.document).get("uid", ""))


def _last_lists(history: History) -> dict[str, Listed]:
    """The newest list of each resource, for resources without a watch."""
    newest: dict[str, Listed] = {}
    for record in history.records:
        if isinstance(record, Listed) and (
            record.resource not in newest or record.revision >= newest[record.resource].revision
        ):
            newest[record.resource] = record
    return newest
