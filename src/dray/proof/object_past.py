"""The past of each object in a line per change: what the object said of itself, at which revision, and who wrote it.

A broken promise is explained by what happened to its objects before. Objects change often in ways that no promise is about (heartbeats,
conditions): a change that leaves the line as it was is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from dray.api import codec
from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dray.proof.history import Document, Listed, ObjectKey, Record, SeenEvent, key_of, revision_of
from dray.proof.replay import TYPES, Object
from dray.proof.violation import Violation

# While a cluster is followed: the changes that are kept of one object, and the objects that are kept after they were deleted.
CHANGES_OF_ONE = 16
DELETED_OBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class PastChange:
    revision: int
    writer: str
    state: str


@dataclass(frozen=True, slots=True)
class ObjectPast:
    key: ObjectKey
    changes: tuple[PastChange, ...]


class ObjectPasts:
    """Takes the same records as a check, and tells the past of the objects that a violation names."""

    def __init__(self, changes_of_one: int | None = CHANGES_OF_ONE, deleted_objects: int = DELETED_OBJECTS) -> None:
        self._changes: dict[ObjectKey, deque[PastChange]] = {}
        self._deleted: dict[ObjectKey, None] = {}
        self._changes_of_one = changes_of_one
        self._deleted_objects = deleted_objects

    def take(self, record: Record) -> None:
        if isinstance(record, Listed):
            for document in record.documents:
                self._enter(key_of(record.resource, document), revision_of(document), document)
        elif isinstance(record, SeenEvent) and record.type != "BOOKMARK":
            self._enter(record.key, record.revision, record.document, is_deleted=record.type == "DELETED")

    def of(self, violation: Violation) -> list[ObjectPast]:
        """Up to the moment of the violation; objects of which nothing was seen are left out."""
        pasts = []
        for key in violation.objects:
            changes = tuple(each for each in self._changes.get(key, ()) if each.revision <= violation.revision)
            if changes:
                pasts.append(ObjectPast(key, changes))
        return pasts

    def _enter(self, key: ObjectKey, revision: int, document: Document, *, is_deleted: bool = False) -> None:
        kind = TYPES.get(key.resource)
        if kind is None:
            return
        found = codec.to_object(document, kind)
        state = "deleted" if is_deleted else ", ".join(_state(found))
        changes = self._changes.setdefault(key, deque(maxlen=self._changes_of_one))
        if not changes or (changes[-1].state != state and changes[-1].revision < revision):
            changes.append(PastChange(revision, _writer(found.metadata), state))
        self._deleted.pop(key, None)
        if is_deleted:
            self._deleted[key] = None
            if len(self._deleted) > self._deleted_objects:
                oldest = next(iter(self._deleted))
                del self._deleted[oldest], self._changes[oldest]


def _writer(metadata: ObjectMeta) -> str:
    """Whoever wrote last, by managedFields; empty where the server does not say."""
    newest = max(metadata.managed_fields, key=lambda entry: entry.time or "", default=None)
    return newest.manager if newest is not None else ""


def _state(found: Object) -> Iterator[str]:
    match found:
        case ResourceClaim():
            yield from _claim_state(found)
        case Pod():
            yield from _pod_state(found)
        case Node():
            amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(found.status.allocatable.items()))
            yield f"allocatable {amounts or 'nothing'}"
        case ResourceSlice():
            pool = found.spec.pool
            yield f"pool {pool.name} of {found.spec.driver}, generation {pool.generation}: {len(found.spec.devices)} devices"
    if found.metadata.deletion_timestamp:
        yield "being deleted"


def _claim_state(claim: ResourceClaim) -> Iterator[str]:
    allocation = claim.status.allocation
    if allocation is None:
        yield "not allocated"
    else:
        yield "allocated " + " ".join(_device(each) for each in allocation.devices.results)
    if claim.status.reserved_for:
        yield "reserved for " + " ".join(f"{user.resource} {user.name}" for user in claim.status.reserved_for)


def _device(result: DeviceRequestAllocationResult) -> str:
    name = f"{result.driver}/{result.pool}/{result.device}"
    consumed = " ".join(f"{capacity} {amount}" for capacity, amount in result.consumed_capacity.items())
    extra = [*([f"share {result.share_id}"] if result.share_id else []), *([consumed] if consumed else [])]
    return f"{name} ({', '.join(extra)})" if extra else name


def _pod_state(pod: Pod) -> Iterator[str]:
    yield f"{pod.status.phase or 'Pending'} on {pod.spec.node_name}" if pod.spec.node_name else "not bound"
    made = [each.resource_claim_name for each in pod.status.resource_claim_statuses if each.resource_claim_name]
    claims = [each.resource_claim_name for each in pod.spec.resource_claims if each.resource_claim_name] + made
    if claims:
        yield "claims " + " ".join(claims)
