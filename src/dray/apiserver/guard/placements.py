"""What the pods of each node take from it, kept next to the pod cache; bindings ask whether there is room for one more.

Pods are read when a binding asks for their node, not when they change, and of many changes of a pod only the last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dray.accounting import (
    AccountingError,
    ClusterLedger,
    Demand,
    NoFit,
    PodRef,
    RequestOptions,
    Shortage,
    pod_demand,
)
from dray.accounting.device_charges import takes_from_node
from dray.api.codec import decode
from dray.api.core import Node, Pod
from dray.api.errors import DecodeError
from dray.apiserver.watch.kind_cache import KindCache
from dray.apiserver.watch.stored_object import Stored
from dray.apiserver.watch.watchers import (
    Event,
    Selection,
    Watcher,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# How every pod that has a node is written in the store. Finding it in a pod without one only costs a look.
_HAS_NODE = b'"nodeName":'


# Changes that wait for a binding to be looked at.
MOST_CHANGES = 4096


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _PodOnNode(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_decode_node = msgspec.json.Decoder(_PodOnNode).decode


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod that is about to get its node; `value` is the pod as it will be stored."""

    key: str
    node_name: str
    ref: PodRef
    demand: Demand
    value: bytes


class _Follower(Watcher):
    """Notes which pods changed. It is closed when the cache starts over; then everything is read again."""

    __slots__ = ("_catch_up", "changed")

    def __init__(self, catch_up: Callable[[], None]) -> None:
        super().__init__(Selection(), _Plain(), 0)
        self.changed: dict[str, Stored | None] = {}
        self._catch_up = catch_up

    def offer(self, event: Event) -> None:
        about = event.new or event.old
        assert about is not None
        self.changed[about.key] = event.new
        if len(self.changed) >= MOST_CHANGES:
            # Pods come and go also where nobody is ever bound.
            self._catch_up()


class _Plain:
    def encode(self, stored: Stored) -> bytes:
        return stored.data()


class Placements:
    """Every node's ledger, with pods that are being bound right now."""

    def __init__(self, pods: Callable[[], KindCache], nodes: Callable[[], KindCache], counts: RequestOptions) -> None:
        self._pods = pods
        self._nodes = nodes
        self._counts = counts
        self._ledger = ClusterLedger()
        self._refs: dict[str, PodRef] = {}
        # Pods that have changed since their node was asked for last: by node and key, and where each key is.
        self._unread: dict[str, dict[str, Stored]] = {}
        self._unread_on: dict[str, str] = {}
        self._declared: dict[str, tuple[Stored, frozenset[str]]] = {}
        self._follower: _Follower | None = None
        # Between the answer of `take` and the call of `stored` or `give_back`.
        self._under_way: dict[str, Binding] = {}
        # Stored, but not yet seen in the cache.
        self._expected: dict[str, Binding] = {}

    # --- what a binding does

    def binding(self, key: str, value: bytes) -> Binding | None:
        """None if the pod cannot be read: then it is not counted either."""
        pod = _readable(Pod, value)
        demand = self._demand(pod) if pod is not None else None
        if pod is None or demand is None:
            return None
        return Binding(key, pod.spec.node_name, PodRef.of(pod), demand, value)

    def shortages(self, binding: Binding) -> list[Shortage]:
        """What the node would give away more of than it has. Only what it says it has counts."""
        self._catch_up()
        for key, stored in self._unread.pop(binding.node_name, {}).items():
            del self._unread_on[key]
            self._read(key, stored)
        declared = self._declares(binding.node_name)
        if not declared:
            return []
        ledger = self._ledger.nodes[binding.node_name]
        answer = ledger.fits(binding.demand)
        if not isinstance(answer, NoFit):
            return []
        found = (refusal for refusal in answer.refusals if isinstance(refusal, Shortage))
        # Of an extended resource with nothing in the node's status, devices take care.
        return [row for row in found if row.claim or (row.resource in declared and (row.capacity or _is_basic(row)))]

    def take(self, binding: Binding) -> None:
        """The room is the pod's until `stored` or `give_back` is called."""
        self._under_way[binding.key] = binding
        self._enter(binding)

    def stored(self, binding: Binding) -> None:
        """It is in the store; the room stays taken until the cache shows the pod."""
        self._under_way.pop(binding.key, None)
        if self._is_assumed(binding):
            self._expected[binding.key] = binding

    def give_back(self, binding: Binding) -> None:
        self._under_way.pop(binding.key, None)
        if self._is_assumed(binding):
            self._ledger.forget(binding.node_name, binding.ref)

    # --- following the cache

    def _catch_up(self) -> None:
        follower = self._follower
        if follower is None or follower.closed:
            self._start_over()
        elif follower.changed:
            changed, follower.changed = follower.changed, {}
            for key, stored in changed.items():
                self._note(key, stored)

    def _start_over(self) -> None:
        self._follower = _Follower(self._catch_up)
        cache = self._pods()
        cache.watch(self._follower)
        self._ledger, self._refs, self._expected = ClusterLedger(), {}, {}
        self._unread, self._unread_on = {}, {}
        self._declared.clear()
        for stored in cache.list():
            self._note(stored.key, stored)
        for binding in self._under_way.values():
            self._enter(binding)

    def _note(self, key: str, stored: Stored | None) -> None:
        expected = self._expected.pop(key, None)
        waiting_on = self._unread_on.pop(key, None)
        if waiting_on is not None:
            del self._unread[waiting_on][key]
        ours = expected or self._under_way.get(key)
        if ours is not None and stored is not None and ours.value == stored.value:
            self._place(key, ours.node_name, ours.ref, ours.demand)
            return
        if expected is not None and self._is_assumed(expected):
            self._ledger.forget(expected.node_name, expected.ref)
        node_name = _node_of(stored)
        ref = self._refs.get(key)
        if ref is not None and self._ledger.node_of(ref) != node_name:
            self._drop(key)
        if stored is not None and node_name:
            self._unread.setdefault(node_name, {})[key] = stored
            self._unread_on[key] = node_name

    def _read(self, key: str, stored: Stored) -> None:
        pod = _readable(Pod, stored.value)
        demand = self._demand(pod) if pod is not None and takes_from_node(pod) else None
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

    def _enter(self, binding: Binding) -> None:
        if self._ledger.node_of(binding.ref) is None:
            self._ledger.assume(binding.node_name, binding.ref, binding.demand)

    def _is_assumed(self, binding: Binding) -> bool:
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
        stored = self._nodes().get("", name)
        if stored is None:
            return frozenset()
        known = self._declared.get(name)
        if known is None or known[0] is not stored or name not in self._ledger.nodes:
            node = _readable(Node, stored.value)
            if node is None:
                return frozenset()
            self._ledger.set_node(node)
            known = self._declared[name] = stored, frozenset(node.status.allocatable)
        return known[1]


def _node_of(stored: Stored | None) -> str:
    """Without reading all of the pod; empty if it has no node."""
    if stored is None or _HAS_NODE not in stored.value:
        return ""
    try:
        return _decode_node(stored.value).spec.node_name
    except msgspec.MsgspecError:
        return ""


def _is_basic(row: Shortage) -> bool:
    """Zero of it means zero: no device will serve it instead."""
    return "/" not in row.resource


def _readable(kind: type[T], value: bytes) -> T | None:
    try:
        return decode(kind, value)
    except (DecodeError, msgspec.MsgspecError, ValueError):
        log.warning("cannot read a %s: it is not counted", kind.__name__)
        return None
