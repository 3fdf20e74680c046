"""Tries changes to claims or cluster with the real allocator, and suggests the changes after which the node can serve the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from typing import Any

from msgspec.structs import replace

from dray.allocator import Allocation, Allocator, Deadline, Ledger
from dray.allocator.node_report import NodeReport, taint_text
from dray.api.core import Node
from dray.api.dra.claim_users import user_names
from dray.api.dra.consumption import plain_name
from dray.api.quantity import Quantity
from dray.api.resource import (
    CapacityRequirements,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.explain.capacity_names import likely_names, unpublished_capacity
from dray.explain.device_holders import DeviceHolders
from dray.explain.largest_amount import AmountGrid, largest_amount

MOST_REMEDIES = 4
# Claims that are tried one by one, before all of them together.
MOST_RELEASES = 64
# Sets of taints, each of some device, that are tried one by one.
MOST_TAINT_SETS = 8
# Kinds of devices whose values are tried in a selector, and edits of it that are tried.
MOST_KINDS = 16
MOST_CORRECTIONS = 24
# How often a search may ask for its deadline before it ends.
MOST_LOOKS = 4000
# Remedies that change what a claim asks for.
CHANGES_OF_CLAIMS = frozenset(
    {"tolerate", "fewer-devices", "capacity-name", "less-capacity", "drop-constraint", "relax-selector"}
)

Option = ExactDeviceRequest | DeviceSubRequest


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the pod fits. `code` names the kind of change, stably; `edits` are the objects as they are after the
    change, `gone` the objects that it removes: with them it is rehearsed."""

    code: str
    text: str
    edits: tuple[Any, ...] = ()
    gone: tuple[Any, ...] = ()

    def document(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text}


def all_of(steps: Sequence[Remedy]) -> Remedy:
    """One remedy of several steps, each made for the objects as the steps before leave them."""
    edits = {(type(each), each.metadata.namespace, each.metadata.name): each for step in steps for each in step.edits}
    return Remedy(
        "+".join(step.code for step in steps),
        "; and ".join(step.text for step in steps),
        tuple(edits.values()),
        tuple(each for step in steps for each in step.gone),
    )


def step_limit(looks: int = MOST_LOOKS) -> Deadline:
    """A deadline that counts how often it is asked, which a search does every few dozen steps."""
    asked = count(1)
    return lambda: next(asked) > looks


@dataclass(frozen=True, slots=True)
class WhatIfContext:
    """What a search for remedies needs to know about the pod: `own` are claims (namespace/name) that it holds already and keeps; `accepts` says whether
    an allocation leaves the node enough cpu and memory for the pod, where that depends on the allocation."""

    own: frozenset[str] = frozenset()
    accepts: Callable[[Allocation], bool] | None = None


