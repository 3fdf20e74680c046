"""Bindings into the store: no node is overbooked.

`NodeRoom` knows what the pods of each node take from it. It reads pods when a binding asks for their node, not when they change, and of many
changes of a pod only the last. Until then it keeps only their keys, since the cache of the pods has the rest.

The check of a binding and its commit belong together, also when several bind to one node at the same moment. On one server the
room is taken in memory until the pod is stored. Where several servers share a store, a key per node changes with every
binding, on condition that nobody changed it since the room was looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dray.accounting import (
    AccountingError,
    ClusterLedger,
    Demand,
    DoesNotFit,
    PodRef,
    RequestOptions,
    Shortage,
    pod_demand,
)
from dray.api.codec import decode
from dray.api.core import Node, Pod
from dray.api.dra.pod_phase import is_on_node
from dray.api.errors import DecodeError
from dray.api.safe_get import name_of, text
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.core import Commit, CommitCheck
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.kind_cache import KindCache, Progress
from dray.apiserver.watch.stored_object import GUARD, Stored, to_value
from dray.store.errors import Conflict
from dray.store.interface import Change, Delete, Entry, Operation, Precondition, Put, Store

log = logging.getLogger(__name__)

T = TypeVar("T")

# Changes that wait for a binding to be looked at.
MAX_WAITING_CHANGES = 4096


@dataclass(frozen=True, slots=True)
class PodBinding:
    """A pod that is about to get its node; `value` is the pod as it will be stored."""

    key: str
    node_name: str
    ref: PodRef
    demand: Demand
    value: bytes


class NodeRoom:
    """Every node's ledger, with pods that are being bound right now. To be subscribed to the pods in the store, after their cache."""

    def __init__(self, nodes: KindCache, pods: KindCache, counts: RequestOptions) -> None:
        self._nodes = nodes
        self._pods = pods
        self._counts = counts
        self._ledger = ClusterLedger()
        self._refs: dict[str, PodRef] = {}
        # Pods that have changed since their node was asked for last: by node and key, and where each key is.
        self._unread: dict[str, dict[str, None]] = {}
        self._unread_on: dict[str, str] = {}
        # The revision of each node that was read last, and the resources in its status.
        self._declared: dict[str, tuple[int, frozenset[str]]] = {}
        # Pods that changed since a binding last asked; after a load this is every pod.
        self._changed: dict[str, None] = {}
        self._is_reloaded = False
        # Between the answer of `take` and the call of `stored` or `give_back`.
        self._under_way: dict[str, PodBinding] = {}
        # Stored, but not yet seen in the store's watch.
        self._expected: dict[str, PodBinding] = {}

    # --- what a binding does

    def binding(self, key: str, value: bytes) -> PodBinding | None:
        """None if the pod cannot be read: then it is not counted either."""
        pod = _readable(Pod, value)
        demand = self._demand(pod) if pod is not None else None
        if pod is None or demand is None:
            return None
        return PodBinding(key, pod.spec.node_name, PodRef.of(pod), demand, value)

    def shortages(self, binding: PodBinding) -> list[Shortage]:
        """What the node would give away more of than it has. Only what it says it has counts."""
        self._catch_up()
        for key in self._unread.pop(binding.node_name, ()):
            del self._unread_on[key]
            self._read(key)
        declared = self._declares(binding.node_name)
        if not declared:
            return []
        ledger = self._ledger.nodes[binding.node_name]
        answer = ledger.fits(binding.demand)
        if not isinstance(answer, DoesNotFit):
            return []
        found = (refusal for refusal in answer.refusals if isinstance(refusal, Shortage))
        # Of an extended resource with nothing in the node's status, devices take care.
        return [row for row in found if row.claim or (row.resource in declared and (row.capacity or _is_basic(row)))]

    def take(self, binding: PodBinding) -> None:
        """The room is the pod's until `stored` or `give_back` is called."""
        self._under_way[binding.key] = binding
        self._enter(binding)

    def stored(self, binding: PodBinding) -> None:
        """It is in the store; the room stays taken until the store's watch shows the pod."""
        self._under_way.pop(binding.key, None)
        if self._is_assumed(binding):
            self._expected[binding.key] = binding

    def give_back(self, binding: PodBinding) -> None:
        self._under_way.pop(binding.key, None)
        if self._is_assumed(binding):
            self._ledger.forget(binding.node_name, binding.ref)

    # --- following the pods in the store

    def loading(self) -> _NodeRoomLoad:
        return _NodeRoomLoad(self)

    def start_over(self, keys: dict[str, None]) -> None:
        """These pods are all there are."""
        self._is_reloaded = True
        self._changed = keys

    def apply(self, change: Change) -> None:
        if self._is_reloaded and change.value is None:
            self._changed.pop(change.key, None)
            return
        self._changed[change.key] = None
        if len(self._changed) >= MAX_WAITING_CHANGES and not self._is_reloaded:
            # Pods come and go also where nobody is ever bound.
            self._catch_up()

    def _catch_up(self) -> None:
        changed, self._changed = self._changed, {}
        if self._is_reloaded:
            self._forget_everything()
        for key in changed:
            self._note(key, self._pods.at_key(key))
        if self._is_reloaded:
            self._is_reloaded = False
            for binding in self._under_way.values():
                self._enter(binding)

    def _forget_everything(self) -> None:
        self._ledger, self._refs, self._expected = ClusterLedger(), {}, {}
        self._unread, self._unread_on = {}, {}
        self._declared.clear()

    def _note(self, key: str, stored: Stored | None) -> None:
        expected = self._expected.pop(key, None)
        waiting_on = self._unread_on.pop(key, None)
        if waiting_on is not None:
            self._leave(waiting_on, key)
        ours = expected or self._under_way.get(key)
        if ours is not None and stored is not None and ours.value == stored.value:
            self._place(key, ours.node_name, ours.ref, ours.demand)
            return
        if expected is not None and self._is_assumed(expected):
            self._ledger.forget(expected.node_name, expected.ref)
        node_name = (stored.node() if stored is not None else None) or ""
        ref = self._refs.get(key)
        if ref is not None and self._ledger.node_of(ref) != node_name:
            self._drop(key)
        if node_name:
            self._unread.setdefault(node_name, {})[key] = None
            self._unread_on[key] = node_name

    def _leave(self, node_name: str, key: str) -> None:
        waiting = self._unread[node_name]
        del waiting[key]
        if not waiting:
            del self._unread[node_name]

    def _read(self, key: str) -> None:
        stored = self._pods.at_key(key)
        pod = _readable(Pod, stored.value) if stored is not None else None
        demand = self._demand(pod) if pod is not None and is_on_node(pod) else None
        if pod is None or demand is None:
            self._drop(key)
        else:
            self._place(key, pod.spec.node_name, PodRef.of(pod), demand)

    def _place(self, key: str, node_name: str, ref: PodRef, demand: Demand) -> None:
        if self._refs.get(key, ref) != ref:
            self._drop(key)
        self._refs[key] = ref
        self._ledger.add(node_name, ref, demand)

    def _drop(self, key: str) -> None:
        ref = self._refs.pop(key, None)
        if ref is not None:
            self._ledger.remove(ref)

    def _enter(self, binding: PodBinding) -> None:
        if self._ledger.node_of(binding.ref) is None:
            self._ledger.assume(binding.node_name, binding.ref, binding.demand)

    def _is_assumed(self, binding: PodBinding) -> bool:
        ledger = self._ledger.nodes.get(binding.node_name)
        return ledger is not None and ledger.is_assumed(binding.ref)

    def _demand(self, pod: Pod) -> Demand | None:
        try:
            return pod_demand(pod, options=self._counts)
        except AccountingError as problem:
            log.warning("pod %s/%s is not counted: %s", pod.metadata.namespace, pod.metadata.name, problem)
            return None

    def _declares(self, name: str) -> frozenset[str]:
        """The resources in the node's status; its ledger knows their amounts afterwards."""
        stored = self._nodes.get("", name)
        if stored is None:
            return frozenset()
        known = self._declared.get(name)
        if known is None or known[0] != stored.revision or name not in self._ledger.nodes:
            node = _readable(Node, stored.value)
            if node is None:
                return frozenset()
            self._ledger.set_node(node)
            known = self._declared[name] = stored.revision, frozenset(node.status.allocatable)
        return known[1]


