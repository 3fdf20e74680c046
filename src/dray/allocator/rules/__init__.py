"""One rule, one file. A rule lets a device enter if it may join those already chosen, and forgets it when it leaves.

`taints` is static and only narrows masks. The other rules keep state during a search, and a search has only those that
its claims or pools need. The search knows no rule by name: what it needs to order, prune and bound is in `Rule`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dray.allocator.requests import ClaimRequest, Option
    from dray.allocator.search_plan import SearchPlan

KindOf = Callable[[int], int]
"""Device position to the number of the kind it has for the requests still to come."""


Look = Callable[[], None]
"""Looks at the time; raises where the search is to stop."""


class Rule(ABC):
    """The methods of a rule that the search calls. Masks have bit i set for the device at position i of the node."""

    name: str
    is_constraint = False
    """A constraint that refuses a device of an `All` request is fatal."""
    is_late_for_all = False
    """Whether an `All` request asks this rule after the constraints; what it refuses then is not what a constraint refuses."""
    kind_changes = False
    """Whether equal devices differ once one of them has been chosen; then `live_kind` tells them apart."""
    limits_shares = False
    """Whether `most_that_fit` also limits devices that several requests share."""

    __slots__ = ()

    def concerns(self, option: Option) -> bool:
        """Whether the rule has a say about the devices of this option."""
        return True

    def narrow(self, option: Option, mask: int) -> int:
        """Devices of `mask` that are not ruled out already; cheap, may keep too many."""
        return mask

    @abstractmethod
    def enter(self, option: Option, position: int) -> bool: ...

    @abstractmethod
    def leave(self, option: Option, position: int) -> None:
        """Undoes the latest `enter` that said yes, which was for this device."""

    @abstractmethod
    def kind(self, first_request: int, position: int) -> Hashable:
        """Devices with equal kinds look the same to this rule from request `first_request` on."""

    def live_kind(self, position: int) -> Hashable:
        """The changes to this device by earlier choices of the search."""
        return None

    @abstractmethod
    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        """The choices so far; choices of equal devices give equal values."""

    @abstractmethod
    def why(self, option: Option, position: int) -> str:
        """Why the device may not enter now; asked only after `enter` said no."""

    def lacks(self, option: Option, position: int) -> str:
        """The name of what the device would need and does not have, if that is why it may not enter; else empty."""
        return ""

    # --- bounds ------------------------------------------------------------------------------------------------------

    def most_that_fit(self, mask: int, wanted: int) -> int | None:
        """No more requests than this can be served from the devices of `mask`; None: the rule sets no such limit.

        The number need not be small once it is below `wanted`.
        """
        return None

    def tied_devices(self) -> Iterable[int]:
        """Masks of devices that influence each other through this rule although they are different devices."""
        return ()

    def sum_bounds(self, plan: SearchPlan, look: Look) -> Sequence[SumBound]:
        """Bounds on amounts that all open requests take together; they call `look` while they work something out."""
        return ()

    def value_groups(self) -> ValueGroups | None:
        """How the rule ties devices together by a value they have; None: it does not, or comparing is not that simple."""
        return None


class SumBound(Protocol):
    """Compares what the open requests take at least, all together, with what is left."""

    @property
    def bits(self) -> int:
        """The memory that it uses."""
        ...

    def binds(self, requests: Sequence[ClaimRequest]) -> bool:
        """Whether these requests can ever be refused by it."""
        ...

    def suffices(self, option: Option, ordinal: int, start: int, first: int, free: int) -> bool:
        """Whether enough is left for this option from its `ordinal`th device on, and for all requests after it.

        The next device comes at rank `start` or later, the first one came at rank `first`; `free` are the devices that the
        option may still take.
        """
        ...


class ValueGroups:
    """Devices by the value of an attribute, for bounds.

    `one_value`: all devices that covered requests take have one value. Otherwise each of them has a value of its own.
    `covered` holds option indexes, `last_request` is the last request with a covered option.
    """

    __slots__ = ("covered", "last_request", "masks", "one_value")

    def __init__(self, masks: Sequence[int], covered: frozenset[int], last_request: int, one_value: bool) -> None:
        self.masks = masks
        self.covered = covered
        self.last_request = last_request
        self.one_value = one_value
