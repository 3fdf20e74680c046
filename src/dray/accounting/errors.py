"""Errors in the input of accounting. Nothing has been counted when one of them is raised."""

from dray.api.reasons import Reason


class AccountingError(ValueError):
    """The amounts of a pod or claim cannot be told; the text is for the user."""

    @property
    def reason(self) -> Reason:
        return Reason("accounting", str(self))


class NotNodeAllocatable(AccountingError):
    """A device maps to something that nodes do not hand out themselves, such as an extended resource."""


class SpellingConflict(AccountingError):
    """One device declares its needs in two spellings."""


class UnknownCapacityKey(AccountingError):
    """A mapping names a capacity that its device does not have."""


class NegativeAmount(AccountingError):
    """An amount or product is below zero."""


class AmountOverflow(AccountingError):
    """A product is larger than a node can ever count (64 bits)."""


class DeviceNotFound(AccountingError):
    """An allocated device is in no slice."""


class ClaimNotPublished(DeviceNotFound):
    """None of the claim's devices is in a slice."""


class DeviceNotOnNode(AccountingError):
    """An allocated device is published for other nodes."""


class UnknownPolicy(AccountingError):
    """The accounting policy is none of the four."""


class PolicyMissing(AccountingError):
    """The class declares policies, but none for this resource, and the device has none either."""


class IncompatiblePolicies(AccountingError):
    """Claims of one container cannot be counted together."""


class NodeLedgerError(AccountingError):
    """The ledger was asked for something that its state does not allow; it is unchanged."""


class AlreadyPlaced(NodeLedgerError):
    pass


class NotAssumed(NodeLedgerError):
    pass


class LedgerInconsistent(NodeLedgerError):
    """The totals are not the sum of the rows: a bug, never the user's doing."""
