"""Limits how many pods are bound at once, and says when their writes go before those of others.

While few pods wait, all of them may be on their way to their nodes: writes that reach a server together cost it less. When many
wait, taking more of them out of the queue binds none sooner; each only takes longer, and whatever comes later with a higher priority
finds them ahead of it. Then few are bound at once, and the server is asked to let their writes pass.
"""

from dataclasses import dataclass

MOST_BINDINGS = 32
FEW_BINDINGS = 5
LONG = 4 * MOST_BINDINGS


@dataclass(slots=True)
class Backlog:
    is_long: bool = False

    def look(self, ready: int, coming: int) -> None:
        """`ready` pods can be scheduled now, `coming` pods will be soon. A long backlog counts as long until it has been worked off."""
        waiting = ready + coming
        if waiting >= LONG:
            self.is_long = True
        elif waiting < FEW_BINDINGS:
            self.is_long = False

    @property
    def most_bindings(self) -> int:
        return FEW_BINDINGS if self.is_long else MOST_BINDINGS
