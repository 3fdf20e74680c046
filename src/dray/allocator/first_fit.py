"""The easy majority: claims without constraints on devices without counters or taints.

Taking the first matching devices in order is then what the search does until it meets its first dead end. Flattened,
since it runs for every node of a cluster: `bench_allocator`, "plain request", is five times slower without it.
"""

from __future__ import annotations

from dray.allocator.inventory import NodePools
from dray.allocator.ledger import NOTHING_TAKEN, Amounts, Ledger
from dray.allocator.pools import PoolView
from dray.allocator.requests import Option, Problem, named_error
from dray.allocator.shapes import Shape
from dray.allocator.types import FatalError

Items = tuple[tuple[str, int, int], ...]
Walk = tuple[list[tuple[Option, int]] | None, bool, int]
"""The solution, whether a missing one is final (else only a search can tell), and the steps taken."""

# The state of a pool of which nothing is taken.
NOTHING = (0, None)


def first_fit(problem: Problem, node: NodePools, ledger: Ledger) -> Walk:
    """Raises FatalError as the search would."""
    if len(problem.requests) == 1 and len(node.pools) == 1:
        return _first_in_pool(problem, node, ledger)
    return _first_everywhere(problem, node, ledger)


def _first_in_pool(problem: Problem, node: NodePools, ledger: Ledger) -> Walk:
    """One request, one pool: pools that look alike to the request share the walk."""
    view, use = node.pools[0], node.uses_in(ledger)[0]
    screen = problem.screens[0]
    lens = screen.lenses.get(view.shape) or screen.lens(view.shape)
    if use.version:
        taken = use.taken(view)
        key = (taken.dedicated, taken.consumed_key)
    else:
        key = NOTHING
    walks = lens.walks
    if key in walks:
        return walks[key], True, 0
    walk = _first_everywhere(problem, node, ledger)
    walks[key] = walk[0]
    return walk


def _first_everywhere(problem: Problem, node: NodePools, ledger: Ledger) -> Walk:
    shares = problem.features.consumable_capacity
    requests = problem.requests
    pools: list[tuple[PoolView, Shape, int, Rooms | None]] = []
    free: list[int] = []
    for view, use, offset in zip(node.pools, node.uses_in(ledger), node.offsets, strict=True):
        taken = use.taken(view) if use.version else NOTHING_TAKEN
        shape = view.shape
        is_shared = shares and (shape.allows_multiple or taken.consumed)
        pools.append((view, shape, offset, Rooms(shape.allows_multiple, taken.consumed) if is_shared else None))
        free.append(shape.every & ~taken.dedicated)
    chosen: list[tuple[Option, int]] = []
    steps = 0
    for request in requests:
        option = request.options[0]
        lenses = option.screen.lenses
        needed = option.count
        for index, (view, shape, offset, rooms) in enumerate(pools):
            lens = lenses.get(shape) or option.screen.lens(shape)
            candidates = (lens.yes | lens.unknown | lens.wrong | lens.late) & free[index]
            while candidates and needed > 0:
                low = candidates & -candidates
                candidates ^= low
                steps += 1
                if not lens.yes & low:
                    place = low.bit_length() - 1
                    if lens.unknown & low:
                        lens.ask(place)
                    if (lens.wrong | lens.late) & low:
                        message = named_error(lens.errors[place], view.device_id(place), option)
                        raise FatalError("selector-error", message)
                    if not lens.yes & low:
                        continue
                place = low.bit_length() - 1
                if rooms is None:
                    free[index] ^= low
                elif not rooms.enter(place, option.screen.amounts(shape.kinds[place]).items):
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


class Rooms:
    """What is left of the devices of one pool that are shared, or were."""

    __slots__ = ("_booked", "_shareable", "_stored")

    def __init__(self, shareable: int, stored: dict[int, Amounts]) -> None:
        self._shareable = shareable
        self._stored = stored
        self._booked: dict[int, list[Items]] = {}

    def enter(self, place: int, items: Items) -> bool:
        """Books one more share, if it goes into what is left."""
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
