"""Prepares an object for a write, between decoding and validation: first its metadata, then by its kind's strategy.

Documents are in the storage version; UIDs and times come in from outside. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dray.api.scheme import is_namespaced
from dray.api.strategies import Setting, strategy_for

Document = dict[str, Any]

MAX_NAME_PREFIX = 58

# Metadata that only the server sets, later.
_ONLY_LATER = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def prepared_create(document: Document, setting: Setting, *, namespace: str = "default") -> Document:
    """Prepares a new object: removes UID and creation time, and sets `namespace` unless the object names one."""
    metadata = new_metadata(document.get("metadata") or {})
    for name in ("uid", "creationTimestamp"):
        metadata.pop(name, None)
    set_namespace(metadata, namespace, namespaced=is_namespaced(document["kind"]))
    return strategy_for(document["apiVersion"], document["kind"]).create({**document, "metadata": metadata}, setting)


def prepared_update(new: Document, old: Document, setting: Setting) -> Document:
    strategy = strategy_for(old["apiVersion"], old["kind"])
    return strategy.update(with_kept_metadata(new, old), old, setting)


def prepared_status_update(new: Document, old: Document, setting: Setting) -> Document:
    """Raises LookupError where the kind has no status of its own."""
    strategy = strategy_for(old["apiVersion"], old["kind"])
    if strategy.update_status is None:
        raise LookupError(f"{old['kind']} has no status of its own")
    return strategy.update_status(with_kept_metadata(new, old), old, setting)


def new_metadata(sent: Document) -> Document:
    return {name: value for name, value in sent.items() if name not in _ONLY_LATER}


def set_namespace(metadata: Document, namespace: str, *, namespaced: bool) -> None:
    """Gives an object without a namespace the one of the request, and removes it from a cluster-wide object."""
    if not namespaced:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace


def with_kept_metadata(document: Document, old: Document) -> Document:
    """Takes metadata that an update omits or cannot change from the stored object."""
    metadata, before = dict(document["metadata"]), old["metadata"]
    metadata.pop("selfLink", None)
    for name in ("name", "namespace", "uid", "deletionGracePeriodSeconds"):
        if metadata.get(name) in (None, "") and name in before:
            metadata[name] = before[name]
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in before:
            metadata[name] = before[name]
    return {**document, "metadata": metadata}


def fill_name(metadata: Document, new_suffix: Callable[[], str]) -> None:
    """generateName becomes a name, unless there is one."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        metadata["name"] = prefix[:MAX_NAME_PREFIX] + new_suffix()


DUPLICATE_OWNERS_WARNING = (
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)


_canonical = msgspec.json.Encoder(order="deterministic").encode


def drop_duplicate_owners(metadata: Document, warn: Callable[[str], None]) -> None:
    sent = metadata.get("ownerReferences")
    if not sent or len(sent) < 2:
        return
    kept: list[Document] = []
    again: list[str] = []
    seen: set[bytes] = set()
    for reference in sent:
        form = _canonical(reference)
        if form in seen:
            again.append(reference.get("uid") or "")
        else:
            seen.add(form)
            kept.append(reference)
    if again:
        metadata["ownerReferences"] = kept
        warn(DUPLICATE_OWNERS_WARNING + ", ".join(again))
