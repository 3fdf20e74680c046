"""Which nodes changed in which facet, in order; readers keep the position up to which they have read."""

from collections.abc import Iterable

from dray.scheduler.framework.plugin import Facet

EVERY_NODE = -1
"""The mask with every bit set: all nodes, however many there are."""

_KEPT = 8192


class ChangeLog:
    """One list of node masks per facet. Old entries are dropped; a reader that fell behind re-reads every node."""

    def __init__(self) -> None:
        self._entries: dict[Facet, list[int]] = {facet: [] for facet in Facet}
        self._dropped: dict[Facet, int] = dict.fromkeys(Facet, 0)

    def add(self, facet: Facet, nodes: int) -> None:
        entries = self._entries[facet]
        entries.append(nodes)
        if len(entries) > _KEPT:
            del entries[: _KEPT // 2]
            self._dropped[facet] += _KEPT // 2

    def forget_all(self) -> None:
        """Node positions have moved: no remembered answer is good any more."""
        for facet in Facet:
            self.add(facet, EVERY_NODE)

    def position(self, facet: Facet) -> int:
        return self._dropped[facet] + len(self._entries[facet])

    def since(self, facet: Facet, position: int) -> int:
        """The nodes whose `facet` changed after `position`."""
        start = position - self._dropped[facet]
        if start < 0:
            return EVERY_NODE
        entries = self._entries[facet]
        changed = 0
        for at in range(start, len(entries)):
            changed |= entries[at]
        return changed


class Reader:
    """Reads the log for one remembered answer."""

    __slots__ = ("_facets", "_log", "_positions")

    def __init__(self, log: ChangeLog, facets: Iterable[Facet]) -> None:
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
