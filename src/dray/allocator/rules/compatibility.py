"""Compatibility groups: devices that draw from one counter set must have a group in common, or all have none."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from dray.allocator.requests import Option
from dray.allocator.rules import KindOf, Rule
from dray.api.dra.compatibility import Groups, groups_in_use, joined

SetKey = tuple[int, str]
"""Pool and counter set."""


class Compatibility(Rule):
    """The groups that the devices chosen so far, and those in use, have in common, by counter set.

    Only the first share of a device is tested: it brings the groups of the device along, and later shares change nothing.
    """

    name = "compatibility"

    kind_changes = True

    __slots__ = ("_current", "_groups", "_shareable", "_shared", "_undo")

    def __init__(
        self,
        groups: dict[int, tuple[tuple[SetKey, Groups], ...]],
        allocated: Iterable[tuple[SetKey, Groups]],
        shareable: int,
        shared: int,
    ) -> None:
        """`groups` by device position; `allocated` is what the pool's devices in use bring along, `shared` ones included."""
        self._groups = groups
        self._shareable = shareable
        self._shared = shared & shareable
        self._current: dict[SetKey, Groups] = groups_in_use(allocated)
        # By device, oldest entry first: what to restore when it leaves.
        self._undo: dict[int, list[dict[SetKey, Groups | None]]] = {}

    def enter(self, option: Option, position: int) -> bool:
        groups = self._groups.get(position)
        if groups is None:
            return True
        before: dict[SetKey, Groups | None] = {}
        if self._shared >> position & 1 or self.live_kind(position):
            groups = ()  # an earlier share has brought them along
        for key, brought in groups:
            current = self._current.get(key)
            together = joined(current, brought)
            if together is None:
                self._restore(before)
                return False
            before.setdefault(key, current)
            self._current[key] = together
        self._undo.setdefault(position, []).append(before)
        return True

    def _restore(self, before: dict[SetKey, Groups | None]) -> None:
        for key, groups in before.items():
            if groups is None:
                del self._current[key]
            else:
                self._current[key] = groups

    def leave(self, option: Option, position: int) -> None:
        if position in self._groups:
            entries = self._undo[position]
            self._restore(entries.pop())
            if not entries:
                del self._undo[position]

    def tied_devices(self) -> Iterable[int]:
        masks: dict[SetKey, int] = {}
        for position, groups in self._groups.items():
            for key, _ in groups:
                masks[key] = masks.get(key, 0) | 1 << position
        return masks.values()

    def kind(self, first_request: int, position: int) -> Hashable:
        groups = self._groups.get(position)
        return None if groups is None else (groups, self._shared >> position & 1)

    def live_kind(self, position: int) -> bool:
        return bool(self._shareable >> position & 1 and self._undo.get(position))

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        return frozenset(self._current.items())

    def why(self, option: Option, position: int) -> str:
        for key, brought in self._groups[position]:
            current = self._current.get(key)
            if joined(current, brought) is None:
                return f"groups {sorted(brought)} do not go with {sorted(current or ())} in counter set {key[1]}"
        return "groups are not compatible"
