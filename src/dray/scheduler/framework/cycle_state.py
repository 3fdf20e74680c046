"""Values that plugins share during one attempt to schedule one pod."""

from typing import Any, TypeVar

T = TypeVar("T")


class CycleState:
    """Values keyed by their type: a plugin writes its own value type and reads those of others."""

    __slots__ = ("_values", "is_sampled", "skipped_filters", "skipped_scores", "turn")

    def __init__(self, turn: int | None = None) -> None:
        """`turn` counts from 0 where an attempt may raise `AttemptUnfinished` and is repeated; None: it runs to its end."""
        self.turn = turn
        # Whether the time of each plugin is recorded in this attempt.
        self.is_sampled = False
        self._values: dict[type[Any], Any] = {}
        self.skipped_filters: set[str] = set()
        self.skipped_scores: set[str] = set()

    def write(self, value: object) -> None:
        self._values[type(value)] = value

    def read(self, kind: type[T]) -> T | None:
        return self._values.get(kind)

    def expect(self, kind: type[T]) -> T:
        """The value another step of this attempt must have written."""
        value = self._values.get(kind)
        if value is None:
            raise LookupError(f"{kind.__name__} was not written in this scheduling attempt")
        return value  # type: ignore[no-any-return]

    def fork(self) -> "CycleState":
        """A copy for a dry run; values themselves are shared and replaced, never changed in place."""
        copy = CycleState()
        copy._values = dict(self._values)
        copy.skipped_filters = set(self.skipped_filters)
        copy.skipped_scores = set(self.skipped_scores)
        return copy
