"""One rule, one file. A rule lets a device enter if it may join those already chosen, and forgets it when it leaves.

`taints` is static and only narrows masks; the others keep state during a search and are asked only where a claim or a
pool needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dray.allocator.requests import Option

KindOf = Callable[[int], int]
"""Device position to the number of the kind it has for the requests still to come."""


class Rule(Protocol):
    name: str
    is_constraint: bool
    """A constraint that refuses a device of an `All` request is fatal."""

    def narrow(self, option: Option, mask: int) -> int:
        """Devices of `mask` that are not ruled out already; cheap, may keep too many."""

    def enter(self, option: Option, position: int) -> bool: ...

    def leave(self, option: Option, position: int) -> None:
        """Undoes the latest `enter` that said yes, which was for this device."""

    def kind(self, first_request: int, position: int) -> Hashable:
        """Devices with equal kinds look the same to this rule from request `first_request` on."""

    def state(self, first_request: int, kind_of: KindOf) -> Hashable:
        """What has been chosen so far, up to exchange of equal devices."""

    def why(self, option: Option, position: int) -> str:
        """Why the device may not enter now; asked only after `enter` said no."""