def what_would_help(
    allocator: Allocator,
    claims: Sequence[ResourceClaim],
    node: Node,
    report: NodeReport,
    holders: DeviceHolders,
    conditions: WhatIfContext | None = None,
) -> list[Remedy]:
    trial = _Trial(allocator, claims, node, holders, conditions or WhatIfContext())
    remedies = chain(
        trial.releases(),
        trial.tolerations(report),
        trial.fewer_devices(),
        trial.other_capacity_names(report),
        trial.smaller_capacity(),
        trial.without_constraint(),
        trial.other_selectors(report),
    )
    return list(islice(remedies, MOST_REMEDIES))


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
        self._holders = holders
        self._accepts = conditions.accepts
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
        return isinstance(answer, Allocation) and (self._accepts is None or self._accepts(answer))

    # --- the cluster changes

    def releases(self) -> Iterator[Remedy]:
        if not self._holding or not self._fits(self._claims, []):
            return
        for claim in self._holding[:MOST_RELEASES]:
            if self._fits(self._claims, [other for other in self._holding if other is not claim]):
                yield Remedy(
                    "release-claim", f"release claim {_name(claim)}{self._holders.use_of(claim)}", (_released(claim),)
                )
                return
        fewest = self._fewest_releases()
        names = ", ".join(f"{_name(claim)}{_users_in_brackets(claim)}" for claim in fewest)
        yield Remedy("release-claims", f"release claims {names}", tuple(map(_released, fewest)))

    def _fewest_releases(self) -> list[ResourceClaim]:
        """Claims all of which have to go: each of the others may stay."""
        gone = list(self._holding)
        for claim in self._holding[:MOST_RELEASES]:
            fewer = [other for other in gone if other is not claim]
            kept = [other for other in self._holding if all(other is not each for each in fewer)]
            if self._fits(self._claims, kept):
                gone = fewer
        return gone

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
            changed = [_with_requests(claim, _tolerating(taints)) for claim in self._claims]
            if self._fits(changed):
                said = ", ".join(sorted(map(taint_text, taints)))
                yield Remedy("tolerate", f"tolerate {said} in the request", self._edits(changed))
                return

    def fewer_devices(self) -> Iterator[Remedy]:
        """As many as possible; where not even one fits, no number between is tried."""
        for name, option, with_option in self._options():
            if not 1 < option.count <= 64 or not self._fits(with_option(replace(option, count=1))):
                continue
            for fewer in range(option.count - 1, 0, -1):
                changed = with_option(replace(option, count=fewer))
                if self._fits(changed):
                    text = f"ask for {fewer} instead of {option.count} in request {name}"
                    yield Remedy("fewer-devices", text, self._edits(changed))
                    break

    def other_capacity_names(self, report: NodeReport) -> Iterator[Remedy]:
        """The published name of a capacity that no device has under the name that is asked for."""
        by_request = {request.request: request.devices for request in report.requests}
        for name, option, with_option in self._options():
            asked = option.capacity.requests if option.capacity is not None else {}
            devices = by_request.get(name.partition(" ")[0], ())
            wrong = unpublished_capacity(devices) if asked else ""
            failing = [device for device in devices if device.code == "capacity" and device.missing]
            for other in likely_names(wrong, failing) if wrong in asked else ():
                renamed = {other if key == wrong else key: amount for key, amount in asked.items()}
                changed = with_option(_asking(option, renamed))
                if self._fits(changed):
                    text = f"ask for capacity {other} instead of {wrong} in request {name}"
                    yield Remedy("capacity-name", text, self._edits(changed))
                    break

    def smaller_capacity(self) -> Iterator[Remedy]:
        """The largest amounts with which the claims fit, as devices of the node hand them out."""
        for name, option, with_option in self._options():
            asked = option.capacity.requests if option.capacity is not None else {}
            found = self._largest_amounts(option, asked, with_option) if asked else None
            if found is not None:
                changes = ", ".join(
                    f"at most {found[resource]} {resource} instead of {amount}"
                    for resource, amount in asked.items()
                    if found[resource] != amount
                )
                edits = self._edits(with_option(_asking(option, found)))
                yield Remedy("less-capacity", f"ask for {changes} in request {name}", edits)

    def _largest_amounts(
        self, option: Option, asked: dict[str, Quantity], with_option: Callable[[Option], list[ResourceClaim]]
    ) -> dict[str, Quantity] | None:
        """Lowers one capacity after the other, each as little as possible; None if nothing of one would be left."""
        found = dict.fromkeys(asked, Quantity.ZERO)
        if not self._fits(with_option(_asking(option, found))):
            return None
        for name, amount in asked.items():

            def works(lower: Quantity, name: str = name) -> bool:
                return self._fits(with_option(_asking(option, {**found, name: lower})))

            largest = amount if works(amount) else largest_amount(self._grids_of(name), amount, works)
            if largest is None:
                return None
            found[name] = largest
        return found

    def _grids_of(self, name: str) -> set[AmountGrid]:
        """The amounts of a capacity that devices of the node hand out."""
        found: set[AmountGrid] = set()
        for view in self._allocator.inventory.pools_on(self._node).pools:
            for device in view.devices:
                for key, capacity in device.capacity.items():
                    if _is_same_name(key, name, view.driver):
                        found.add(AmountGrid.of(capacity, self._allocator.features.fractional_capacity_range))
        return found

    def without_constraint(self) -> Iterator[Remedy]:
        for index, claim in enumerate(self._claims):
            constraints = claim.spec.devices.constraints
            for place, constraint in enumerate(constraints):
                left = (*constraints[:place], *constraints[place + 1 :])
                devices = replace(claim.spec.devices, constraints=left)
                changed = replace(claim, spec=replace(claim.spec, devices=devices))
                claims = [*self._claims[:index], changed, *self._claims[index + 1 :]]
                if self._fits(claims):
                    said = (
                        f"matchAttribute {constraint.match_attribute}"
                        if constraint.match_attribute is not None
                        else f"distinctAttribute {constraint.distinct_attribute}"
                    )
                    text = f"give up the constraint {said} of claim {_name(claim)}"
                    yield Remedy("drop-constraint", text, self._edits(claims))

    def other_selectors(self, report: NodeReport) -> Iterator[Remedy]:
        """For each selector the smallest edit that helps: another name, another value, a condition less, or no selector at all."""
        for name, option, with_option in self._options():
            for place, selector in enumerate(option.selectors):
                if selector.cel is None:
                    continue
                expression = selector.cel.expression
                before, after = option.selectors[:place], option.selectors[place + 1 :]
                left_out = with_option(replace(option, selectors=(*before, *after)))
                if not self._fits(left_out):
                    continue
                for text in self._corrections(report, name, expression):
                    corrected = replace(selector, cel=replace(selector.cel, expression=text))
                    changed = with_option(replace(option, selectors=(*before, corrected, *after)))
                    if self._fits(changed):
                        said = f"write `{_on_one_line(text)}` instead of `{_on_one_line(expression)}` in request {name}"
                        yield Remedy("relax-selector", said, self._edits(changed))
                        break
                else:
                    said = f"leave out the selector `{_on_one_line(expression)}` of request {name}"
                    yield Remedy("relax-selector", said, self._edits(left_out))

    def _corrections(self, report: NodeReport, name: str, expression: str) -> list[str]:
        """Of the devices at which the selector says no."""
        kinds = {
            device.kind: None
            for request in report.requests
            if request.request == name.partition(" ")[0]
            for device in request.devices
            if device.selector == expression
        }
        found = [
            correction
            for kind in list(kinds)[:MOST_KINDS]
            for correction in self._allocator.selectors.corrections(expression, kind)
        ]
        texts = dict.fromkeys(correction.text for correction in sorted(found, key=lambda each: each.order))
        return list(texts)[:MOST_CORRECTIONS]

    def _edits(self, claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        return tuple(
            changed for changed, before in zip(claims, self._claims, strict=True) if changed.spec != before.spec
        )

    def _options(self) -> Iterator[tuple[str, Option, Callable[[Option], list[ResourceClaim]]]]:
        """Every request and every alternative of one: its name, itself, and the claims with another in its place."""
        for index, claim in enumerate(self._claims):
            for position, request in enumerate(claim.spec.devices.requests):
                of_claim = f" of claim {_name(claim)}" if len(self._claims) > 1 else ""
                if request.exactly is not None:
                    yield f"{request.name}{of_claim}", request.exactly, partial(self._with_exactly, index, position)
                for place, each in enumerate(request.first_available):
                    name = f"{request.name}/{each.name}{of_claim}"
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


def _released(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=None, reserved_for=(), devices=()))


def _users_in_brackets(claim: ResourceClaim) -> str:
    users = ", ".join(user_names(claim))
    return f" (pod {users})" if users else ""


def _on_one_line(expression: str) -> str:
    return " ".join(expression.split())
