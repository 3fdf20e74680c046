"""Caches filter answers and scores per node, for pods of the same shape, until the node changes.

A set of nodes is an int with one bit per node, by position in the node list. The change log says which nodes changed in which facet;
each remembered answer keeps the position up to which it has read the log.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from dray.scheduler.framework.plugin import NodeFacet
from dray.scheduler.framework.status import PluginStatus, StatusCode

EVERY_NODE = -1
"""The mask with every bit set: all nodes, however many there are."""

_KEPT = 8192


class NodeChangeLog:
    """One list of node masks per facet. Old entries are dropped; a reader that fell behind re-reads every node."""

    def __init__(self) -> None:
        self._entries: dict[NodeFacet, list[int]] = {facet: [] for facet in NodeFacet}
        self._dropped: dict[NodeFacet, int] = dict.fromkeys(NodeFacet, 0)

    def add(self, facet: NodeFacet, nodes: int) -> None:
        entries = self._entries[facet]
        entries.append(nodes)
        if len(entries) > _KEPT:
            del entries[: _KEPT // 2]
            self._dropped[facet] += _KEPT // 2

    def forget_all(self) -> None:
        """Node positions have moved: no remembered answer is good any more."""
        for facet in NodeFacet:
            self.add(facet, EVERY_NODE)

    def position(self, facet: NodeFacet) -> int:
        return self._dropped[facet] + len(self._entries[facet])

    def since(self, facet: NodeFacet, position: int) -> int:
        """The nodes whose `facet` changed after `position`."""
        start = position - self._dropped[facet]
        if start < 0:
            return EVERY_NODE
        entries = self._entries[facet]
        changed = 0
        for at in range(start, len(entries)):
            changed |= entries[at]
        return changed


class ChangeReader:
    """Reads the log for one remembered answer."""

    __slots__ = ("_facets", "_log", "_positions")

    def __init__(self, log: NodeChangeLog, facets: Iterable[NodeFacet]) -> None:
        self._log = log
        self._facets = tuple(facets)
        self._positions = [log.position(facet) for facet in self._facets]

    def changed(self) -> int:
        """Nodes that changed since the last call."""
        changed = 0
        for slot, facet in enumerate(self._facets):
            position = self._log.position(facet)
            if position != self._positions[slot]:
                changed |= self._log.since(facet, self._positions[slot])
                self._positions[slot] = position
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

    __slots__ = ("_of_node", "_reader", "by_score", "known")

    def __init__(self, log: NodeChangeLog, facets: frozenset[NodeFacet]) -> None:
        self._reader = ChangeReader(log, facets)
        self.known = 0
        self.by_score: dict[int, int] = {}
        self._of_node: dict[int, int] = {}

    def bring_forward(self) -> None:
        changed = self._reader.changed()
        if not changed:
            return
        if changed == EVERY_NODE:
            self.known = 0
            self.by_score.clear()
            self._of_node.clear()
            return
        for position in positions(changed & self.known):
            score = self._of_node.pop(position)
            left = self.by_score[score] & ~(1 << position)
            if left:
                self.by_score[score] = left
            else:
                del self.by_score[score]
        self.known &= ~changed

    def ask(self, nodes: int, question: Callable[[int], int]) -> dict[int, int]:
        """`nodes` sorted by their score."""
        for position in positions(nodes & ~self.known):
            score = question(position)
            bit = 1 << position
            self._of_node[position] = score
            self.by_score[score] = self.by_score.get(score, 0) | bit
            self.known |= bit
        return {score: mask & nodes for score, mask in self.by_score.items() if mask & nodes}


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
