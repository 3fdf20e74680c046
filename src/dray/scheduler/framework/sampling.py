"""How many nodes an attempt looks for, and in which order it walks them."""

from collections.abc import Iterator

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
