"""Checks that every acknowledged write is visible and went over nothing that its writer had not seen, and that no deleted object comes back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate

import msgspec

from dray.proof.history import Document, History, Listed, ObjectKey, SeenEvent, Write, key_of, metadata_of, revision_of
from dray.proof.violation import Violation
from dray.proof.watch_streams import (
    changes_seen,
    coverage,
    is_being_deleted,
)


class _Changes:
    """What all streams saw of one object. Each question takes a step or a few: a hot object has as many writes as changes."""

    def __init__(self, by_revision: dict[int, SeenEvent]) -> None:
        self.by_revision = by_revision
        self.revisions = sorted(by_revision)

    @cached_property
    def uids_being_deleted(self) -> set[str]:
        return {_uid(event) for event in self.by_revision.values() if is_being_deleted(event)}

    def first_after(self, revision: int) -> int | None:
        index = bisect_right(self.revisions, revision)
        return self.revisions[index] if index < len(self.revisions) else None


class _Watched:
    """The revisions of one resource that at least one stream watched."""

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        in_order = sorted(stretches)
        self._after = [after for after, _ in in_order]
        self._furthest = list(accumulate((until for _, until in in_order), max))

    def includes(self, revision: int) -> bool:
        index = bisect_left(self._after, revision)
        return index > 0 and self._furthest[index - 1] >= revision


class _LastList:
    """The newest list of a resource, for resources without a watch."""

    def __init__(self, listed: Listed) -> None:
        self.revision = listed.revision
        self.at = listed.at
        self.revisions: dict[ObjectKey, int] = {}
        self.objects: dict[tuple[ObjectKey, str], Document] = {}
        for document in listed.documents:
            key = key_of(listed.resource, document)
            self.revisions[key] = revision_of(document)
            self.objects.setdefault((key, str(metadata_of(document).get("uid"))), document)

    def lacks(self, write: Write) -> bool:
        return self.revisions.get(write.key, 0) < write.revision <= self.revision


NOTHING_SEEN = _Changes({})
NOTHING_WATCHED = _Watched()


def check_writes(history: History) -> Iterator[Violation]:
    changes = {key: _Changes(seen) for key, seen in changes_seen(history).items()}
    watched = {resource: _Watched(stretches) for resource, stretches in coverage(history).items()}
    listed = _last_lists(history)
    for write in history.writes:
        seen = changes.get(write.key, NOTHING_SEEN)
        last = listed.get(write.key.resource)
        if write.verb == "delete":
            yield from _check_delete(write, seen, last)
        elif write.revision:
            yield from _check_change(write, seen, watched.get(write.key.resource, NOTHING_WATCHED), last)
            yield from _check_origin(write, seen)
    yield from _resurrected(changes)


def _check_change(write: Write, seen: _Changes, watched: _Watched, last: _LastList | None) -> Iterator[Violation]:
    event = seen.by_revision.get(write.revision)
    if event is not None:
        if _is_comparable(write, event) and event.document != write.answer:
            yield Violation("lost-write", write.revision, str(write.key), f"{write.verb} was stored with other content")
    elif watched.includes(write.revision):
        yield Violation("lost-write", write.revision, str(write.key), f"no watch ever showed this {write.verb}")
    elif last is not None and last.lacks(write) and seen.first_after(write.revision) is None:
        yield Violation("lost-write", write.revision, str(write.key), f"the last list lacks this {write.verb}")


def _check_origin(write: Write, seen: _Changes) -> Iterator[Violation]:
    """A write may name the revision that it was made from; then nothing has changed the object since."""
    request = msgspec.json.decode(write.request)
    made_from = revision_of(request) if isinstance(request, dict) else 0
    since = seen.first_after(made_from)
    if made_from and since is not None and since < write.revision:
        message = f"{write.verb} from revision {made_from} went over revision {since}"
        yield Violation("lost-update", write.revision, str(write.key), message, (write.key,))


def _check_delete(write: Write, seen: _Changes, last: _LastList | None) -> Iterator[Violation]:
    """The answer of a delete has no revision: at the end the object must be gone or terminating."""
    if last is None or last.at < write.at or write.uid in seen.uids_being_deleted:
        return
    document = last.objects.get((write.key, write.uid))
    if document is not None and metadata_of(document).get("deletionTimestamp") is None:
        yield Violation("lost-write", last.revision, str(write.key), "it was deleted and is still there")


def _resurrected(changes: dict[ObjectKey, _Changes]) -> Iterator[Violation]:
    for key, seen in changes.items():
        gone: dict[str, int] = {}
        for revision in seen.revisions:
            event = seen.by_revision[revision]
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


def _last_lists(history: History) -> dict[str, _LastList]:
    newest: dict[str, Listed] = {}
    for record in history.records:
        if isinstance(record, Listed) and (
            record.resource not in newest or record.revision >= newest[record.resource].revision
        ):
            newest[record.resource] = record
    return {resource: _LastList(listed) for resource, listed in newest.items()}
