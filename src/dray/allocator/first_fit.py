"""The easy majority: claims without constraints on devices without counters or taints.

Taking the first matching devices in order is then what the search does until it meets its first dead end. Flattened,
since it runs for every node of a cluster: `bench_allocator`, "plain request", is four times slower without it.
"""

from __future__ import annotations

from dray.allocator.inventory import NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.pools import PoolView
from dray.allocator.requests import Option, Problem, named_error
from dray.allocator.types import FatalError

Items = tuple[tuple[str, int, int], ...]


class FirstFit:
    """One walk over a node. `is_decided` without a solution: there is none; undecided: only a search can tell."""

    __slots__ = ("_booked", "_ledger", "_node", "chosen", "is_decided", "steps")

    def __init__(self, node: NodePools, ledger: Ledger) -> None:
        self._node = node
        self._ledger = ledger
        self._booked: dict[tuple[int, int], list[Items]] | None = None
        self.chosen: list[tuple[Option, int]] = []
        self.is_decided = True
        self.steps = 0

    def run(self, problem: Problem) -> list[tuple[Option, int]] | None:
        """Raises FatalError as the search would."""
        node, ledger = self._node, self._ledger
        free = [view.shape.every & ~ledger.taken(view).dedicated for view in node.pools]
        shares = problem.features.consumable_capacity
        for request in problem.requests:
            if not self._serve(request.options[0], free, shares):
                self.is_decided = len(problem.requests) == 1
                return None
        return self.chosen

    def _serve(self, option: Option, free: list[int], shares: bool) -> bool:
        screen = option.screen
        needed = option.count
        node = self._node
        for index, view in enumerate(node.pools):
            if needed <= 0:
                break
            shape = view.shape
            lens = screen.lenses.get(shape) or screen.lens(shape)
            candidates = (lens.yes | lens.unknown | lens.wrong | lens.late) & free[index]
            while candidates:
                low = candidates & -candidates
                candidates ^= low
                place = low.bit_length() - 1
                self.steps += 1
                if lens.unknown & low:
                    lens.ask(place)
                if not lens.yes & low:
                    if (lens.wrong | lens.late) & low:
                        message = named_error(lens.errors[place], view.device_id(place), option)
                        raise FatalError("selector-error", message)
                    continue
                if shares and not self._has_room(option, index, view, place):
                    continue
                if not shares or not shape.allows_multiple & low:
                    free[index] ^= low
                self.chosen.append((option, node.offsets[index] + place))
                needed -= 1
                if not needed:
                    break
        return needed <= 0

    def _has_room(self, option: Option, index: int, view: PoolView, place: int) -> bool:
        """Books a share, if one more goes into what is left of the device."""
        is_shareable = view.shape.allows_multiple >> place & 1
        stored = self._ledger.taken(view).consumed.get(place)
        if not is_shareable and not stored:
            return True
        items = option.screen.amounts(view.shape.kinds[place]).items
        if self._booked is None:
            self._booked = {}
        booked = self._booked.get((index, place), ())
        for position, (name, published, amount) in enumerate(items):
            if stored:
                amount += stored.get(name, 0)
            for share in booked:
                amount += share[position][2]
            if amount > published:
                return False
        if is_shareable:
            self._booked.setdefault((index, place), []).append(items)
        return True
