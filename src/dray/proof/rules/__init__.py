"""One promise, one file. A rule remembers what it needs and looks at one change at a time."""

from dray.proof.rules.devices import DeviceRule
from dray.proof.rules.ledger import LedgerRule
from dray.proof.rules.use import UseRule

__all__ = ["DeviceRule", "LedgerRule", "UseRule"]
