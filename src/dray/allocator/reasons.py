"""Why not? A failed attempt is replayed with an observer that looks at every device where the search got stuck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.inventory import NodePools
from dray.allocator.ledger import Ledger
from dray.allocator.requests import Option, Problem
from dray.allocator.rules.constraints import ConstraintScope
from dray.allocator.search import Search, SearchTimedOut
from dray.allocator.search_input import SearchInput
from dray.allocator.types import FatalError, Miss
from dray.api.dra.pools import DeviceID
from dray.api.dra.taints import first_untolerated
from dray.api.reasons import PlainValue, Reason

# Steps after which a replay has seen enough: the deepest place is found early, and the scheduler waits meanwhile.
ENOUGH_STEPS = 2_000

# Code, in the order of the tests, with what a person reads after "N of M devices".
TESTS: dict[str, str] = {
    "in-use": "are in use",
    "chosen-already": "are taken by this pod already",
    "binding-conditions": "have binding conditions, which are switched off",
    "class-selector": "do not match the device class",
    "request-selector": "do not match the request",
    "other-node": "belong to other nodes",
    "capacity": "lack capacity",
    "node-operations": "need node operations that the node does not declare",
    "counters-off": "draw counters, which are switched off",
    "compatibility": "are not compatible with devices in use",
    "counters": "find too little left in their counter sets",
    "taint": "have taints that are not tolerated",
    "constraint": "violate a constraint",
    "later-requests": "would do, but leave too little for other requests",
}
ORDER = {code: rank for rank, code in enumerate(TESTS)}

Refusal = tuple[str, str]
"""Code and detail."""


class Explanation:
    """The question of one failed attempt, kept until somebody wants to know more."""

    __slots__ = ("_ledger", "_node", "_problem", "_scopes", "_with_names")

    def __init__(
        self,
        problem: Problem,
        node: NodePools,
        ledger: Ledger,
        scopes: Sequence[ConstraintScope],
        with_names: Callable[[str], str],
    ) -> None:
        self._problem = problem
        self._node = node
        self._ledger = ledger
        self._scopes = scopes
        self._with_names = with_names

    def explain(self) -> tuple[tuple[Reason, ...], Miss | None]:
        watcher = DeepestPlace()
        try:
            given = SearchInput(self._problem, self._node, self._ledger, self._scopes)
            search = Search(given, watcher)
            watcher.search = search
            search.run(watcher.seen_enough)
        except (FatalError, SearchTimedOut):
            pass
        reasons = watcher.reasons(self._with_names)
        for view in self._node.incomplete:
            text = (
                f"pool {view.driver}/{view.name} is incomplete: {len(view.slice_names)} of {view.wanted_slices} slices"
            )
            reasons.append(Reason("incomplete-pool", text, {"rule": "pools", "devices": len(view.names)}))
        return tuple(reasons), watcher.nearest_miss()


class DeepestPlace:
    """Keeps what every device said at the place where the most devices had been chosen."""

    def __init__(self) -> None:
        self.search: Search | None = None
        self._depth = -1
        self._option: Option | None = None
        self._refusals: list[tuple[DeviceID, Refusal]] = []

    def seen_enough(self) -> bool:
        return self.search is not None and self.search.steps > ENOUGH_STEPS

    def stuck(self, search: Search, option: Option) -> None:
        if len(search.chosen) > self._depth:
            self._depth = len(search.chosen)
            self._option = option
            node = search.given.node
            self._refusals = []
            for view, offset in zip(node.pools, node.offsets, strict=True):
                for place in range(len(view.names)):
                    self._refusals.append((view.device_id(place), refusal(search, option, offset + place)))

    def reasons(self, with_names: Callable[[str], str]) -> list[Reason]:
        option = self._option
        if option is None:
            return []
        claim = with_names(option.claim.label)
        where = f"claim {claim}, request {option.name}"
        if not self._refusals:
            facts: dict[str, PlainValue] = {"claim": claim, "request": option.name, "rule": "pools", "devices": 0}
            return [Reason("no-devices", f"{where}: the node has no devices", facts)]
        by_code: dict[str, list[tuple[DeviceID, Refusal]]] = {}
        for device_id, refused in self._refusals:
            by_code.setdefault(refused[0], []).append((device_id, refused))
        total = len(self._refusals)
        return [
            Reason(
                code,
                f"{where}: {len(found)} of {total} devices {TESTS[code]}",
                {
                    "claim": claim,
                    "request": option.name,
                    "rule": code,
                    "devices": len(found),
                    "example": str(found[0][0]),
                },
            )
            for code, found in sorted(by_code.items(), key=lambda item: ORDER[item[0]])
        ]

    def nearest_miss(self) -> Miss | None:
        if self._option is None or not self._refusals:
            return None
        device_id, (code, detail) = max(self._refusals, key=lambda entry: ORDER[entry[1][0]])
        return Miss(self._option.name, device_id, code, detail)


def refusal(search: Search, option: Option, position: int) -> Refusal:
    """The first test that says no to this device for this option, as things stand in the search."""
    given = search.given
    bit = 1 << position
    if search.in_use(option) & bit:
        if given.stored & bit and not option.admin_access:
            return ("in-use", "is in use")
        return ("chosen-already", "is taken by this pod already")
    return _static_refusal(given, option, position) or _live_refusal(search, option, position)


def _static_refusal(given: SearchInput, option: Option, position: int) -> Refusal | None:
    kind = given.kinds[position]
    bit = 1 << position
    if kind.has_binding_conditions and not option.features.binds_with_conditions:
        return ("binding-conditions", "has binding conditions, which are switched off")
    for label, expression in option.device_filter.selectors:
        if option.device_filter.evaluator.verdict(expression, kind) is not True:
            code = "class-selector" if label.startswith("class ") else "request-selector"
            return (code, f"does not match {expression}")
    if given.node.unreachable & bit:
        return ("other-node", "belongs to another node")
    if option.features.consumable_capacity and option.amounts(kind).refusal:
        return ("capacity", option.amounts(kind).refusal)
    if kind.skips_node_operations and not (option.features.optional_node_operations and given.node.declares_operations):
        return ("node-operations", "needs node operations that the node does not declare")
    if kind.consumes and not option.features.partitionable_devices:
        return ("counters-off", "draws counters, which are switched off")
    return None


def _live_refusal(search: Search, option: Option, position: int) -> Refusal:
    given = search.given
    entered = []
    found: Refusal | None = None
    for rule in given.rules:
        if rule.is_constraint:
            continue
        if not rule.enter(option, position):
            found = (rule.name, rule.why(option, position))
            break
        entered.append(rule)
    for rule in reversed(entered):
        rule.leave(option, position)
    if found is not None:
        return found
    taint = first_untolerated(given.kinds[position].taints, option.tolerations)
    if taint is not None and option.features.device_taints:
        return ("taint", f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated")
    return _constraint_refusal(search, option, position)


def _constraint_refusal(search: Search, option: Option, position: int) -> Refusal:
    for rule in search.given.rules:
        if rule.is_constraint:
            if not rule.enter(option, position):
                return ("constraint", f"{rule.name}: {rule.why(option, position)}")
            rule.leave(option, position)
    return ("later-requests", TESTS["later-requests"])
