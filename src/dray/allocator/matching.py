"""Bipartite matching on bit masks: demands for several devices each, and no device twice."""

from __future__ import annotations


class Matching:
    """Demands served so far. Devices are bits; a demand holds as many as it asked for."""

    __slots__ = ("_free", "_held", "_masks")

    def __init__(self) -> None:
        self._free = -1
        self._masks: list[int] = []
        self._held: list[int] = []

    def add(self, mask: int, count: int) -> bool:
        """Serves one more demand, moving devices between demands where needed; False if that is impossible."""
        own = len(self._masks)
        self._masks.append(mask)
        self._held.append(0)
        for _ in range(count):
            spare = mask & self._free
            if spare:
                device = spare & -spare
                self._held[own] |= device
                self._free ^= device
            elif not self._move_one_to(own):
                return False
        return True

    def _move_one_to(self, own: int) -> bool:
        """Breadth first from the demand that lacks a device to one that can use a spare device instead."""
        came_from = {own: (-1, 0)}
        queue = [own]
        for current in queue:
            spare = self._masks[current] & self._free
            if spare:
                device = spare & -spare
                self._free ^= device
                self._pass_along(current, device, came_from)
                return True
            for other, held in enumerate(self._held):
                useful = held & self._masks[current]
                if useful and other not in came_from:
                    came_from[other] = (current, useful & -useful)
                    queue.append(other)
        return False

    def _pass_along(self, current: int, device: int, came_from: dict[int, tuple[int, int]]) -> None:
        while True:
            self._held[current] |= device
            receiver, given = came_from[current]
            if receiver < 0:
                return
            self._held[current] &= ~given
            current, device = receiver, given

    def can_hold(self, mask: int) -> int:
        """Devices that the demand with this mask holds in at least one way of serving all demands."""
        own = self._masks.index(mask)
        # Devices that can be given up because somebody in a chain of exchanges has a spare one, or takes one of ours.
        movable = self._free | self._held[own]
        waiting = [demand for demand in range(len(self._masks)) if demand != own]
        progress = True
        while progress:
            progress = False
            for demand in list(waiting):
                if self._masks[demand] & movable:
                    movable |= self._held[demand]
                    waiting.remove(demand)
                    progress = True
        return mask & movable
