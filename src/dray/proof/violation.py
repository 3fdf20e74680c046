"""A broken promise, with the rule, the objects and the revision."""

from dataclasses import dataclass, field

from dray.proof.history import ObjectKey

# Every rule and the promise behind it.
PROMISES = {
    "device-given-twice": "a device is never given to two claims",
    "capacity-overdrawn": "a capacity is never overdrawn",
    "counter-overdrawn": "a counter is never overdrawn",
    "ledger-overdrawn": "no node's ledger passes its allocatable",
    "bound-over-allocatable": "pods are not bound to a node beyond its allocatable",
    "running-without-claim": "a pod that runs has every claim allocated and reserved for it",
    "running-unprepared": "a pod that runs has every claim prepared",
    "deallocated-in-use": "a claim is deallocated only when nothing uses it",
    "lost-write": "what the API server acknowledged survives",
    "lost-update": "a write made from an older state does not go over a newer one",
    "resurrected": "what was deleted does not come back",
    "stale-read": "an answer shows nothing older than what was answered before it was asked for",
    "watch-order": "a watch shows changes in order",
    "watch-gap": "a watch shows every change",
    "watch-disagrees": "watches and lists show the same",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """`revision` is the revision at which the promise was broken, `objects` are those whose past explains it."""

    rule: str
    revision: int
    subject: str
    message: str
    objects: tuple[ObjectKey, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        assert self.rule in PROMISES, self.rule

    def __str__(self) -> str:
        return f"{self.rule}: revision {self.revision}: {self.subject}: {self.message}"
