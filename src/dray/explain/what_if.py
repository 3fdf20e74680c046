"""Tries changes to claims or cluster with the real allocator, and suggests the changes after which the node can serve the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from msgspec.structs import replace

from dray.allocator import Allocation, Allocator, Deadline, Ledger
from dray.allocator.node_report import NodeReport, taint_text
from dray.api.core import Node
from dray.api.dra.claim_users import user_names
from dray.api.dra.consumption import plain_name
from dray.api.dra.pools import DeviceID
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequirements,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.explain.device_holders import DeviceHolders

MOST_REMEDIES = 4
# Claims that are tried one by one, before all of them together.
MOST_RELEASES = 64
# Sets of taints, each of some device, that are tried one by one.
MOST_TAINT_SETS = 8
# Amounts of a capacity that are tried one by one.
MOST_AMOUNTS = 16
# How often a search may ask for its deadline before it ends.
MOST_LOOKS = 4000


Option = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the node can serve the claims. `code` names the kind of change, stably."""

    code: str
    text: str

    def document(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text}


def step_limit(looks: int = MOST_LOOKS) -> Deadline:
    """A deadline that counts how often it is asked, which a search does every few dozen steps."""
    asked = count(1)
    return lambda: next(asked) > looks


@dataclass(frozen=True, slots=True)
class WhatIfContext:
    """What a search for remedies needs to know about the pod: `own` are claims (namespace/name) that it holds already and keeps; `accepts` says whether
    an allocation leaves the node enough cpu and memory for the pod."""

    own: frozenset[str] = frozenset()
    accepts: Callable[[Allocation], bool] = lambda allocation: True


def what_would_help(
    allocator: Allocator,
    claims: Sequence[ResourceClaim],
    node: Node,
    report: NodeReport,
    holders: DeviceHolders,
    conditions: WhatIfContext | None = None,
) -> list[Remedy]:
    trial = _Trial(allocator, claims, node, holders, conditions or WhatIfContext())
    found: list[Remedy] = []
    for help_ in (
        *trial.releases(),
        *trial.tolerations(report),
        *trial.fewer_devices(),
        *trial.smaller_capacity(),
        *trial.without_constraint(),
        *trial.without_selector(),
    ):
        found.append(help_)
        if len(found) == MOST_REMEDIES:
            break
    return found


