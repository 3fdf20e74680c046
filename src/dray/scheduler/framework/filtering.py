"""Which nodes can take the pod: filters are asked over stretches of the node list until enough nodes are found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from dray.api.core import Pod
from dray.scheduler.framework.answer_cache import (
    FilterAnswers,
    NodeChangeLog,
)
from dray.scheduler.framework.cycle_state import CycleState
from dray.scheduler.framework.plugin import BulkFilterPlugin, FilterPlugin, RememberedFilter
from dray.scheduler.framework.status import PluginStatus, StatusCode, error

if TYPE_CHECKING:
    from dray.scheduler.snapshot import Snapshot

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
    low, high = nth, nodes
    while low < high:
        middle = (low + high) // 2
        if (mask & span(start, middle, nodes)).bit_count() >= nth:
            high = middle
        else:
            low = middle + 1
    return low


Question = Callable[[int], PluginStatus | None]


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
        plugins: tuple[FilterPlugin, ...],
        cycle: CycleState,
        pod: Pod,
        snapshot: "Snapshot",
        timer: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._timer = timer
        self._cycle = cycle
        self._pod = pod
        self._snapshot = snapshot
        self._plugins = [plugin for plugin in plugins if plugin.name not in cycle.skipped_filters]
        self._asked: list[tuple[FilterPlugin, FilterAnswers, Question]] | None = None

    def _answers(self) -> list[tuple[FilterPlugin, FilterAnswers, Question]]:
        if self._asked is None:
            self._asked = [(plugin, self._memory_of(plugin), self._question(plugin)) for plugin in self._plugins]
        return self._asked

    def _memory_of(self, plugin: FilterPlugin) -> FilterAnswers:
        remembered = cast(RememberedFilter, plugin) if hasattr(plugin, "filter_shape") else None
        shape = remembered.filter_shape(self._cycle, self._pod) if remembered is not None else None
        if remembered is None or shape is None:
            return FilterAnswers(_NO_CHANGES, frozenset())
        return self._snapshot.filter_answers.for_shape(plugin.name, shape, remembered.filter_depends_on)

    def _question(self, plugin: FilterPlugin) -> Question:
        nodes, cycle, pod, name = self._snapshot.nodes, self._cycle, self._pod, plugin.name
        ask = plugin.filter

        def question(position: int) -> PluginStatus | None:
            status = ask(cycle, pod, nodes[position])
            return None if status is None else status.by(name)

        return question

    def passing(self, candidates: int, rejected: dict[PluginStatus, int]) -> int:
        """Those of `candidates` that every filter lets pass; the others are entered under their first refusal."""
        for plugin, answers, question in self._answers():
            if hasattr(plugin, "reject"):
                bulk = cast(BulkFilterPlugin, plugin)
                for mask, status in bulk.reject(self._cycle, self._pod, self._snapshot, candidates):
                    turned_away = mask & candidates
                    if turned_away:
                        status = status.by(plugin.name)
                        rejected[status] = rejected.get(status, 0) | turned_away
                        candidates &= ~turned_away
            passed = answers.ask(candidates, question)
            if passed != candidates:
                for status, mask in answers.rejected.items():
                    turned_away = mask & candidates
                    if turned_away:
                        rejected[status] = rejected.get(status, 0) | turned_away
            if self._timer is not None:
                self._timer(plugin.name, "Filter", "Success" if passed else "Unschedulable")
            candidates = passed
            if not candidates:
                break
        return candidates

    def on_one(self, position: int) -> PluginStatus | None:
        """The first refusal of one node as it is now, without remembering anything; None if it passes."""
        for plugin in self._plugins:
            if hasattr(plugin, "reject"):
                bit = 1 << position
                bulk = cast(BulkFilterPlugin, plugin)
                for mask, status in bulk.reject(self._cycle, self._pod, self._snapshot, bit):
                    if mask & bit:
                        return status.by(plugin.name)
            answer = plugin.filter(self._cycle, self._pod, self._snapshot.nodes[position])
            if answer is not None and answer.code is not StatusCode.SUCCESS:
                return answer.by(plugin.name)
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
        if found.feasible.bit_count() >= wanted and nodes:
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
