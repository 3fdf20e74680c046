"""Ownership of fields for the kinds we serve: which fields an endpoint ignores, and how a kind looks in each version."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dray.api.schemas import schema_for
from dray.api.scheme import Resource
from dray.api.shaping import as_written
from dray.api.strategies import strategy_of
from dray.apiserver.read import storage_conversion
from dray.apiserver.subresources.pod_resize import (
    resized,
    with_ephemeral_containers,
)
from dray.apiserver.write import managed_fields
from dray.apiserver.write.managed_fields import (
    Kind,
    Manager,
)

Document = dict[str, Any]

# Endpoints that take one part of a pod: nobody comes to own what they ignore.
PARTS_TAKEN: dict[str, Callable[[Document, Document], Document]] = {
    "resize": resized,
    "ephemeralcontainers": with_ephemeral_containers,
}


@lru_cache(maxsize=256)
def ownership(row: Resource, subresource: str) -> Kind:
    strategy = strategy_of(row)
    reset = strategy.reset_status if subresource == "status" else strategy.reset_main

    def in_version(document: Document, api_version: str) -> Document:
        return storage_conversion.from_storage(row, api_version.rpartition("/")[2], document)

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
    takes = PARTS_TAKEN.get(manager.subresource)
    effective = takes(document, old) if takes else as_written(document)
    owners = managed_fields.after_update(owners, old, effective, manager, kind, now)
    if owners:
        metadata["managedFields"] = managed_fields.write(owners)
    return document