class _Trial:
    def __init__(
        self,
        allocator: Allocator,
        claims: Sequence[ResourceClaim],
        node: Node,
        holders: DeviceHolders,
        conditions: WhatIfContext,
    ) -> None:
        self._allocator = allocator
        self._claims = claims
        self._node = node
        self._accepts = conditions.accepts
        self._holders = holders
        pools = allocator.inventory.pools_on(node)
        holding = holders.claims_in(view.pool_id for view in pools.pools)
        self._kept = [claim for claim in holding if _name(claim) in conditions.own]
        self._holding = [claim for claim in holding if _name(claim) not in conditions.own]

    def _fits(self, claims: Sequence[ResourceClaim], holding: Sequence[ResourceClaim] | None = None) -> bool:
        ledger = self._allocator.ledger
        if holding is not None:
            ledger = Ledger(self._allocator.features, (*self._kept, *holding))
        trial = Allocator(self._allocator.inventory, ledger, self._allocator.classes.values())
        answer = trial.fresh_question(claims).on(self._node, step_limit())
        return isinstance(answer, Allocation) and self._accepts(answer)

    # --- the cluster changes

    def releases(self) -> Iterator[Remedy]:
        if not self._holding or not self._fits(self._claims, []):
            return
        for claim in self._holding[:MOST_RELEASES]:
            if self._fits(self._claims, [other for other in self._holding if other is not claim]):
                yield Remedy("release-claim", f"release claim {_name(claim)}{_used_by(claim)}")
                return
        total = len(self._holding)
        yield Remedy(
            "release-claims", f"release claims that hold devices of the node (it has {total}, one is not enough)"
        )

    # --- the claims change

    def tolerations(self, report: NodeReport) -> Iterator[Remedy]:
        """The fewest taints that let enough devices through: those of one device, or of all of them."""
        sets = {
            frozenset(replace(taint, time_added=None) for taint in device.taints)
            for request in report.requests
            for device in request.devices
            if device.taints
        }
        tried = sorted(sets, key=lambda taints: (len(taints), sorted(map(taint_text, taints))))[:MOST_TAINT_SETS]
        for taints in (*tried, frozenset().union(*sets)) if sets else ():
            if self._fits([_with_requests(claim, _tolerating(taints)) for claim in self._claims]):
                said = ", ".join(sorted(map(taint_text, taints)))
                yield Remedy("tolerate", f"tolerate {said} in the request")
                return

    def fewer_devices(self) -> Iterator[Remedy]:
        for name, option, with_option in self._options():
            for fewer in range(option.count - 1, 0, -1) if option.count <= 64 else ():
                if self._fits(with_option(replace(option, count=fewer))):
                    yield Remedy("fewer-devices", f"ask for {fewer} instead of {option.count} in request {name}")
                    break

    def smaller_capacity(self) -> Iterator[Remedy]:
        """The largest amounts, among those that devices of the node have or have left, with which the claims fit."""
        for name, option, with_option in self._options():
            asked = option.capacity.requests if option.capacity is not None else {}
            found = self._largest_amounts(option, asked, with_option) if asked else None
            if found is not None:
                changes = ", ".join(
                    f"at most {found[resource]} {resource} instead of {amount}"
                    for resource, amount in asked.items()
                    if found[resource] != amount
                )
                yield Remedy("less-capacity", f"ask for {changes} in request {name}")

    def _largest_amounts(
        self, option: Option, asked: dict[str, Quantity], with_option: Callable[[Option], list[ResourceClaim]]
    ) -> dict[str, Quantity] | None:
        """Lowers one capacity after the other, each as little as possible; None if no published amount helps."""
        smallest = {name: min(self._amounts_below(name, amount), default=amount) for name, amount in asked.items()}
        if not self._fits(with_option(_asking(option, smallest))):
            return None
        found = smallest
        for name, amount in asked.items():
            for larger in (amount, *sorted(self._amounts_below(name, amount), reverse=True)[:MOST_AMOUNTS]):
                if self._fits(with_option(_asking(option, {**found, name: larger}))):
                    found = {**found, name: larger}
                    break
        return found

    def _amounts_below(self, name: str, most: Quantity) -> set[Quantity]:
        """What devices of the node have of a capacity, have left of it, or allow by policy, if it is less than `most`."""
        amounts: set[Quantity] = set()
        for view in self._allocator.inventory.pools_on(self._node).pools:
            for device in view.devices:
                capacity = next(
                    (each for key, each in device.capacity.items() if _is_same_name(key, name, view.driver)), None
                )
                if capacity is not None:
                    used = self._holders.consumed_nanos(DeviceID(view.driver, view.name, device.name), name)
                    amounts |= {capacity.value, Quantity(capacity.value.nanos - used, capacity.value.format)}
                    amounts |= _policy_amounts(capacity.request_policy)
        return {amount for amount in amounts if 0 < amount.nanos < most.nanos}

    def without_constraint(self) -> Iterator[Remedy]:
        for index, claim in enumerate(self._claims):
            constraints = claim.spec.devices.constraints
            for place, constraint in enumerate(constraints):
                left = (*constraints[:place], *constraints[place + 1 :])
                devices = replace(claim.spec.devices, constraints=left)
                changed = replace(claim, spec=replace(claim.spec, devices=devices))
                if self._fits([*self._claims[:index], changed, *self._claims[index + 1 :]]):
                    said = (
                        f"matchAttribute {constraint.match_attribute}"
                        if constraint.match_attribute is not None
                        else f"distinctAttribute {constraint.distinct_attribute}"
                    )
                    yield Remedy("drop-constraint", f"give up the constraint {said} of claim {_name(claim)}")

    def without_selector(self) -> Iterator[Remedy]:
        for name, option, with_option in self._options():
            for place, selector in enumerate(option.selectors):
                left = (*option.selectors[:place], *option.selectors[place + 1 :])
                if selector.cel is not None and self._fits(with_option(replace(option, selectors=left))):
                    yield Remedy("relax-selector", f"relax `{_short(selector.cel.expression)}` of request {name}")

    def _options(self) -> Iterator[tuple[str, Option, Callable[[Option], list[ResourceClaim]]]]:
        """Every request and every alternative of one: its name, itself, and the claims with another in its place."""
        for index, claim in enumerate(self._claims):
            for position, request in enumerate(claim.spec.devices.requests):
                if request.exactly is not None:
                    yield request.name, request.exactly, partial(self._with_exactly, index, position)
                for place, each in enumerate(request.first_available):
                    name = f"{request.name}/{each.name}"
                    yield name, each, partial(self._with_alternative, index, position, place)

    def _with_exactly(self, index: int, position: int, option: Option) -> list[ResourceClaim]:
        request = self._claims[index].spec.devices.requests[position]
        return self._with_request(index, position, replace(request, exactly=option))

    def _with_alternative(self, index: int, position: int, place: int, option: Option) -> list[ResourceClaim]:
        request = self._claims[index].spec.devices.requests[position]
        options = request.first_available
        changed = (*options[:place], option, *options[place + 1 :])
        return self._with_request(index, position, replace(request, first_available=changed))

    def _with_request(self, index: int, position: int, request: DeviceRequest) -> list[ResourceClaim]:
        claim = self._claims[index]
        requests = claim.spec.devices.requests
        devices = replace(claim.spec.devices, requests=(*requests[:position], request, *requests[position + 1 :]))
        changed = replace(claim, spec=replace(claim.spec, devices=devices))
        return [*self._claims[:index], changed, *self._claims[index + 1 :]]


