"""Which pod has to leave a node that runs out of memory. Pure.

The order is the kubelet's: pods that use more than they asked for come first, then those of lower priority, then those that are
furthest above what they asked for. What a pod asked for includes what its claims bring along, so that a pod is not driven out for memory
that its devices gave it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dray.accounting import ClaimCharge
from dray.accounting.enforcement import usable_requests
from dray.accounting.resources import MEMORY, ledger_amount
from dray.api.core import Pod
from dray.api.quantity import Quantity, QuantityError

# Pods from this priority on keep the cluster or the node alive and are never driven out.
CRITICAL_PRIORITY = 2_000_000_000
SIGNAL = "memory.available"
PRESSURE_TAINT = "node.kubernetes.io/memory-pressure"


class ThresholdError(ValueError):
    """A threshold that cannot be read."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Less memory than this must not be left: an amount, or a part of the node's capacity."""

    amount: Quantity | None = None
    percent: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """Reads `memory.available<100Mi` or `memory.available<5%`, as `--eviction-hard` takes it."""
        signal, _, value = text.partition("<")
        if signal.strip() != SIGNAL or not value:
            raise ThresholdError(f"{text!r}: must be {SIGNAL}<AMOUNT or {SIGNAL}<PERCENT%")
        value = value.strip()
        try:
            found = cls(percent=float(value[:-1])) if value.endswith("%") else cls(Quantity.parse(value))
        except (ValueError, QuantityError) as error:
            raise ThresholdError(f"{text!r}: {error}") from error
        if found.percent < 0 or found.percent > 100 or (found.amount is not None and found.amount.nanos < 0):
            raise ThresholdError(f"{text!r}: must be positive, and at most 100%")
        return found

    def bytes_of(self, capacity: int) -> int:
        return self.amount.value() if self.amount is not None else int(capacity * self.percent / 100)


@dataclass(frozen=True, slots=True)
class MemoryState:
    """Memory of a node at one moment, in bytes; `used` by pod UID."""

    capacity: int
    available: int
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Eviction:
    pod: Pod
    message: str


def memory_request(pod: Pod, charges: Iterable[ClaimCharge]) -> int:
    """The memory that the pod asked for, with what its claims bring along, in bytes."""
    return ledger_amount(MEMORY, usable_requests(pod, tuple(charges)).get(MEMORY, 0))


def is_short(state: MemoryState, threshold: Threshold) -> bool:
    return state.available < threshold.bytes_of(state.capacity)


def next_eviction(
    pods: Iterable[tuple[Pod, Iterable[ClaimCharge]]], state: MemoryState, threshold: Threshold
) -> Eviction | None:
    """The pod that has to leave next; None while there is memory enough, or nobody who may be driven out."""
    if not is_short(state, threshold):
        return None
    candidates = [
        (pod, state.used[pod.metadata.uid], memory_request(pod, charges))
        for pod, charges in pods
        if (pod.spec.priority or 0) < CRITICAL_PRIORITY and state.used.get(pod.metadata.uid)
    ]
    if not candidates:
        return None
    pod, used, asked = min(candidates, key=lambda row: (row[1] <= row[2], row[0].spec.priority or 0, row[2] - row[1]))
    least = _said(threshold.bytes_of(state.capacity))
    text = (
        f"The node was low on resource: memory. Threshold quantity: {least}, "
        f"available: {_said(state.available)}. The pod was using {_said(used)}, "
        f"request is {_said(asked)} with its claims"
    )
    return Eviction(pod, f"{text}, has larger consumption of memory." if used > asked else f"{text}.")


def _said(size: int) -> str:
    return str(Quantity.of(size, "BinarySI"))
