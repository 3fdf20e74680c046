"""Fragmentation of a node: the part of its devices that will probably stay unused, given the mix of pods that the cluster has seen.

A `Bin` is what several requests share: a device that allows many allocations, a set of counters that partitions draw from, or a device
for one claim. A `Room` is what is left on a node: cpu, memory and bins. Nothing here knows what a device is for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import ge

from dray.allocator.device_kinds import DeviceKind
from dray.allocator.inventory import NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.pools import PoolView
from dray.allocator.requests import Option, Problem
from dray.allocator.types import bits
from dray.api.dra.taints import first_untolerated

Amounts = tuple[int, ...]

# How many further requests a device is expected to see before its use no longer matters. More make little difference.
HORIZON = 40
SHORT_HORIZON = 8
# Amounts are rounded to this part of the whole before they are looked ahead with.
FINE_STEPS = 100
COARSE_STEPS = 20
# Rooms and bins that are remembered; they are forgotten together when there are more.
MOST_ROOMS = 200_000
UNITS = 1_000_000_000
"""The points of one device in a score."""


class DeviceAsk:
    """One request of a pod: how many devices, and what it takes of each kind of bin."""

    __slots__ = ("_uses", "count", "options")

    def __init__(self, options: Sequence[Option]) -> None:
        self.options = tuple(options)
        # A request for all devices of a node counts as one: how many these are differs from node to node.
        self.count = max(1, options[0].count if not options[0].all_devices else 1)
        self._uses: dict[BinKind, tuple[Amounts, ...]] = {}

    def uses(self, kind: BinKind) -> tuple[Amounts, ...]:
        """The amounts that it may take from such a bin, smallest first; empty if it cannot be served from one."""
        known = self._uses.get(kind)
        if known is None:
            known = self._uses[kind] = kind.uses_of(self)
        return known


class PodShape:
    """Pods that ask for the same: cpu, memory and devices."""

    __slots__ = ("asks", "cpu", "memory")

    def __init__(self, cpu: int, memory: int, problem: Problem | None) -> None:
        self.cpu = cpu
        self.memory = memory
        requests = problem.requests if problem is not None else []
        self.asks = tuple([DeviceAsk(request.options) for request in requests if not request.options[0].admin_access])


@dataclass(frozen=True, slots=True)
class DrawingDevice:
    """A device that a bin serves, and the amounts that it draws from the bin; None: what the request says."""

    kind: DeviceKind
    draws: Amounts | None


class BinKind:
    """Bins that are alike but for what is left of them."""

    __slots__ = ("_bins", "devices", "fragmentation", "is_shared", "names", "totals", "unused")

    def __init__(
        self, fragmentation: Fragmentation, names: tuple[str, ...], totals: Amounts, devices: tuple[DrawingDevice, ...]
    ) -> None:
        self.fragmentation = fragmentation
        self.names = names
        self.totals = totals
        self.devices = devices
        self.is_shared = all(use.draws is None for use in devices)
        self.unused = Outlook(totals, list(self._expected(fragmentation.asks)), fragmentation.outlooks)
        self._bins: dict[Amounts, Bin] = {}

    def uses_of(self, ask: DeviceAsk) -> tuple[Amounts, ...]:
        found = {amounts for use in self.devices for amounts in self._amounts(ask, use)}
        return tuple(sorted(found, key=lambda amounts: part_of(amounts, self.totals)))

    def _amounts(self, ask: DeviceAsk, use: DrawingDevice) -> Iterator[Amounts]:
        option = next((option for option in ask.options if _matches(option, use.kind)), None)
        if option is None:
            return
        if use.draws is not None:
            yield use.draws
            return
        taken = {name: amount for name, _, amount in option.amounts(use.kind).items}
        yield tuple([taken.get(name, 0) for name in self.names])

    def amounts_on(self, ask: DeviceAsk, kind: DeviceKind) -> Amounts | None:
        """The amounts that the request takes through a device of this kind; None if it does not match."""
        use = next((use for use in self.devices if use.kind is kind), None)
        return next(self._amounts(ask, use), None) if use is not None else None

    def _expected(self, asks: Iterable[tuple[DeviceAsk, float]]) -> Iterator[tuple[tuple[Amounts, ...], float]]:
        for ask, share in asks:
            uses = ask.uses(self)
            if uses:
                yield uses, share

    def bin(self, left: Amounts) -> Bin:
        known = self._bins.get(left)
        if known is None:
            known = self._bins[left] = Bin(self, left, len(self.fragmentation.bins))
            self.fragmentation.bins.append(known)
        return known


def _matches(option: Option, kind: DeviceKind) -> bool:
    if option.device_filter.verdict(kind) is not True:
        return False
    return not kind.taints or first_untolerated(kind.taints, option.tolerations) is None


def part_of(amounts: Amounts, totals: Amounts) -> float:
    """0 to 1: the mean over all dimensions."""
    return sum([amount / total for amount, total in zip(amounts, totals, strict=True)]) / len(totals)


class Bin:
    """One bin with what is left of it."""

    __slots__ = ("_after", "free", "kind", "left", "number", "serves", "several", "unused")

    def __init__(self, kind: BinKind, left: Amounts, number: int) -> None:
        self.kind = kind
        self.left = left
        self.number = number
        self.free = part_of(left, kind.totals)
        self.unused = kind.unused.expected(left)
        # Asks of the mix that one such bin can serve, as a mask, and how many devices it has for those that want several.
        self.serves = 0
        several: list[int] = []
        for index, (ask, _) in enumerate(kind.fragmentation.asks):
            served = self._devices_for(ask)
            if served and ask.count == 1:
                self.serves |= 1 << index
            if ask.count > 1:
                several.append(served)
        self.several = tuple(several)
        self._after: dict[DeviceAsk, Bin | None] = {}

    def _devices_for(self, ask: DeviceAsk) -> int:
        for amounts in ask.uses(self.kind):
            if _holds(self.left, amounts):
                if self.kind.is_shared or ask.count == 1:
                    return 1
                return min(have // wanted for have, wanted in zip(self.left, amounts, strict=True) if wanted)
        return 0

    def after(self, ask: DeviceAsk) -> Bin | None:
        """This bin with one more device or share taken for the request; None if it cannot serve it."""
        if ask not in self._after:
            uses = [amounts for amounts in ask.uses(self.kind) if _holds(self.left, amounts)]
            self._after[ask] = self.without(uses[0]) if uses else None
        return self._after[ask]

    def without(self, amounts: Amounts) -> Bin:
        return self.kind.bin(tuple([have - taken for have, taken in zip(self.left, amounts, strict=True)]))


def _holds(left: Amounts, amounts: Amounts) -> bool:
    return all(map(ge, left, amounts))


class Outlook:
    """How much of a bin is expected to be left when further requests of the mix have come, each served if it fits."""

    __slots__ = ("_asks", "_known", "_steps", "_totals", "horizon")

    def __init__(
        self,
        totals: Amounts,
        asks: list[tuple[tuple[Amounts, ...], float]],
        known: dict[Hashable, dict[tuple[Amounts, int], float]],
    ) -> None:
        self._totals = totals
        self._steps = FINE_STEPS if len(totals) == 1 else COARSE_STEPS
        self.horizon = HORIZON if len(totals) == 1 else SHORT_HORIZON
        together: dict[tuple[Amounts, ...], float] = {}
        for uses, share in asks:
            rounded = tuple([self._rounded_up(amounts) for amounts in uses])
            together[rounded] = together.get(rounded, 0.0) + share
        self._asks = tuple(together.items())
        # Bins of different kinds that the mix uses alike have one table.
        self._known = known.setdefault((len(totals), self._asks), {})

    def _rounded_up(self, amounts: Amounts) -> Amounts:
        return tuple([-(-amount * self._steps // total) for amount, total in zip(amounts, self._totals, strict=True)])

    def expected(self, left: Amounts) -> float:
        rounded = tuple([have * self._steps // total for have, total in zip(left, self._totals, strict=True)])
        return self._after(rounded, self.horizon)

    def _after(self, left: Amounts, horizon: int) -> float:
        if not horizon:
            return sum(left) / len(left) / self._steps
        key = (left, horizon)
        known = self._known.get(key)
        if known is None:
            expected, stays = 0.0, 1.0
            for uses, share in self._asks:
                for amounts in uses:
                    if _holds(left, amounts):
                        then = tuple([have - taken for have, taken in zip(left, amounts, strict=True)])
                        expected += share * self._after(then, horizon - 1)
                        stays -= share
                        break
            known = expected + stays * (
                self._after(left, horizon - 1) if stays < 1.0 else sum(left) / len(left) / self._steps
            )
            self._known[key] = known
        return known


class Room:
    """What is left on a node. Nodes with equal rooms share one object, and so its scores."""

    __slots__ = ("bins", "cpu", "free", "memory", "scores", "waste")

    def __init__(self, cpu: int, memory: int, bins: tuple[Bin, ...], waste: float) -> None:
        self.cpu = cpu
        self.memory = memory
        self.bins = bins
        self.free = sum([each.free for each in bins])
        self.waste = waste
        self.scores: dict[PodShape, int] = {}


class Fragmentation:
    """Measures rooms against a mix of pods: shapes with their shares."""

    def __init__(self, mix: Iterable[tuple[PodShape, int]]) -> None:
        counted = [(shape, count) for shape, count in mix if shape.asks]
        total = sum(count for _, count in counted) or 1
        self.shapes = [(shape, count / total) for shape, count in counted]
        asks = [(ask, share) for shape, share in self.shapes for ask in shape.asks]
        # Each ask is one arrival; their shares add up to one.
        arrivals = sum(share for _, share in asks) or 1.0
        self.asks = [(ask, share / arrivals) for ask, share in asks]
        self.outlooks: dict[Hashable, dict[tuple[Amounts, int], float]] = {}
        self.bins: list[Bin] = []
        self._kinds: dict[Hashable, BinKind | None] = {}
        self._rooms: dict[Hashable, Room] = {}
        self._several = [(1 << index, ask.count) for index, (ask, _) in enumerate(self.asks) if ask.count > 1]
        self._wanted = list(self._asks_of_shapes())
        self._by_cpu = _Thresholds([shape.cpu for shape, _ in self.shapes])
        self._by_memory = _Thresholds([shape.memory for shape, _ in self.shapes])
        self._served: dict[int, int] = {}
        self._shares: dict[int, float] = {}

    def _asks_of_shapes(self) -> Iterator[int]:
        index = 0
        for shape, _ in self.shapes:
            yield ((1 << len(shape.asks)) - 1) << index
            index += len(shape.asks)

    # --- rooms

    def room(self, cpu: int, memory: int, bins: Iterable[Bin]) -> Room:
        in_order = tuple(sorted(bins, key=_number))
        key = (cpu, memory, in_order)
        known = self._rooms.get(key)
        if known is None:
            if len(self._rooms) >= MOST_ROOMS:
                self._rooms.clear()
            known = self._rooms[key] = Room(cpu, memory, in_order, self.waste(cpu, memory, in_order))
        return known

    def waste(self, cpu: int, memory: int, bins: Sequence[Bin]) -> float:
        """Devices that will probably stay unused: those that no pod of the mix fills up, and all that is free for
        the pods that do not fit on the node at all."""
        free = unused = 0.0
        serves = 0
        for each in bins:
            free += each.free
            unused += each.unused
            serves |= each.serves
        if not free:
            return 0.0
        if self._several:
            served = map(sum, zip(*[each.several for each in bins], strict=True))
            for (bit, count), devices in zip(self._several, served, strict=True):
                if devices >= count:
                    serves |= bit
        fitting = self._by_cpu.up_to(cpu) & self._by_memory.up_to(memory) & self._shapes_served(serves)
        return unused + free * (1.0 - self._share_of(fitting))

    def _shapes_served(self, serves: int) -> int:
        known = self._served.get(serves)
        if known is None:
            known = 0
            for index, wanted in enumerate(self._wanted):
                if wanted & serves == wanted:
                    known |= 1 << index
            self._served[serves] = known
        return known

    def _share_of(self, shapes: int) -> float:
        known = self._shares.get(shapes)
        if known is None:
            known = self._shares[shapes] = sum([self.shapes[index][1] for index in bits(shapes)])
        return known

    # --- placing

    def score(self, room: Room, shape: PodShape) -> int:
        """Points for placing such a pod here: the less waste it adds, the more. Among equals, fuller nodes get more.

        The room remembers them.
        """
        added = self._with(room, shape) - room.waste
        points = room.scores[shape] = -round((added + room.free * 1e-6) * UNITS) - room.cpu // 1000
        return points

    def _with(self, room: Room, shape: PodShape) -> float:
        cpu, memory, bins = room.cpu - shape.cpu, room.memory - shape.memory, list(room.bins)
        waste = None
        for ask in shape.asks:
            used: set[int] = set()
            for _ in range(ask.count):
                best = self._best_bin(cpu, memory, bins, ask, used)
                if best is None:
                    break
                waste, at, after = best
                bins[at] = after
                if after.kind.is_shared:
                    used.add(at)
        return waste if waste is not None else self.waste(cpu, memory, bins)

    def _best_bin(
        self, cpu: int, memory: int, bins: list[Bin], ask: DeviceAsk, used: set[int]
    ) -> tuple[float, int, Bin] | None:
        """(waste, place, bin afterwards) where one more device for the request adds the least waste."""
        best: tuple[float, int, Bin] | None = None
        seen: set[Bin] = set()
        for at, each in enumerate(bins):
            if each in seen or at in used:
                continue
            seen.add(each)
            after = each.after(ask)
            if after is None:
                continue
            bins[at] = after
            waste = self.waste(cpu, memory, bins)
            bins[at] = each
            if best is None or waste < best[0]:
                best = (waste, at, after)
        return best

    # --- bins of a node

    def bins_on(self, pools: NodePools, ledger: Ledger) -> list[Bin]:
        return [each for _, each in self._placed_bins(pools, ledger) if each.free]

    def _placed_bins(self, pools: NodePools, ledger: Ledger) -> Iterator[tuple[tuple[int, ...], Bin]]:
        """Bins of the node's own pools with the positions of their devices; devices that several nodes can reach do not count."""
        for view, offset in zip(pools.pools, pools.offsets, strict=True):
            if view.is_local:
                yield from self._bins_of_pool(view, offset, ledger)

    def _bins_of_pool(self, view: PoolView, offset: int, ledger: Ledger) -> Iterator[tuple[tuple[int, ...], Bin]]:
        taken = ledger.taken(view)
        for place, device in enumerate(view.shape.kinds):
            if device.consumes and view.counters is not None:
                continue
            if taken.dedicated >> place & 1:
                continue
            kind = self._kinds[device] if device in self._kinds else self._kind(device)
            if kind is None:
                continue
            left, used = kind.totals, taken.consumed.get(place)
            if used and kind.is_shared:
                left = tuple(
                    [max(0, all_of - used.get(name, 0)) for name, all_of in zip(kind.names, left, strict=True)]
                )
            yield (offset + place,), kind.bin(left)
        if view.counters is not None and view.shape.consumes:
            yield from self._counter_bins(view, offset, ledger)

    def _kind(self, device: DeviceKind) -> BinKind | None:
        """A device as a bin; None for one that any number of claims may have, since it has no capacity that they divide."""
        totals = {"device": 1}
        if device.allows_multiple:
            capacity = device.device.capacity
            totals = {name: each.value.nanos for name, each in capacity.items() if each.value.nanos > 0}
        use = DrawingDevice(device, None if device.allows_multiple else (1,))
        kind = BinKind(self, tuple(totals), tuple(totals.values()), (use,)) if totals else None
        self._kinds[device] = kind
        return kind

    def _counter_bins(self, view: PoolView, offset: int, ledger: Ledger) -> Iterator[tuple[tuple[int, ...], Bin]]:
        """One bin for each group of counters that devices draw from together."""
        assert view.counters is not None
        available = ledger.counters(view).available
        for counters, places in counter_groups(view):
            totals = tuple([view.counters.totals[counter] for counter in counters])
            if not all(total > 0 for total in totals):
                continue
            key = (view.shape, counters, totals)
            kind = self._kinds.get(key)
            if kind is None:
                uses: dict[DrawingDevice, None] = {}
                for place in places:
                    drawn = dict(view.counters.drawn_by(view.shape.kinds[place]))
                    uses[DrawingDevice(view.shape.kinds[place], tuple([drawn.get(each, 0) for each in counters]))] = (
                        None
                    )
                kind = self._kinds[key] = BinKind(self, tuple(map(str, counters)), totals, tuple(uses))
            left = tuple([max(0, available[counter]) for counter in counters])
            yield tuple([offset + place for place in places]), kind.bin(left)

    # --- devices within a node

    def waste_by_device(
        self, pools: NodePools, ledger: Ledger, option: Option, cpu: int, memory: int
    ) -> dict[int, float]:
        """For each device that may serve the request, the waste on its node once the request has it."""
        placed = list(self._placed_bins(pools, ledger))
        bins = [each for _, each in placed]
        ask = DeviceAsk([option])
        found: dict[int, float] = {}
        known: dict[tuple[Bin, DeviceKind], float | None] = {}
        for at, (positions, each) in enumerate(placed):
            for position in positions:
                view, place = pools.locate(position)
                key = (each, view.shape.kinds[place])
                if key not in known:
                    amounts = each.kind.amounts_on(ask, key[1])
                    bins[at] = each.without(amounts) if amounts is not None and _holds(each.left, amounts) else each
                    known[key] = self.waste(cpu, memory, bins) if bins[at] is not each else None
                waste = known[key]
                if waste is not None:
                    found[position] = waste
            bins[at] = each
        return found