Change = Callable[[DeviceRequest], DeviceRequest]


def _asking(option: Option, amounts: dict[str, Quantity]) -> Option:
    return replace(option, capacity=CapacityRequirements(requests=amounts))


def _policy_amounts(policy: CapacityRequestPolicy | None) -> set[Quantity]:
    if policy is None:
        return set()
    limits = policy.valid_range
    bounds = (limits.min, limits.max) if limits is not None else ()
    return {amount for amount in (policy.default, *policy.valid_values, *bounds) if amount is not None}


def _is_same_name(published: str, asked: str, driver: str) -> bool:
    return plain_name(published, driver) == plain_name(asked, driver)


def _tolerating(taints: Iterable[DeviceTaint]) -> Change:
    more = tuple(
        DeviceToleration(key=taint.key, operator="Equal", value=taint.value or "", effect=taint.effect)
        for taint in taints
    )

    def change(request: DeviceRequest) -> DeviceRequest:
        if request.exactly is not None:
            return replace(request, exactly=replace(request.exactly, tolerations=(*request.exactly.tolerations, *more)))
        options = (replace(each, tolerations=(*each.tolerations, *more)) for each in request.first_available)
        return replace(request, first_available=tuple(options))

    return change


def _with_requests(claim: ResourceClaim, change: Change) -> ResourceClaim:
    devices = replace(claim.spec.devices, requests=tuple(map(change, claim.spec.devices.requests)))
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _used_by(claim: ResourceClaim) -> str:
    users = ", ".join(user_names(claim))
    return f", which pod {users} uses" if users else ", which no pod uses"


def _short(expression: str) -> str:
    text = " ".join(expression.split())
    return text if len(text) <= 120 else f"{text[:117]}..."