class _NodeRoomLoad:
    """Of the pods that are read, only their keys."""

    def __init__(self, node_room: NodeRoom) -> None:
        self._node_room = node_room
        self._keys: dict[str, None] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        self._keys.update((entry.key, None) for entry in entries)

    def finish(self, revision: int) -> None:
        self._node_room.start_over(self._keys)


def _is_basic(row: Shortage) -> bool:
    """Zero of it means zero: no device will serve it instead."""
    return "/" not in row.resource


def _readable(kind: type[T], value: bytes) -> T | None:
    try:
        return decode(kind, value)
    except (DecodeError, msgspec.MsgspecError, ValueError):
        log.warning("cannot read a %s: it is not counted", kind.__name__)
        return None


# Bindings that meet at one node may pass each other this often before the client is asked to try again.
ATTEMPTS = 16


def node_key(name: str) -> str:
    return f"{GUARD}nodes/{name}"


class BindingGuard:
    """Put before another `Commit`, which does the rest."""

    def __init__(
        self,
        store: Store,
        progress: Progress,
        node_room: NodeRoom,
        then: Commit,
        *,
        several_servers: bool,
    ) -> None:
        self._store = store
        self._progress = progress
        self._node_room = node_room
        self._then = then
        self._several_servers = several_servers

    async def commit(
        self,
        operations: Sequence[Operation],
        preconditions: Sequence[Precondition],
        old: Document | None,
        new: Document | None,
    ) -> int:
        """Raises 409 where there is no room."""
        if old is not None and new is not None and new["kind"] == "Pod" and is_binding(old, new):
            return await self._bind(operations, preconditions, old, new)
        if self._several_servers and new is None and old is not None and old["kind"] == "Node":
            # Nobody binds to it any more. A binding that is under way meets a conflict and finds no node.
            operations = [*operations, Delete(node_key(name_of(old)))]
        return await self._then(operations, preconditions, old, new)

    def checked(self, then: CommitCheck) -> CommitCheck:
        """The same refusals for dry runs, before those of `then`."""

        async def check(old: Document | None, new: Document | None) -> tuple[list[Operation], list[Precondition]]:
            if old is not None and new is not None and new["kind"] == "Pod" and is_binding(old, new):
                binding = self._node_room.binding("", to_value(new))
                if binding is not None:
                    self._refuse_overbooking(binding)
            return await then(old, new)

        return check

    # --- pods to nodes

    async def _bind(
        self, operations: Sequence[Operation], preconditions: Sequence[Precondition], old: Document, new: Document
    ) -> int:
        node_room, put = self._node_room, operations[0]
        assert isinstance(put, Put)
        binding = node_room.binding(put.key, put.value)
        if binding is None:
            return await self._then(operations, preconditions, old, new)
        for _ in range(ATTEMPTS):
            more_operations, more_preconditions = await self._node_turn(binding)
            self._refuse_overbooking(binding)
            node_room.take(binding)
            try:
                revision = await self._then(
                    [*operations, *more_operations], [*preconditions, *more_preconditions], old, new
                )
            except Conflict as conflict:
                node_room.give_back(binding)
                if set(conflict.keys) != {wanted.key for wanted in more_preconditions}:
                    raise
            except BaseException:
                node_room.give_back(binding)
                raise
            else:
                node_room.stored(binding)
                return revision
        raise errors.conflict(by_kind("Pod"), name_of(new), "its node is in high demand; try again")

    async def _node_turn(self, binding: PodBinding) -> tuple[list[Operation], list[Precondition]]:
        """What goes with a binding so that other servers notice; our caches have seen every binding before it."""
        if not self._several_servers:
            return [], []
        key = node_key(binding.node_name)
        entry = await self._store.get(key)
        revision = entry.revision if entry else 0
        await self._progress.wait_for(revision)
        return [Put(key, binding.ref.uid.encode())], [Precondition(key, revision)]

    def _refuse_overbooking(self, binding: PodBinding) -> None:
        short = self._node_room.shortages(binding)
        if short:
            why = "; ".join(row.detail for row in short)
            raise errors.conflict(
                by_kind("Pod"), binding.ref.name, f"node {binding.node_name}: {why}", subresource="binding"
            )


def is_binding(old: Document, new: Document) -> bool:
    return bool(text(new, "spec", "nodeName")) and not text(old, "spec", "nodeName")
