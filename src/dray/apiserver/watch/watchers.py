"""Events and watchers: each event is encoded once per representation and delivered to the watchers it may concern."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from dray.api.scheme import Resource
from dray.apiserver.read.selectors import (
    FieldSelector,
    ParsedLabelSelector,
    fields_of,
)
from dray.apiserver.watch.stored_object import (
    NODE_FIELD,
    FieldsOf,
    Stored,
)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
# A reader with more pending bytes is cut off; it lists and watches again.
MAX_PENDING_BYTES = 8 * 2**20
# The initial state is encoded in pieces of this size, when the reader takes them.
STATE_PIECE_BYTES = 2**20
# Watchers of these that select by node are found by its name: of thousands of kubelets one watches the pods of a node.
INDEXED_KINDS = ("Pod", "ResourceSlice")


class ObjectEncoder(Protocol):
    """How objects are shown to a watcher. Equal representations share encoded events, so they must be hashable."""

    @property
    def copies(self) -> bool:
        """Whether objects are sent as they are stored, which takes no time to speak of."""
        ...

    def encode(self, stored: Stored) -> bytes: ...

    def event(self, event_type: str, encoded: bytes) -> bytes: ...


class LateLine:
    """An event that takes time to encode. That happens once for all watchers, when the first reader takes it: in a thread, if it is large."""

    __slots__ = ("_encoded", "_event_type", "_representation", "_stored")

    def __init__(self, event_type: str, representation: ObjectEncoder, stored: Stored) -> None:
        self._event_type = event_type
        self._representation = representation
        self._stored = stored
        self._encoded: bytes | None = None

    def __len__(self) -> int:
        return self._stored.size

    def encode(self) -> bytes:
        if self._encoded is None:
            shown = self._representation
            self._encoded = shown.event(self._event_type, shown.encode(self._stored))
        return self._encoded


Line = bytes | LateLine


def _line(event_type: str, shown: ObjectEncoder, stored: Stored) -> Line:
    if shown.copies:
        return shown.event(event_type, shown.encode(stored))
    return LateLine(event_type, shown, stored)


class WatchedPiece(list[Line]):
    """Events that a reader takes together; none when the watch has ended."""

    __slots__ = ()

    @property
    def bytes_to_encode(self) -> int:
        return sum(len(line) for line in self if isinstance(line, LateLine))

    def encode(self) -> bytes:
        return b"".join([line if isinstance(line, bytes) else line.encode() for line in self])


class WatchedChange:
    """One change of one object: `old` is None for a new one, `new` for a deleted one."""

    __slots__ = ("_lines", "new", "old", "revision")

    def __init__(self, revision: int, new: Stored | None, old: Stored | None) -> None:
        self.revision = revision
        self.new = new
        self.old = old
        self._lines: dict[tuple[str, ObjectEncoder], Line] | None = None

    @property
    def size(self) -> int:
        return self.new.size if self.new else self.old.size if self.old else 0

    def line(self, event_type: str, representation: ObjectEncoder) -> Line:
        if self._lines is None:
            self._lines = {}
        found = self._lines.get((event_type, representation))
        if found is None:
            stored = self.new if event_type != DELETED else self.old and self.old.at(self.revision)
            assert stored is not None
            found = self._lines[event_type, representation] = _line(event_type, representation, stored)
        return found

    def forget_lines(self) -> None:
        """Frees the lines once all watchers have them; a later watcher encodes the event again."""
        self._lines = None


class Selection:
    """Selects objects of a kind by namespace, name, labels and fields."""

    __slots__ = ("fields", "fields_of", "is_everything", "labels", "name", "namespace", "selects")

    def __init__(
        self,
        namespace: str = "",
        labels: ParsedLabelSelector | None = None,
        fields: FieldSelector | None = None,
        fields_of: FieldsOf | None = None,
        name: str = "",
    ) -> None:
        self.namespace = namespace
        self.labels = labels or ParsedLabelSelector()
        self.fields = fields or FieldSelector()
        self.fields_of = fields_of
        self.name = name or self.fields.exact("metadata.name") or ""
        # Whether there is a selector: then counting the remaining items would be expensive.
        self.selects = bool(self.labels or self.fields)
        self.is_everything = not (self.namespace or self.name or self.selects)

    def matches(self, stored: Stored) -> bool:
        if self.namespace and stored.namespace != self.namespace:
            return False
        if self.name and stored.name != self.name:
            return False
        if not self.selects:
            return True
        if self.labels and not self.labels.matches(stored.labels()):
            return False
        if not self.fields:
            return True
        assert self.fields_of is not None
        return stored.matches_fields(self.fields, self.fields_of)

    def of(self, candidates: Iterable[Stored], most: int | None = None) -> list[Stored]:
        """Those of the candidates that match, the first `most` of them."""
        return list(islice((stored for stored in candidates if self.matches(stored)), most))


class Watcher:
    """One open watch. Events are offered to it; its reader takes all pending events at once."""

    __slots__ = (
        "__weakref__",
        "_pending",
        "_size",
        "_state",
        "_waiter",
        "closed",
        "leave",
        "place",
        "representation",
        "revision",
        "selection",
    )

    def __init__(self, selection: Selection, representation: ObjectEncoder, after_revision: int) -> None:
        self.selection = selection
        self.representation = representation
        # Events up to this revision are known to the reader. Those that come live are all newer.
        self.revision = after_revision
        self.closed = False
        self.place: tuple[str, ...] = ()
        # Removes the watcher from its index; None once removed.
        self.leave: Callable[[Watcher], None] | None = None
        # Lines that come before all others: objects as they were when the watch began. None once the reader has them.
        self._state: Iterator[Line] | None = None
        self._pending = WatchedPiece()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, event: WatchedChange) -> bool:
        """Whether the reader gets the event. Several can have one revision: keys that expire together in etcd."""
        event_type = self.type_of(event) if event.revision > self.revision else ""
        if event_type:
            self.push(event.line(event_type, self.representation))
        return bool(event_type)

    def type_of(self, event: WatchedChange) -> str:
        """The event type for this watcher: an object that starts to match is added, one that stops is deleted."""
        if self.selection.is_everything:
            return DELETED if event.new is None else MODIFIED if event.old is not None else ADDED
        now = event.new is not None and self.selection.matches(event.new)
        before = event.old is not None and self.selection.matches(event.old)
        if now:
            return MODIFIED if before else ADDED
        return DELETED if before else ""

    def begin_with(self, state: Sequence[Stored]) -> None:
        """The objects are encoded when the reader takes them: all at once would take the memory of the whole state."""
        self._state = self._lines_of(state)

    def _lines_of(self, state: Sequence[Stored]) -> Iterator[Line]:
        return (_line(ADDED, self.representation, stored) for stored in state)

    def push(self, line: Line) -> None:
        """Adds a line for the reader."""
        if self.closed:
            return
        self._pending.append(line)
        self._size += len(line)
        if self._size > MAX_PENDING_BYTES:
            self._pending.clear()
            self._state = None
            self._size = 0
            self.closed = True
        self._wake()

    def close(self) -> None:
        """End the stream once everything pending has been taken."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> WatchedPiece:
        """All pending events; waits until there are some, or until the watch has ended."""
        if self._state is not None and (piece := self._next_of_state(self._state)):
            return piece
        while not self._pending:
            if self.closed:
                return WatchedPiece()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        pending, self._pending, self._size = self._pending, WatchedPiece(), 0
        return pending

    def _next_of_state(self, state: Iterator[Line]) -> WatchedPiece:
        piece, size = WatchedPiece(), 0
        for line in state:
            piece.append(line)
            size += len(line)
            if size >= STATE_PIECE_BYTES:
                return piece
        self._state = None
        return piece


