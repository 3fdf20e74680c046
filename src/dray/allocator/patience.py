"""How long one attempt may search, and in how large pieces."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from dray.allocator.types import Deadline


def _forever() -> None:
    return None


class Patience:
    """One for all nodes that an attempt asks, also when the attempt was interrupted and starts again.

    Each node has a deadline of its own, but nodes of a kind share their fate: what took too long on one of them is not tried
    on the others. `turn_is_over` says when others should have their turn; then the search raises `Paused` and goes on where it
    stopped when it is asked again.
    """

    __slots__ = ("_deadlines", "_given_up", "_new_deadline", "turn_is_over")

    def __init__(
        self, new_deadline: Callable[[], Deadline | None] = _forever, turn_is_over: Deadline | None = None
    ) -> None:
        self._new_deadline = new_deadline
        self._deadlines: dict[str, Deadline | None] = {}
        self._given_up: set[Hashable] = set()
        self.turn_is_over = turn_is_over

    @property
    def has_given_up(self) -> bool:
        return bool(self._given_up)

    def deadline_on(self, node_name: str) -> Deadline | None:
        if node_name not in self._deadlines:
            self._deadlines[node_name] = self._new_deadline()
        return self._deadlines[node_name]

    def give_up(self, kind_of_node: Hashable) -> None:
        self._given_up.add(kind_of_node)

    def is_hopeless(self, kind_of_node: Hashable) -> bool:
        return kind_of_node in self._given_up
