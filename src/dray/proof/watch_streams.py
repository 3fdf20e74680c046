"""Checks watch streams: each one is in order and consistent, and no stream misses an event that another one saw."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dray.proof.history import History, Listed, ObjectKey, Opened, SeenEvent, key_of, metadata_of, revision_of
from dray.proof.violation import Violation

Changes = dict[tuple[int, ObjectKey], SeenEvent]


@dataclass(slots=True)
class Coverage:
    """A stretch of revisions, `after` excluded and `until` included, of which a stream claims to have seen everything."""

    after: int
    until: int
    seen: Changes = field(default_factory=dict)


@dataclass(slots=True)
class StreamState:
    name: str
    last: int = 0
    known: dict[ObjectKey, int] = field(default_factory=dict)
    stretches: list[Coverage] = field(default_factory=list)


def check_watches(history: History) -> Iterator[Violation]:
    by_resource: dict[str, list[StreamState]] = {}
    for (stream, resource), records in history.streams().items():
        state = StreamState(stream)
        yield from _check_stream(state, records)
        by_resource.setdefault(resource, []).append(state)
    for states in by_resource.values():
        yield from _compare(states)


def changes_seen(history: History) -> dict[ObjectKey, dict[int, SeenEvent]]:
    """Every change that any stream saw, by object and revision."""
    changes: dict[ObjectKey, dict[int, SeenEvent]] = {}
    for record in history.records:
        if isinstance(record, SeenEvent) and record.type != "BOOKMARK":
            changes.setdefault(record.key, {}).setdefault(record.revision, record)
    return changes


def coverage(history: History) -> dict[str, list[tuple[int, int]]]:
    """Stretches of revisions that at least one stream watched, per resource."""
    found: dict[str, list[tuple[int, int]]] = {}
    for (stream, resource), records in history.streams().items():
        state = StreamState(stream)
        for _ in _check_stream(state, records):
            pass
        found.setdefault(resource, []).extend((each.after, each.until) for each in state.stretches)
    return found


class StreamCheck:
    """Checks one stream event by event without keeping the events, for streams that never end."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], StreamState] = {}

    def take(self, record: Listed | Opened | SeenEvent) -> list[Violation]:
        resource = record.key.resource if isinstance(record, SeenEvent) else record.resource
        state = self._states.setdefault((record.stream, resource), StreamState(record.stream))
        found = list(_check_stream(state, [record]))
        del state.stretches[:-1]
        for stretch in state.stretches:
            stretch.seen.clear()
        return found


def _check_stream(state: StreamState, records: Iterable[Listed | Opened | SeenEvent]) -> Iterator[Violation]:
    for record in records:
        if isinstance(record, Listed):
            yield from _take_list(state, record)
        elif isinstance(record, Opened):
            if not state.stretches or record.revision != state.stretches[-1].until:
                state.stretches.append(Coverage(record.revision, record.revision))
        else:
            yield from _take_event(state, record)


def _take_list(state: StreamState, listed: Listed) -> Iterator[Violation]:
    if listed.revision < state.last:
        yield Violation(
            "watch-order", listed.revision, state.name, f"a list of {listed.resource} came after revision {state.last}"
        )
    found = {key_of(listed.resource, each): revision_of(each) for each in listed.documents}
    if state.stretches and state.stretches[-1].until == listed.revision and found != state.known:
        different = sorted(str(key) for key, _ in found.items() ^ state.known.items())
        yield Violation("watch-disagrees", listed.revision, state.name, f"list and watch differ in {different[:5]}")
    state.known = found
    state.last = listed.revision
    state.stretches.append(Coverage(listed.revision, listed.revision))


def _take_event(state: StreamState, event: SeenEvent) -> Iterator[Violation]:
    if not state.stretches:
        state.stretches.append(Coverage(0, 0))
    stretch = state.stretches[-1]
    is_bookmark = event.type == "BOOKMARK"
    if event.revision < state.last or (event.revision == state.last and not is_bookmark):
        yield Violation(
            "watch-order", event.revision, f"{state.name}: {event.key}", f"{event.type} came after {state.last}"
        )
    state.last = max(state.last, event.revision)
    stretch.until = max(stretch.until, event.revision)
    if is_bookmark:
        return
    stretch.seen[event.revision, event.key] = event
    is_known = event.key in state.known
    if (event.type == "ADDED") == is_known:
        word = "known already" if is_known else "never added"
        yield Violation("watch-gap", event.revision, f"{state.name}: {event.key}", f"{event.type}, but it was {word}")
    if event.type == "DELETED":
        state.known.pop(event.key, None)
    else:
        state.known[event.key] = event.revision


def _compare(states: list[StreamState]) -> Iterator[Violation]:
    everything: Changes = {}
    for state in states:
        for stretch in state.stretches:
            everything |= stretch.seen
    # A stream that is cut often has many stretches: each looks at its own revisions only.
    in_order = sorted(everything.values(), key=lambda event: event.revision)
    revisions = [event.revision for event in in_order]
    for state in states:
        for stretch in state.stretches:
            for event in in_order[bisect_right(revisions, stretch.after) : bisect_right(revisions, stretch.until)]:
                yield from _compare_event(state.name, event, stretch.seen.get((event.revision, event.key)))


def _compare_event(stream: str, event: SeenEvent, own: SeenEvent | None) -> Iterator[Violation]:
    subject = f"{stream}: {event.key}"
    if own is None:
        yield Violation("watch-gap", event.revision, subject, f"{event.type} was seen by {event.stream} only")
    elif own.type != event.type or own.document != event.document:
        what = f"{own.type} here, {event.type} in {event.stream}" if own.type != event.type else "other content"
        yield Violation("watch-disagrees", event.revision, subject, what)


def is_being_deleted(event: SeenEvent) -> bool:
    return event.type == "DELETED" or metadata_of(event.document).get("deletionTimestamp") is not None