def counter_groups(view: PoolView) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(counters, places of devices): counters that some device draws from together are in one group."""
    assert view.counters is not None
    group_of: dict[int, set[int]] = {}
    drawn_at: dict[int, list[int]] = {}
    for place in bits(view.shape.consumes):
        drawn = [counter for counter, _ in view.counters.drawn_by(view.shape.kinds[place])]
        if not drawn:
            continue
        drawn_at[place] = drawn
        merged = set(drawn).union(*[group_of.get(counter, set()) for counter in drawn])
        for counter in merged:
            group_of[counter] = merged
    places: dict[tuple[int, ...], list[int]] = {}
    for place, drawn in drawn_at.items():
        places.setdefault(tuple(sorted(group_of[drawn[0]])), []).append(place)
    return [(counters, tuple(members)) for counters, members in places.items()]


def _number(each: Bin) -> int:
    return each.number


class _Thresholds:
    """Which shapes ask for no more than an amount, as masks."""

    __slots__ = ("_amounts", "_masks")

    def __init__(self, amounts: Sequence[int]) -> None:
        in_order = sorted(range(len(amounts)), key=amounts.__getitem__)
        self._amounts = [amounts[index] for index in in_order]
        self._masks = [0]
        for index in in_order:
            self._masks.append(self._masks[-1] | 1 << index)

    def up_to(self, amount: int) -> int:
        return self._masks[bisect_right(self._amounts, amount)]