class WatcherIndex:
    """All watchers of a kind, indexed so that an event is offered only to those it may concern."""

    def __init__(self, row: Resource) -> None:
        self._fields_of = fields_of(row)
        self._indexes_node = row.kind in INDEXED_KINDS
        self._by_node = 0  # how many watchers are found by node
        self._watchers: dict[tuple[str, ...], set[Watcher]] = {}

    def __len__(self) -> int:
        return sum(len(watchers) for watchers in self._watchers.values())

    def __iter__(self) -> Iterator[Watcher]:
        return (watcher for watchers in tuple(self._watchers.values()) for watcher in tuple(watchers))

    def add(self, watcher: Watcher) -> None:
        watcher.place = self._place(watcher.selection)
        self._by_node += watcher.place[:1] == ("node",)
        self._watchers.setdefault(watcher.place, set()).add(watcher)

    def remove(self, watcher: Watcher) -> None:
        watchers = self._watchers.get(watcher.place)
        if watchers is not None and watcher in watchers:
            watchers.discard(watcher)
            self._by_node -= watcher.place[:1] == ("node",)
            if not watchers:
                del self._watchers[watcher.place]

    def deliver(self, event: WatchedChange) -> None:
        if not self._watchers:
            return
        # Usually everybody watches all objects.
        for place in self._concerned(event) if len(self._watchers) > 1 or () not in self._watchers else ((),):
            watchers = self._watchers.get(place)
            if watchers:
                for watcher in tuple(watchers):
                    watcher.offer(event)

    def _place(self, selection: Selection) -> tuple[str, ...]:
        node = selection.fields.exact(NODE_FIELD) if self._indexes_node else None
        if node is not None:
            return ("node", node)
        if selection.name:
            return ("name", selection.name)
        return ("namespace", selection.namespace) if selection.namespace else ()

    def _concerned(self, event: WatchedChange) -> Iterable[tuple[str, ...]]:
        places: dict[tuple[str, ...], None] = {(): None}
        for stored in (event.old, event.new):
            if stored is None:
                continue
            if stored.namespace:
                places["namespace", stored.namespace] = None
            places["name", stored.name] = None
            if self._by_node:
                places["node", stored.fields(self._fields_of)[NODE_FIELD]] = None
        return places
