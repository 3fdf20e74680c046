"""Pods that use a claim, as far as the pod cache knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.accounting import claim_names
from dray.api.codec import decode
from dray.api.core import Pod
from dray.apiserver.attributes import Document
from dray.apiserver.cache import KindCache
from dray.apiserver.parts import name_of, namespace_of, text

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """A pod that is not over; without a node it does not use its claims yet."""

    key: str
    name: str
    revision: int
    node_name: str


def live_users(pods: KindCache, claim: Document, entries: Iterable[Document]) -> Iterator[ClaimUser]:
    """Those pods among `entries` of `reservedFor` that are not over and name the claim."""
    for entry in entries:
        if entry.get("resource") != "pods" or entry.get("apiGroup"):
            continue
        stored = pods.get(namespace_of(claim), text(entry, "name"))
        if stored is None:
            continue
        pod = decode(Pod, stored.value)
        if pod.metadata.uid != entry.get("uid") or pod.status.phase in _OVER:
            continue
        if name_of(claim) in claim_names(pod).values():
            yield ClaimUser(stored.key, stored.name, stored.revision, pod.spec.node_name)
