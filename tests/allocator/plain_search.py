"""The allocation rules once more, in the plainest way that could work: no masks, no kinds, no memory, no bounds.

A second opinion for small worlds. It evaluates selectors with a table of Python functions and finds the first solution
by trying everything in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dray.api.resource import Device, DeviceCapacity, ResourceClaim, ResourceSlice

TEXT = 'device.attributes["gpu.example.com"]'


class Wrong(Exception):
    """The error outcome."""


class TooLong(Exception):
    """More steps than allowed."""


def _model(device: Device) -> str:
    if "model" not in device.attributes:
        raise Wrong("no such key: model")
    return device.attributes["model"].string or ""


SELECTORS: dict[str, Callable[[Device], bool]] = {
    "true": lambda device: True,
    f'{TEXT}.model == "a"': lambda device: _model(device) == "a",
    f'{TEXT}.model == "b"': lambda device: _model(device) == "b",
    f'"model" in {TEXT}': lambda device: "model" in device.attributes,
    f"{TEXT}.index >= 2": lambda device: (device.attributes["index"].int_ or 0) >= 2,
    f"{TEXT}.index <= 2": lambda device: (device.attributes["index"].int_ or 0) <= 2,
}

Chosen = tuple[int, str, str, str]
"""Claim, request as the result names it, pool, device."""


@dataclass
class Known:
    """One device with its slice, and what stored claims hold of it."""

    pool: str
    device: Device
    dedicated: bool = False
    shares: int = 0
    consumed: dict[str, int] = field(default_factory=dict)

    @property
    def shareable(self) -> bool:
        return bool(self.device.allow_multiple_allocations)


class World:
    def __init__(self, slices: list[ResourceSlice], holders: list[ResourceClaim]) -> None:
        self.devices: list[Known] = []
        self.totals: dict[tuple[str, str, str], int] = {}
        for published in sorted(slices, key=lambda one: (one.spec.pool.name, one.metadata.name)):
            for counter_set in published.spec.shared_counters:
                for name, counter in counter_set.counters.items():
                    self.totals[published.spec.pool.name, counter_set.name, name] = counter.value.nanos
            if not published.spec.shared_counters:
                self.devices += [Known(published.spec.pool.name, device) for device in published.spec.devices]
        for holder in holders:
            assert holder.status.allocation is not None
            for result in holder.status.allocation.devices.results:
                if not result.admin_access:
                    self._hold(result)
        self.left = dict(self.totals)
        for known in self.devices:
            if known.dedicated or known.shares:
                for key, amount in self.drawn(known):
                    self.left[key] -= amount

    def _hold(self, result: Any) -> None:
        for known in self.devices:
            if (known.pool, known.device.name) == (result.pool, result.device):
                if result.share_id is None:
                    known.dedicated = True
                else:
                    known.shares += 1
                    for name, amount in result.consumed_capacity.items():
                        known.consumed[name] = known.consumed.get(name, 0) + amount.nanos

    def drawn(self, known: Known) -> Iterator[tuple[tuple[str, str, str], int]]:
        for consumption in known.device.consumes_counters:
            for name, counter in consumption.counters.items():
                yield (known.pool, consumption.counter_set, name), counter.value.nanos


class PlainSearch:
    def __init__(self, world: World, claims: list[ResourceClaim], most_steps: int | None = None) -> None:
        self.world = world
        self.claims = claims
        self.steps = 0
        self.most_steps = most_steps
        self.chosen: list[tuple[int, str, Any, Known]] = []
        # What a device is to a request, whatever else is chosen.
        self._selected: dict[tuple[int, int], bool] = {}
        self._asked: dict[tuple[int, int], dict[str, int] | None] = {}

    def first(self) -> list[Chosen] | None:
        """Raises Wrong where the answer is an error, and TooLong."""
        for index, claim in enumerate(self.claims):
            least = 0
            for request in claim.spec.devices.requests:
                least += min(self._count(option) for _, option in _options(request))
            if least > 32:
                raise Wrong(f"claim {index}: too many devices")
        if not self._claim(0):
            return None
        return [(claim, name, known.pool, known.device.name) for claim, name, _, known in self.chosen]

    def _count(self, option: Any) -> int:
        return len(self._all(option)) if option.allocation_mode == "All" else option.count

    def _all(self, option: Any) -> list[Known]:
        return [known for known in self.world.devices if self._selects(option, known)]

    def _selects(self, option: Any, known: Known) -> bool:
        key = (id(option), id(known))
        if key not in self._selected:
            self._selected[key] = self._matches(option, known)
        return self._selected[key]

    def _matches(self, option: Any, known: Known) -> bool:
        if not all(SELECTORS[selector.cel.expression](known.device) for selector in option.selectors):
            return False
        amounts = self._amounts(option, known)
        return amounts is not None and all(
            amount <= known.device.capacity[name].value.nanos and _is_allowed(amount, known.device.capacity[name])
            for name, amount in amounts.items()
        )

    def _amounts(self, option: Any, known: Known) -> dict[str, int] | None:
        key = (id(option), id(known))
        if key not in self._asked:
            self._asked[key] = self._amounts_on(option, known)
        return self._asked[key]

    def _amounts_on(self, option: Any, known: Known) -> dict[str, int] | None:
        wanted = option.capacity.requests if option.capacity else {}
        if any(name not in known.device.capacity for name in wanted):
            return None
        return {
            name: _rounded_up(wanted[name].nanos if name in wanted else None, published)
            for name, published in known.device.capacity.items()
        }

    def _claim(self, index: int) -> bool:
        return index == len(self.claims) or self._request(index, 0)

    def _request(self, claim: int, index: int) -> bool:
        requests = self.claims[claim].spec.devices.requests
        if index == len(requests):
            return self._claim(claim + 1)
        for name, option in _options(requests[index]):
            if sum(1 for each, *_ in self.chosen if each == claim) + self._count(option) > 32:
                continue
            if option.allocation_mode == "All":
                done = self._take_all(claim, index, name, option)
            else:
                done = self._take(claim, index, name, option, 0, 0)
            if done:
                return True
        return False

    def _take(self, claim: int, index: int, name: str, option: Any, ordinal: int, start: int) -> bool:
        if ordinal == option.count:
            return self._request(claim, index + 1)
        for place in range(start, len(self.world.devices)):
            known = self.world.devices[place]
            self._step()
            if self._in_use(claim, option, known) or not self._selects(option, known):
                continue
            if not self._may_enter(claim, name, option, known, must=False):
                continue
            self.chosen.append((claim, name, option, known))
            if self._take(claim, index, name, option, ordinal + 1, place + 1):
                return True
            self.chosen.pop()
        return False

    def _step(self) -> None:
        self.steps += 1
        if self.most_steps is not None and self.steps > self.most_steps:
            raise TooLong

    def _take_all(self, claim: int, index: int, name: str, option: Any) -> bool:
        devices = self._all(option)
        before = len(self.chosen)
        for known in devices:
            if self._in_use(claim, option, known) or not self._may_enter(claim, name, option, known, must=True):
                del self.chosen[before:]
                return False
            self.chosen.append((claim, name, option, known))
        if devices and self._request(claim, index + 1):
            return True
        del self.chosen[before:]
        return False

    def _in_use(self, claim: int, option: Any, known: Known) -> bool:
        if getattr(option, "admin_access", None):
            return any(c == claim and k is known and not k.shareable for c, _, _, k in self.chosen)
        return known.dedicated or any(k is known and not k.shareable for _, _, _, k in self.chosen)

    def _may_enter(self, claim: int, name: str, option: Any, known: Known, must: bool) -> bool:
        if (not must and not self._has_capacity(option, known)) or not self._has_counters(known):
            return False
        if any(not _tolerated(taint, option.tolerations) for taint in known.device.taints):
            return False
        if not self._satisfies_constraints(claim, name, known):
            if must:
                raise Wrong("constraint on all devices")
            return False
        return self._has_capacity(option, known)

    def _has_capacity(self, option: Any, known: Known) -> bool:
        amounts = self._amounts(option, known)
        assert amounts is not None
        booked = [self._amounts(o, k) or {} for _, _, o, k in self.chosen if k is known and k.shareable]
        for name, amount in amounts.items():
            held = known.consumed.get(name, 0) + sum(share[name] for share in booked)
            if held + amount > known.device.capacity[name].value.nanos:
                return False
            if _is_either_or(known.device.capacity[name]) and (known.shares or booked) and bool(held) != bool(amount):
                return False
        return True

    def _has_counters(self, known: Known) -> bool:
        if not known.device.consumes_counters:
            return True
        if known.shareable and (known.shares or any(k is known for _, _, _, k in self.chosen)):
            return True
        left = dict(self.world.left)
        paid: list[Known] = []
        for _, _, _, other in [*self.chosen, (0, "", None, known)]:
            if other.shareable and (other.shares or any(other is one for one in paid)):
                continue
            paid.append(other)
            for key, amount in self.world.drawn(other):
                left[key] -= amount
        return all(amount >= 0 for key, amount in left.items() if key[0] == known.pool)

    def _satisfies_constraints(self, claim: int, name: str, known: Known) -> bool:
        for constraint in self.claims[claim].spec.devices.constraints:
            if not _covers(constraint, name):
                continue
            wanted = constraint.match_attribute or constraint.distinct_attribute or ""
            mine = _values(known.device, wanted)
            if not mine:
                return False
            for other, other_name, _, chosen in self.chosen:
                if other == claim and _covers(constraint, other_name):
                    theirs = _values(chosen.device, wanted)
                    if constraint.match_attribute is None and mine & theirs:
                        return False
                    if constraint.match_attribute is not None:
                        mine &= theirs
                        if not mine:
                            return False
        return True


def _options(request: Any) -> list[tuple[str, Any]]:
    if request.exactly is not None:
        return [(request.name, request.exactly)]
    return [(f"{request.name}/{option.name}", option) for option in request.first_available]


def _covers(constraint: Any, name: str) -> bool:
    return not constraint.requests or name in constraint.requests or name.split("/")[0] in constraint.requests


def _values(device: Device, name: str) -> set[tuple[str, Any]]:
    """A scalar is a list of one."""
    attribute = device.attributes.get(name.split("/")[1])
    if attribute is None:
        return set()
    for field_name in ("int_", "string", "bool_", "version"):
        value = getattr(attribute, field_name)
        if value is not None:
            return {(field_name, value)}
    return {("int_", value) for value in attribute.ints or ()}


def _rounded_up(asked: int | None, published: DeviceCapacity) -> int:
    """Nanos that a request takes of a capacity; None: it does not name it."""
    policy = published.request_policy
    if policy is None:
        return published.value.nanos if asked is None else asked
    if asked is None:
        if _is_either_or(published):
            return 0
        return policy.default.nanos if policy.default is not None else published.value.nanos
    if policy.valid_values:
        return min((value.nanos for value in policy.valid_values if value.nanos >= asked), default=asked)
    allowed = policy.valid_range
    if allowed is None or allowed.min is None:
        return asked
    if asked <= allowed.min.nanos or allowed.step is None:
        return max(asked, allowed.min.nanos)
    return allowed.min.nanos - (allowed.min.nanos - asked) // allowed.step.nanos * allowed.step.nanos


def _is_allowed(amount: int, published: DeviceCapacity) -> bool:
    policy = published.request_policy
    if policy is None or (policy.default is not None and amount == policy.default.nanos):
        return True
    if policy.valid_values:
        return amount in [value.nanos for value in policy.valid_values]
    allowed = policy.valid_range
    return allowed is None or allowed.max is None or amount <= allowed.max.nanos


def _is_either_or(published: Any) -> bool:
    return published.request_policy is not None and published.request_policy.strategy == "ConsumedOrNever"


def _tolerated(taint: Any, tolerations: Any) -> bool:
    return any(toleration.key == taint.key for toleration in tolerations)
