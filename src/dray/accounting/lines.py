"""A node's ledger line by line: each resource split into what specs and what claims ask for."""

from dataclasses import dataclass

from dray.accounting.node_ledger import NodeLedger
from dray.accounting.resources import as_quantity, ledger_amount
from dray.accounting.why import Row


@dataclass(frozen=True, slots=True)
class Line:
    """One resource of one node, in ledger units."""

    resource: str
    allocatable: int
    by_spec: int
    by_claims: int
    requested: int

    @property
    def free(self) -> int:
        return self.allocatable - self.requested

    def texts(self) -> dict[str, str]:
        amounts = {
            "allocatable": self.allocatable,
            "bySpec": self.by_spec,
            "byClaims": self.by_claims,
            "requested": self.requested,
            "free": self.free,
        }
        return {name: str(as_quantity(self.resource, amount)) for name, amount in amounts.items()}


def lines_of(ledger: NodeLedger) -> list[Line]:
    """Every resource that the node has or that is asked of it; what only devices serve is not its to hand out."""
    lines = []
    for name in ledger.resources():
        allocatable, requested = ledger.allocatable(name), ledger.requested(name)
        if (allocatable or requested) and ledger.hands_out(name):
            by_claims = ledger_amount(name, sum(row.quantity.nanos for row in ledger.why(name) if is_of_claim(row)))
            lines.append(Line(name, allocatable, requested - by_claims, by_claims, requested))
    return lines


def is_of_claim(row: Row) -> bool:
    return row.kind in ("claim", "pool")
