"""Ownership of fields for the kinds we serve: which fields an endpoint ignores, and how a kind looks in each version."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dray.api.schemas import schema_for
from dray.api.scheme import Resource
from dray.api.shaping import as_written
from dray.api.strategies import strategy_of
from dray.apiserver import managed_fields, views
from dray.apiserver.managed_fields import Kind, Manager

Document = dict[str, Any]


@lru_cache(maxsize=256)
def ownership(row: Resource, subresource: str) -> Kind:
    strategy = strategy_of(row)
    reset = strategy.reset_status if subresource == "status" else strategy.reset_main

    def in_version(document: Document, api_version: str) -> Document:
        return views.from_storage(row, api_version.rpartition("/")[2], document)

    return Kind(lambda api_version: schema_for(api_version, row.kind), in_version, reset or {})


def owned_update(
    row: Resource, old: Document, document: Document, manager: Manager, now: str, *, resets: bool = False
) -> Document:
    """`document` with the managedFields that follow from changing `old` into it (both in the storage version)."""
    metadata = document["metadata"]
    sent = metadata.pop("managedFields", None)
    if resets and not manager.subresource:
        return document
    entries = (not manager.subresource and sent) or old["metadata"].get("managedFields")
    owners = managed_fields.read(entries)
    kind = ownership(row, manager.subresource)
    owners = managed_fields.after_update(owners, old, as_written(document), manager, kind, now)
    if owners:
        metadata["managedFields"] = managed_fields.write(owners)
    return document
