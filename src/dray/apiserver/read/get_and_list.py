"""Get and list requests: one object, or a page of objects, at the revision the client asks for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from dray.api.scheme import Resource
from dray.apiserver import errors
from dray.apiserver.core import LARGE, QUICK, Core, in_thread
from dray.apiserver.read.representations import (
    ListMetadata,
)
from dray.apiserver.read.selectors import (
    checked,
    fields_of,
    parse_fields,
    parse_labels,
)
from dray.apiserver.request.request_info import ApiCall
from dray.apiserver.request.request_options import (
    ListOptions,
    list_options,
    revision_number,
)
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.stored_object import (
    Stored,
    namespace_prefix,
    resource_prefix,
)
from dray.apiserver.watch.watchers import Selection
from dray.apiserver.write.go_json_errors import complaint
from dray.store.errors import Compacted, FutureRevision

TOKEN_VERSION = "meta.k8s.io/v1"
PAGE = 500
# Objects of usual size whose fields are read in some milliseconds.
MANY = 256


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page starts: the revision all pages share, and the last key, relative to the list's prefix."""

    revision: int
    start: str

    def __str__(self) -> str:
        body = msgspec.json.encode({"v": TOKEN_VERSION, "rv": self.revision, "start": self.start + "\0"})
        return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_continue_token(text: str) -> ContinueToken:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise errors.bad_request(
            f"invalid continue token: continue key is not valid: illegal base64 data at input byte {_first_bad(text)}"
        ) from None
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        why = complaint_of_bytes(data)
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if not isinstance(found, dict) or found.get("v") != TOKEN_VERSION:
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this encoded version"
        )
    start, revision = found.get("start"), found.get("rv")
    if not isinstance(start, str) or not start or not isinstance(revision, int) or revision == 0:
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion"
        )
    if ".." in start.split("/"):
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {start}")
    return ContinueToken(revision, start.rstrip("\0"))


def complaint_of_bytes(data: bytes) -> str:
    """Go shows a byte that is no character as `\\x9e`."""
    text = complaint(data)
    bad = next((byte for byte in data if byte >= 0x80), None)
    return text.replace("\ufffd", f"\\x{bad:02x}") if bad is not None else text


