"""Which nodes can take the pod: filters are asked over stretches of the node list until enough nodes are found.

Answers of filters, and scores, are cached per node for pods of the same shape, until the node changes. A set of nodes is an int with one bit per
node, by position in the node list. The change log says which nodes changed in which facet; each remembered answer keeps the position up to
which it has read the log.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from dray.api.core import Pod
from dray.scheduler.framework.interface import (
    BulkFilterPlugin,
    CycleState,
    FilterPlugin,
    NodeFacet,
    PluginStatus,
    PreparedFilter,
    RememberedFilter,
    StatusCode,
    error,
)

if TYPE_CHECKING:
    from dray.scheduler.snapshot import Snapshot

EVERY_NODE = -1
"""The mask with every bit set: all nodes, however many there are."""

_KEPT = 8192


class NodeChangeLog:
    """One list of node masks per facet. Old entries are dropped; a reader that fell behind re-reads every node."""

    def __init__(self) -> None:
        self._entries: dict[NodeFacet, list[int]] = {facet: [] for facet in NodeFacet}
        self.ends: dict[NodeFacet, int] = dict.fromkeys(NodeFacet, 0)
        """For each facet the position after its last entry. Positions count all entries, the dropped ones too."""

    def add(self, facet: NodeFacet, nodes: int) -> None:
        entries = self._entries[facet]
        entries.append(nodes)
        self.ends[facet] += 1
        if len(entries) > _KEPT:
            del entries[: _KEPT // 2]

    def forget_all(self) -> None:
        """Node positions have moved: no remembered answer is good any more."""
        for facet in NodeFacet:
            self.add(facet, EVERY_NODE)

    def since(self, facet: NodeFacet, position: int) -> int:
        """The nodes whose `facet` changed after `position`."""
        entries, missed = self._entries[facet], self.ends[facet] - position
        if missed == 1:
            return entries[-1]
        if missed > len(entries):
            return EVERY_NODE
        changed = 0
        for at in range(-missed, 0):
            changed |= entries[at]
        return changed


class ChangeReader:
    """Reads the log for one remembered answer."""

    __slots__ = ("_log", "_positions")

    def __init__(self, log: NodeChangeLog, facets: Iterable[NodeFacet]) -> None:
        self._log = log
        self._positions = {facet: log.ends[facet] for facet in facets}

    def changed(self) -> int:
        """Nodes that changed since the last call."""
        changed, ends = 0, self._log.ends
        for facet, position in self._positions.items():
            end = ends[facet]
            if end != position:
                changed |= self._log.since(facet, position)
                self._positions[facet] = end
        return changed


def positions(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class FilterAnswers:
    """What one filter said about each node."""

    __slots__ = ("_reader", "_transient", "known", "passed", "rejected")

    def __init__(self, log: NodeChangeLog, facets: frozenset[NodeFacet]) -> None:
        self._reader = ChangeReader(log, facets)
        self.known = 0
        self.passed = 0
        self._transient = 0
        self.rejected: dict[PluginStatus, int] = {}

    def bring_forward(self) -> None:
        changed = self._reader.changed() | self._transient
        if changed:
            self._forget(changed)
            self._transient = 0

    def _forget(self, nodes: int) -> None:
        if nodes == EVERY_NODE:
            self.known = self.passed = 0
            self.rejected = {}
            return
        self.known &= ~nodes
        self.passed &= ~nodes
        for status, mask in list(self.rejected.items()):
            left = mask & ~nodes
            if left:
                self.rejected[status] = left
            else:
                del self.rejected[status]

    def ask(self, candidates: int, question: Callable[[int], PluginStatus | None]) -> int:
        """Those of `candidates` that pass, asking about the ones not known yet.

        An error is the answer for one attempt only: its text names that pod's claims.
        """
        for position in positions(candidates & ~self.known):
            status = question(position)
            bit = 1 << position
            if status is None or status.code is StatusCode.SUCCESS:
                self.passed |= bit
            else:
                self.rejected[status] = self.rejected.get(status, 0) | bit
                if status.is_transient or status.code is StatusCode.ERROR:
                    self._transient |= bit
            self.known |= bit
        return candidates & self.passed


class ScoreAnswers:
    """What one score plugin gave each node, before normalizing."""

    __slots__ = ("_in_order", "_of_node", "_reader", "by_score", "known")

    def __init__(self, log: NodeChangeLog, facets: frozenset[NodeFacet]) -> None:
        self._reader = ChangeReader(log, facets)
        self.known = 0
        self.by_score: dict[int, int] = {}
        self._of_node: dict[int, int] = {}
        # The keys of `by_score`, lowest first.
        self._in_order: list[int] = []

    def bring_forward(self) -> None:
        changed = self._reader.changed()
        if not changed:
            return
        if changed == EVERY_NODE:
            self.known = 0
            self.by_score.clear()
            self._of_node.clear()
            self._in_order.clear()
            return
        for position in positions(changed & self.known):
            score = self._of_node.pop(position)
            left = self.by_score[score] & ~(1 << position)
            if left:
                self.by_score[score] = left
            else:
                del self.by_score[score]
                del self._in_order[bisect_left(self._in_order, score)]
        self.known &= ~changed

    def ask(self, nodes: int, question: Callable[[int], int]) -> None:
        """Asks about those of `nodes` that are not known yet."""
        for position in positions(nodes & ~self.known):
            score = question(position)
            bit = 1 << position
            self._of_node[position] = score
            if score in self.by_score:
                self.by_score[score] |= bit
            else:
                self.by_score[score] = bit
                insort(self._in_order, score)
            self.known |= bit

    def sorted_by_score(self, nodes: int) -> dict[int, int]:
        """`nodes`, all of them known, by score."""
        return {score: both for score, mask in self.by_score.items() if (both := mask & nodes)}

    def highest(self, nodes: int) -> tuple[int, int]:
        """The highest score among `nodes`, of which at least one is known, and those that have it."""
        for score in reversed(self._in_order):
            both = self.by_score[score] & nodes
            if both:
                return score, both
        raise LookupError("no score is known for any of these nodes")


A = TypeVar("A", FilterAnswers, ScoreAnswers)


class AnswerCache(Generic[A]):
    """Answers by plugin and pod shape; the shape not used for longest goes first."""

    def __init__(self, log: NodeChangeLog, make: type[A], kept: int = 512) -> None:
        self._log = log
        self._make: Callable[[NodeChangeLog, frozenset[NodeFacet]], A] = make
        self._kept = kept
        self._answers: OrderedDict[tuple[str, Hashable], A] = OrderedDict()

    def for_shape(self, plugin: str, shape: Hashable, facets: frozenset[NodeFacet]) -> A:
        key = (plugin, shape)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = self._make(self._log, facets)
            if len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
            answers.bring_forward()
        return answers


_ALWAYS_ALL_BELOW = 100
_LEAST_PERCENTAGE = 5


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Feasible nodes after which the search stops; `percentage` 0 adapts to the size of the cluster."""
    if nodes < _ALWAYS_ALL_BELOW or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, _LEAST_PERCENTAGE)
    return max(nodes * percentage // 100, _ALWAYS_ALL_BELOW)


def span(start: int, length: int, nodes: int) -> int:
    """The mask of `length` positions from `start`, going round at `nodes`."""
    if length >= nodes:
        return (1 << nodes) - 1
    end = start + length
    if end <= nodes:
        return ((1 << length) - 1) << start
    return (((1 << (nodes - start)) - 1) << start) | ((1 << (end - nodes)) - 1)


def windows(start: int, nodes: int, first: int) -> Iterator[tuple[int, int]]:
    """(offset from start, mask) of stretches that together cover all nodes once, each twice as long as the one before."""
    offset, length = 0, max(first, 1)
    while offset < nodes:
        length = min(length, nodes - offset)
        yield offset, span((start + offset) % nodes, length, nodes)
        offset += length
        length *= 2


def steps_to_nth(mask: int, start: int, nodes: int, nth: int) -> int:
    """How many positions a walk from `start` visits until it has met `nth` set bits; `mask` has at least that many."""
    from_start = (mask >> start) | ((mask & ((1 << start) - 1)) << (nodes - start))
    low, high = nth, nodes
    while low < high:
        middle = (low + high) // 2
        if (from_start & ((1 << middle) - 1)).bit_count() >= nth:
            high = middle
        else:
            low = middle + 1
    return low


Question = Callable[[int], PluginStatus | None]


@dataclass(frozen=True, slots=True)
class FilterStep:
    """A filter plugin and the optional Protocols that it implements, found out once for each profile and not for each pod."""

    name: str
    plugin: FilterPlugin
    bulk: BulkFilterPlugin | None
    remembered: RememberedFilter | None
    prepared: PreparedFilter | None


def filter_steps(plugins: tuple[FilterPlugin, ...]) -> tuple[FilterStep, ...]:
    return tuple(
        FilterStep(
            plugin.name,
            plugin,
            plugin if isinstance(plugin, BulkFilterPlugin) else None,
            plugin if isinstance(plugin, RememberedFilter) else None,
            plugin if isinstance(plugin, PreparedFilter) else None,
        )
        for plugin in plugins
    )


@dataclass(slots=True)
class Found:
    """Feasible nodes and, by status, those that were turned away; `walked` positions were looked at."""

    feasible: int = 0
    walked: int = 0
    rejected: dict[PluginStatus, int] = field(default_factory=dict)
    failure: PluginStatus | None = None


class FilterRun:
    """The filters of one attempt; answers that may not be remembered live as long as this run."""

    def __init__(
        self,
        steps: tuple[FilterStep, ...],
        cycle: CycleState,
        pod: Pod,
        snapshot: "Snapshot",
        timer: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._timer = timer
        self._cycle = cycle
        self._pod = pod
        self._snapshot = snapshot
        self._steps = [step for step in steps if step.name not in cycle.skipped_filters]
        self._asked: list[tuple[FilterStep, FilterAnswers]] | None = None

    def _answers(self) -> list[tuple[FilterStep, FilterAnswers]]:
        if self._asked is None:
            self._asked = [(step, self._memory_of(step)) for step in self._steps]
        return self._asked

    def _memory_of(self, step: FilterStep) -> FilterAnswers:
        remembered = step.remembered
        shape = remembered.filter_shape(self._cycle, self._pod) if remembered is not None else None
        if remembered is None or shape is None:
            return FilterAnswers(_NO_CHANGES, frozenset())
        return self._snapshot.filter_answers.for_shape(step.name, shape, remembered.filter_depends_on)

    def _question(self, step: FilterStep) -> Question:
        nodes, name = self._snapshot.nodes.in_order, step.name
        if step.prepared is not None:
            ask = step.prepared.filter_of(self._cycle, self._pod)
        else:
            ask = partial(step.plugin.filter, self._cycle, self._pod)

        def question(position: int) -> PluginStatus | None:
            status = ask(nodes[position])
            return None if status is None else status.by(name)

        return question

    def passing(self, candidates: int, rejected: dict[PluginStatus, int]) -> int:
        """Those of `candidates` that every filter lets pass; the others are entered under their first refusal."""
        for step, answers in self._answers():
            if step.bulk is not None:
                for mask, status in step.bulk.reject(self._cycle, self._pod, self._snapshot, candidates):
                    turned_away = mask & candidates
                    if turned_away:
                        status = status.by(step.name)
                        rejected[status] = rejected.get(status, 0) | turned_away
                        candidates &= ~turned_away
            if candidates & ~answers.known:
                answers.ask(candidates, self._question(step))
            passed = candidates & answers.passed
            if passed != candidates:
                for status, mask in answers.rejected.items():
                    turned_away = mask & candidates
                    if turned_away:
                        rejected[status] = rejected.get(status, 0) | turned_away
            if self._timer is not None:
                self._timer(step.name, "Filter", "Success" if passed else "Unschedulable")
            candidates = passed
            if not candidates:
                break
        return candidates

    def on_one(self, position: int) -> PluginStatus | None:
        """The first refusal of one node as it is now, without remembering anything; None if it passes."""
        for step in self._steps:
            if step.bulk is not None:
                bit = 1 << position
                for mask, status in step.bulk.reject(self._cycle, self._pod, self._snapshot, bit):
                    if mask & bit:
                        return status.by(step.name)
            answer = step.plugin.filter(self._cycle, self._pod, self._snapshot.nodes[position])
            if answer is not None and answer.code is not StatusCode.SUCCESS:
                return answer.by(step.name)
        return None

    def find(self, candidates: int, start: int, wanted: int) -> Found:
        """Walk from `start` until `wanted` nodes pass. A filter's error counts only if the walk reaches that node."""
        nodes = len(self._snapshot.nodes)
        found = Found()
        for offset, window in windows(start, nodes, wanted):
            found.feasible |= self.passing(window & candidates, found.rejected)
            found.walked = min(offset + window.bit_count(), nodes)
            if found.feasible.bit_count() >= wanted:
                break
        if found.feasible.bit_count() >= wanted and found.walked > wanted:
            found.walked = steps_to_nth(found.feasible, start, nodes, wanted)
        reached = span(start, found.walked, nodes)
        found.feasible &= reached
        found.failure = next(self._failures(found, reached), None)
        return found

    def _failures(self, found: Found, reached: int) -> Iterator[PluginStatus]:
        for status, mask in found.rejected.items():
            if status.code is StatusCode.ERROR and mask & reached:
                yield error(status.as_one_reason(f'running "{status.plugin}" filter plugin')).by(status.plugin)


_NO_CHANGES = NodeChangeLog()
