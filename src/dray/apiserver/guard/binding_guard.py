"""Bindings into the store: no node is overbooked.

The check of a binding and its commit belong together, also when several bind to one node at the same moment. On one server the
room is taken in memory until the pod is stored. Where several servers share a store, a key per node changes with every
binding, on condition that nobody changed it since the room was looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.safe_get import (
    name_of,
    text,
)
from dray.api.scheme import by_kind
from dray.apiserver import errors
from dray.apiserver.core import Commit, CommitCheck
from dray.apiserver.guard.node_room import (
    NodeRoom,
    PodBinding,
)
from dray.apiserver.request.request_info import Document
from dray.apiserver.watch.store_follower import Progress
from dray.apiserver.watch.stored_object import GUARD, to_value
from dray.store.errors import Conflict
from dray.store.interface import Delete, Operation, Precondition, Put, Store

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

        async def check(old: Document | None, new: Document | None) -> object:
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