def _first_bad(text: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return next((at for at, char in enumerate(text) if char not in alphabet), len(text))


async def selected(selection: Selection, objects: Iterator[Stored], most: int | None = None) -> list[Stored]:
    """The first `most` of the objects that match. They are what they were when this was called, also if looking at them takes a thread."""
    candidates = list(objects)
    if len(candidates) < MANY and sum(stored.size for stored in candidates) < LARGE * QUICK:
        return selection.of(candidates, most)
    return await in_thread(selection.of, candidates, most)


@dataclass(frozen=True, slots=True)
class ListedObjects:
    chosen: list[Stored]
    meta: ListMetadata


class Reader:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def get(self, call: ApiCall) -> Stored:
        version = call.query.get("resourceVersion", "")
        revision = revision_number(version)
        if revision:
            await self._core.reach(revision)
        elif version != "0":
            await self._core.fresh()
        stored = self._core.cache(call.row).get(call.namespace, call.name)
        if stored is None:
            raise errors.not_found(call.row, call.name)
        return stored

    def selection(self, call: ApiCall, options: ListOptions) -> Selection:
        labels = parse_labels(options.label_selector)
        fields = checked(call.row, call.version, parse_fields(options.field_selector))
        return Selection(
            call.namespace, labels, fields, fields_of(call.row), call.info.name if call.info.is_watch_path else ""
        )

    async def list(self, call: ApiCall) -> ListedObjects:
        options = list_options(call.query, watch=False)
        selection = self.selection(call, options)
        if options.continue_token:
            if options.resource_version and options.resource_version != "0":
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            return await self._next_page(call.row, selection, options)
        revision = revision_number(options.resource_version)
        if options.resource_version_match == "Exact" or (
            revision and options.limit and not options.resource_version_match
        ):
            return await self._at(call.row, selection, revision, "", options.limit)
        if revision:
            await self._core.reach(revision)
        elif options.resource_version != "0":
            await self._core.fresh()
        limit = options.limit if options.resource_version != "0" else 0
        return await self._now(self._core.cache(call.row), selection, limit)

    async def _now(
        self, cache: KindCache, selection: Selection, limit: int, start: str = "", revision: int = 0
    ) -> ListedObjects:
        """A page from the cache as it is now; `revision` keeps the number that an earlier page was given."""
        start_key = _prefix(cache.row, selection) + start if start else ""
        revision = revision or self._core.progress.revision
        candidates = cache.list(selection.namespace, start_key)
        # One more than asked for tells whether there are more.
        most = limit + 1 if limit else None
        if selection.selects or selection.name:
            chosen = await selected(selection, candidates, most)
        else:
            chosen = list(islice(candidates, most))
        if not limit or len(chosen) <= limit:
            return ListedObjects(chosen, ListMetadata(revision))
        del chosen[limit:]
        remaining = None if selection.selects else cache.count(selection.namespace, chosen[-1].key)
        return ListedObjects(
            chosen, ListMetadata(revision, self._token(cache.row, selection, revision, chosen[-1]), remaining)
        )

    def _token(self, row: Resource, selection: Selection, revision: int, last: Stored) -> str:
        return str(ContinueToken(revision, last.key.removeprefix(_prefix(row, selection))))

    async def _next_page(self, row: Resource, selection: Selection, options: ListOptions) -> ListedObjects:
        token = read_continue_token(options.continue_token)
        cache = self._core.cache(row)
        if token.revision < 0:
            await self._core.fresh()
            return await self._now(cache, selection, options.limit, token.start)
        if token.revision < self._core.history_start:
            gone = Compacted(token.revision, self._core.history_start)
            raise self._expired(row, selection, token.start, gone)
        if cache.changed <= token.revision <= self._core.progress.revision:
            return await self._now(cache, selection, options.limit, token.start, token.revision)
        return await self._at(row, selection, token.revision, token.start, options.limit)

    async def _at(self, row: Resource, selection: Selection, revision: int, start: str, limit: int) -> ListedObjects:
        """A page at an exact revision: from the cache if it did not change since, else from the store's history."""
        await self._core.fresh()
        cache = self._core.cache(row)
        if cache.changed <= revision <= self._core.progress.revision:
            return await self._now(cache, selection, limit, start, revision)
        try:
            return await self._past(cache, selection, revision, start, limit)
        except FutureRevision as error:
            raise errors.revision_too_large(error.requested, error.current) from None
        except Compacted as error:
            raise self._expired(row, selection, start, error) from None

    async def _past(
        self, cache: KindCache, selection: Selection, revision: int, start: str, limit: int
    ) -> ListedObjects:
        prefix = _prefix(cache.row, selection)
        after = prefix + start if start else ""
        chosen: list[Stored] = []
        while True:
            page = await self._core.store.list(
                prefix,
                limit=limit - len(chosen) if limit and not selection.selects else PAGE,
                start_after=after,
                revision=revision,
            )
            chosen += await selected(selection, map(cache.remembered, page.entries))
            if limit and len(chosen) >= limit:
                break
            if not page.remaining or not page.entries:
                return ListedObjects(chosen, ListMetadata(revision))
            after = page.entries[-1].key
        cut = len(chosen) > limit
        chosen = chosen[:limit]
        if not cut and not page.remaining:
            return ListedObjects(chosen, ListMetadata(revision))
        remaining = None if selection.selects else page.remaining
        return ListedObjects(
            chosen, ListMetadata(revision, self._token(cache.row, selection, revision, chosen[-1]), remaining)
        )

    def _expired(self, row: Resource, selection: Selection, start: str, gone: Compacted) -> errors.ApiError:
        if not start:
            return errors.expired(
                f"The resourceVersion for the provided list is too old: {gone.requested} ({gone.compacted})"
            )
        error = errors.expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
        )
        error.list_metadata = {"continue": str(ContinueToken(-1, start))}
        return error


def _prefix(row: Resource, selection: Selection) -> str:
    return (
        namespace_prefix(row.group, row.plural, selection.namespace)
        if selection.namespace
        else resource_prefix(row.group, row.plural)
    )
