"""Decodes the server's bytes to structs, in one pass in the usual case."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from dray.api import codec
from dray.api.meta import ListMeta, Status
from dray.api.quantity import QuantityError, decoding_hook
from dray.api.resource import ResourceSlice
from dray.api.slice_text import SliceText
from dray.client.errors import ApiError
from dray.client.kinds import ApiObject, Kind

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)
# The errors of the one-pass decoders: a null where Go has an empty list, a Status in place of an object.
_UNUSUAL = (msgspec.ValidationError, QuantityError)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T

    @property
    def ends_initial_events(self) -> bool:
        return self.type == "BOOKMARK" and self.object.metadata.annotations.get(INITIAL_EVENTS_END) == "true"


class RawEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def _decoder(decoded_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(decoded_type, dec_hook=decoding_hook)


def decode_object(kind: Kind[T], body: bytes) -> T:
    return codec.decode(kind.type, body)


def decode_page(kind: Kind[T], body: bytes) -> ListPage[T]:
    """One page of a list. An item that cannot be read is left out with a log line, never the whole list."""
    try:
        if kind.type is ResourceSlice:
            found: ListPage[Any] = _decoder(ListPage[SliceText]).decode(body)
            return ListPage(found.metadata, [each.whole() for each in found.items or ()])
        page: ListPage[T] = _decoder(ListPage[kind.type]).decode(body)  # type: ignore[name-defined]
        return page
    except _UNUSUAL:
        raw = _decoder(RawPage).decode(body)
    return ListPage(raw.metadata, [item for item in map(_tolerant(kind), raw.items or []) if item is not None])


def _tolerant(kind: Kind[T]) -> Callable[[msgspec.Raw], T | None]:
    def read(raw: msgspec.Raw) -> T | None:
        try:
            return decode_object(kind, bytes(raw))
        except codec.DecodeError as error:
            log.error("%s: left out an object that cannot be read: %s", kind.plural, error)
            return None

    return read


def event_decoder(kind: Kind[T]) -> Callable[[bytes], WatchEvent[T] | None]:
    """A function from watch frames to events; None for an object that cannot be read.

    The frame of an error holds a Status instead of an object: it raises `ApiError`.
    """
    decode: Callable[[bytes], WatchEvent[T]] = (
        _slice_event if kind.type is ResourceSlice else _decoder(WatchEvent[kind.type]).decode  # type: ignore[name-defined]
    )

    def read(frame: bytes) -> WatchEvent[T] | None:
        try:
            event = decode(frame)
        except _UNUSUAL:
            return _odd_event(kind, frame)
        if event.type == "ERROR":
            return _odd_event(kind, frame)
        return event

    return read


def _slice_event(frame: bytes) -> WatchEvent[Any]:
    event: WatchEvent[Any] = _decoder(WatchEvent[SliceText]).decode(frame)
    return WatchEvent(event.type, event.object.whole())


def _odd_event(kind: Kind[T], frame: bytes) -> WatchEvent[T] | None:
    raw = _decoder(RawEvent).decode(frame)
    if raw.type == "ERROR":
        raise ApiError.from_status(msgspec.json.decode(bytes(raw.object), type=Status))
    item = _tolerant(kind)(raw.object)
    return None if item is None else WatchEvent(raw.type, item)
