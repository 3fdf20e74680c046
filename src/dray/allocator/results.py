"""Chosen devices to AllocationResult: one entry per device, configs, node selector."""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.inventory import NodePools
from dray.allocator.node_selectors import NAME_FIELD
from dray.allocator.pools import PoolView
from dray.allocator.requests import ClaimProblem, Option, Problem
from dray.allocator.types import ChosenDevice, Failure, FatalError, NoFit, ShareIDs
from dray.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)

# What an alternative is worth to scheduling: 8 for the first, 7 for the second, and so on.
MOST_ALTERNATIVES = 8

Placed = tuple[Option, PoolView, int]
"""For what, in which pool, and the place in it."""


class Allocation:
    """The devices that serve the claims on one node; nothing is taken until the caller writes it down."""

    __slots__ = ("_node", "_problem", "_solution", "node_name", "steps")

    def __init__(
        self, problem: Problem, node: NodePools, solution: Sequence[tuple[Option, int]], steps: int = 0
    ) -> None:
        self._problem = problem
        self._node = node
        self._solution = solution
        self.node_name = node.name
        self.steps = steps

    def _by_claim(self) -> list[list[Placed]]:
        node = self._node
        if len(node.pools) == 1:
            view = node.pools[0]
            placed = [(option, view, position) for option, position in self._solution]
        else:
            placed = [(option, *node.locate(position)) for option, position in self._solution]
        if len(self._problem.claims) == 1:
            return [placed]
        by_claim: list[list[Placed]] = [[] for _ in self._problem.claims]
        for one in placed:
            by_claim[one[0].claim.index].append(one)
        return by_claim

    def check_node_selectors(self, names: Sequence[str]) -> None:
        """Raises FatalError if the node selector of a claim cannot be expressed."""
        for devices, name in zip(self._by_claim(), names, strict=True):
            _node_selector(devices, self._node, name)

    def devices(self) -> tuple[tuple[ChosenDevice, ...], ...]:
        """Per claim, the devices in the order in which they were booked."""
        shares = self._problem.features.consumable_capacity
        return tuple(
            tuple(
                ChosenDevice(
                    option.name, view.device_id(place), shares and bool(view.shape.allows_multiple >> place & 1)
                )
                for option, view, place in devices
            )
            for devices in self._by_claim()
        )

    @property
    def score(self) -> int:
        """The sum over `firstAvailable` requests of 8 minus the index of the alternative that was chosen."""
        options = {option.request.index: option for option, _ in self._solution if option.request.is_prioritized}
        return sum([MOST_ALTERNATIVES - option.request.options.index(option) for option in options.values()])

    def results(self, share_ids: ShareIDs) -> tuple[AllocationResult, ...]:
        """One AllocationResult per claim, in the order of the claims."""
        problem, node = self._problem, self._node
        shares = problem.features.consumable_capacity
        results = []
        for claim, devices in zip(problem.claims, self._by_claim(), strict=True):
            entries = [
                _result(option, view, place, share_ids)
                if (shares and view.shape.allows_multiple) or not view.shape.is_plain
                else DeviceRequestAllocationResult(
                    request=option.name,
                    driver=view.driver,
                    pool=view.name,
                    device=view.names[place],
                    admin_access=True if option.admin_access else None,
                    tolerations=option.tolerations,
                )
                for option, view, place in devices
            ]
            config = (
                configs_of(claim, [option for option, _, _ in devices])
                if problem.classes_have_configs or claim.claim.spec.devices.config
                else ()
            )
            selector = _only(node) if node.is_local and devices else _node_selector(devices, node, "")
            found = DeviceAllocationResult(results=tuple(entries), config=config)
            results.append(AllocationResult(devices=found, node_selector=selector))
        return tuple(results)

    def __repr__(self) -> str:
        return f"Allocation({self.node_name!r}, {self.devices()!r})"


Answer = Allocation | NoFit | Failure


def _result(option: Option, view: PoolView, place: int, share_ids: ShareIDs) -> DeviceRequestAllocationResult:
    device = view.devices[place]
    is_share = option.features.consumable_capacity and view.shape.allows_multiple >> place & 1
    consumed = option.amounts(view.shape.kinds[place]).consumed if is_share else None
    return DeviceRequestAllocationResult(
        request=option.name,
        driver=view.driver,
        pool=view.name,
        device=device.name,
        admin_access=True if option.admin_access else None,
        tolerations=option.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share_ids() if is_share else None,
        consumed_capacity=dict(consumed) if consumed else {},
        skip_node_operations=view.slices[place].spec.skip_node_operations,
    )


# --- configs ---------------------------------------------------------------------------------------------------------


def configs_of(claim: ClaimProblem, chosen: Sequence[Option]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Class entries first, once per class, then the claim's own that concern what was chosen."""
    config = claim.claim.spec.devices.config
    options = list(dict.fromkeys(chosen))
    entries = [*_class_configs(options)]
    names = {name for option in options for name in (option.base_name, option.name)}
    for own in config:
        if not own.requests or not names.isdisjoint(own.requests):
            entries.append(DeviceAllocationConfiguration(source="FromClaim", requests=own.requests, opaque=own.opaque))
    return tuple([_cleared(entry, options) for entry in entries])


def _class_configs(options: Sequence[Option]) -> list[DeviceAllocationConfiguration]:
    users: dict[str, list[Option]] = {}
    for option in options:
        users.setdefault(option.device_class.metadata.name, []).append(option)
    return [
        DeviceAllocationConfiguration(
            source="FromClass", requests=tuple([option.name for option in using]), opaque=entry.opaque
        )
        for using in users.values()
        for entry in using[0].device_class.spec.config
    ]


def _cleared(entry: DeviceAllocationConfiguration, options: Sequence[Option]) -> DeviceAllocationConfiguration:
    """No names at all is how "every request" is written."""
    named = frozenset(entry.requests)
    if named and all(option.name in named or option.base_name in named for option in options):
        return DeviceAllocationConfiguration(source=entry.source, opaque=entry.opaque)
    return entry


# --- node selector ---------------------------------------------------------------------------------------------------


def _node_selector(devices: Sequence[Placed], node: NodePools, claim_name: str) -> NodeSelector | None:
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    found = False
    for _, view, place in devices:
        spec, device = view.slices[place].spec, view.devices[place]
        if spec.node_name or device.binds_to_node or (spec.per_device_node_selection and device.node_name):
            return _only(node)
        selector = device.node_selector if spec.per_device_node_selection else spec.node_selector
        if selector is not None:
            if len(selector.node_selector_terms) != 1:
                count = len(selector.node_selector_terms)
                raise FatalError(
                    "unsupported",
                    f"create NodeSelector for claim {claim_name}: "
                    f"unsupported ResourceSlice.NodeSelector with {count} terms",
                )
            found = True
            term = selector.node_selector_terms[0]
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not found:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _only(node: NodePools) -> NodeSelector:
    if node.own_selector is None:
        wanted = NodeSelectorRequirement(key=NAME_FIELD, operator="In", values=(node.name,))
        node.own_selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(wanted,)),))
    return node.own_selector


def _add_new(known: list[NodeSelectorRequirement], added: Sequence[NodeSelectorRequirement]) -> None:
    for requirement in added:
        if not any(_same(requirement, other) for other in known):
            known.append(requirement)


def _same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return one.key == other.key and one.operator == other.operator and set(one.values) == set(other.values)
