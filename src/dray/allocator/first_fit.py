"""First fit without a search, for claims without constraints on devices without counters or taints.

The search would take the first matching devices in order, too, until it meets a dead end. This code is flattened because
it runs for every node of a cluster: `bench_allocator`, "plain request", is five times slower without it.
"""

from __future__ import annotations

from dray.allocator.device_kinds import Shape
from dray.allocator.inventory import NodePools
from dray.allocator.ledger import NOTHING_TAKEN, CapacitySums, Ledger
from dray.allocator.matches import named_error
from dray.allocator.pools import PoolView
from dray.allocator.requests import Option, Problem
from dray.allocator.types import FatalError

Items = tuple[tuple[str, int, int], ...]
FirstFit = tuple[list[tuple[Option, int]] | None, bool, int]
"""The solution, whether a missing one is final (else only a search can tell), and the steps taken."""

# The state of a pool of which nothing is taken.
NOTHING = (0, None)


def first_fit(problem: Problem, node: NodePools, ledger: Ledger) -> FirstFit:
    """Raises FatalError as the search would."""
    if len(problem.requests) == 1 and len(node.pools) == 1:
        return _first_in_pool(problem, node, ledger)
    return _first_everywhere(problem, node, ledger)


def _first_in_pool(problem: Problem, node: NodePools, ledger: Ledger) -> FirstFit:
    """One request, one pool: pools that look alike to the request share the found."""
    view, use = node.pools[0], node.uses_in(ledger)[0]
    device_filter = problem.filters[0]
    matches = device_filter.matches_by_shape.get(view.shape) or device_filter.matches(view.shape)
    if use.version:
        taken = use.taken(view)
        key = (taken.dedicated, taken.consumed_key)
    else:
        key = NOTHING
    first_fits = matches.first_fits
    if key in first_fits:
        return first_fits[key], True, 0
    found = _first_everywhere(problem, node, ledger)
    first_fits[key] = found[0]
    return found


def _first_everywhere(problem: Problem, node: NodePools, ledger: Ledger) -> FirstFit:
    shares = problem.features.consumable_capacity
    requests = problem.requests
    pools: list[tuple[PoolView, Shape, int, SharesLeft | None]] = []
    free: list[int] = []
    for view, use, offset in zip(node.pools, node.uses_in(ledger), node.offsets, strict=True):
        taken = use.taken(view) if use.version else NOTHING_TAKEN
        shape = view.shape
        is_shared = shares and (shape.allows_multiple or taken.consumed)
        pools.append((view, shape, offset, SharesLeft(shape.allows_multiple, taken.consumed) if is_shared else None))
        free.append(shape.every & ~taken.dedicated)
    chosen: list[tuple[Option, int]] = []
    steps = 0
    for request in requests:
        option = request.options[0]
        matches_by_shape = option.device_filter.matches_by_shape
        needed = option.count
        for index, (view, shape, offset, shares_left) in enumerate(pools):
            matches = matches_by_shape.get(shape) or option.device_filter.matches(shape)
            candidates = (matches.yes | matches.unknown | matches.wrong | matches.late) & free[index]
            while candidates and needed > 0:
                low = candidates & -candidates
                candidates ^= low
                steps += 1
                if not matches.yes & low:
                    place = low.bit_length() - 1
                    if matches.unknown & low:
                        matches.ask(place)
                    if (matches.wrong | matches.late) & low:
                        message = named_error(matches.errors[place], view.device_id(place), option)
                        raise FatalError("selector-error", message)
                    if not matches.yes & low:
                        continue
                place = low.bit_length() - 1
                if shares_left is None:
                    free[index] ^= low
                elif not shares_left.enter(place, option.device_filter.amounts(shape.kinds[place]).items):
                    continue
                elif not shape.allows_multiple & low:
                    free[index] ^= low
                chosen.append((option, offset + place))
                needed -= 1
            if needed <= 0:
                break
        if needed > 0:
            return None, len(requests) == 1, steps
    return chosen, True, steps


class SharesLeft:
    """The remaining capacity of the devices of one pool that are or were shared."""

    __slots__ = ("_booked", "_shareable", "_stored")

    def __init__(self, shareable: int, stored: dict[int, CapacitySums]) -> None:
        self._shareable = shareable
        self._stored = stored
        self._booked: dict[int, list[Items]] = {}

    def enter(self, place: int, items: Items) -> bool:
        """Books one more share if the remaining capacity suffices."""
        stored = self._stored.get(place)
        booked = self._booked.get(place)
        if stored or booked:
            for position, (name, published, amount) in enumerate(items):
                if stored:
                    amount += stored.get(name, 0)
                for share in booked or ():
                    amount += share[position][2]
                if amount > published:
                    return False
        if self._shareable >> place & 1:
            if booked is None:
                self._booked[place] = [items]
            else:
                booked.append(items)
        return True
