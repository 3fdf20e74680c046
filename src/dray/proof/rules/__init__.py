"""One promise, one file. A rule remembers what it needs and looks at one change at a time."""

from dray.proof.rules.claim_use import UseRule
from dray.proof.rules.devices import DeviceRule
from dray.proof.rules.node_ledger import LedgerRule

__all__ = ["DeviceRule", "LedgerRule", "UseRule"]
