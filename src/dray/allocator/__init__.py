"""Which devices serve these claims on this node?

The same devices in the same order as Kubernetes, every "no" with its reasons, and no search that blows up. Pure: no
clock, no I/O, nothing random. Nothing here writes: the caller stores what it is given.

    inventory = Inventory(features)            what is published: slices and taint rules, kept up to date one by one
    inventory.apply_slice(slice)               new or changed; inventory.remove_slice(name)
    inventory.apply_taint_rule(rule)           new or changed; inventory.remove_taint_rule(name)

    ledger = Ledger(features)                  what is taken: by stored claims, and tentatively by claims in flight
    ledger.apply_claim(claim)                  added or changed; ledger.remove_claim(namespace, name)
    ledger.assume(namespace, name, result)     an AllocationResult in flight, until apply_claim shows it stored
    ledger.forget(namespace, name)             the write failed: the tentative entry goes
    ledger.check(claims)                       raises LedgerError unless rebuilding from these claims gives the same

    allocator = Allocator(inventory, ledger)   one per process; remembers selectors and answers; policy="best-fit" and
                                               policy="least-fragmentation" try devices in another order
    allocator.apply_class(device_class)        allocator.remove_class(name)

    question = allocator.question(claims)      the claims of one pod, in order; pods with equal claims share what is known
    question.on(node)                          Allocation | NoFit | Failure, for one node
    question.on(node, deadline)                `deadline()` is asked in mid-search; true ends it with Failure(TIMED_OUT)
    question.on(node, limits=TimeLimits(...))  for many nodes: nodes of a kind share one deadline, and a search that takes
                                               long raises `Paused` and continues when asked again
    question.on_nodes(nodes)                   an iterator of (node, answer); each kind of node is searched once
    question.fitting(nodes, limit)             the first `limit` nodes that fit, in the given order, with allocations, and
                                               the failures; a node costs a dict lookup if nothing changed on it

    question.census(node)                      how many devices the first request can see there, and how many are in use

    allocation.results(share_ids)              one AllocationResult per claim; `share_ids()` gives a fresh ID each time
    allocation.devices()                       just the devices; allocation.score is what scheduling adds for alternatives
    no_fit.reasons, no_fit.nearest_miss        worked out when first asked, on the state as it is then

`allocate_on(node, claims, slices=..., classes=..., allocated=...)` does all of it once. `allocate(objects, claim)` does it with plain
documents, defaults applied, and asks every node: for scripts.

An answer is about the moment it was given: after a claim or slice event ask again. Answers of `Question.on` are remembered
per node until something on that node changes, so asking again is cheap.
"""

from dray.allocator.allocator import Allocator, Question, TimeLimits, allocate_on
from dray.allocator.documents import Allocated, NotAllocated, allocate
from dray.allocator.inventory import Inventory
from dray.allocator.ledger import Ledger, LedgerError
from dray.allocator.results import Allocation, Answer
from dray.allocator.search import Paused
from dray.allocator.types import (
    INVALID_POOLS,
    TIMED_OUT,
    ChosenDevice,
    Deadline,
    Failure,
    Features,
    Miss,
    NoFit,
    ShareIDs,
)
from dray.api.dra.pools import DeviceID

__all__ = [
    "INVALID_POOLS",
    "TIMED_OUT",
    "Allocated",
    "Allocation",
    "Allocator",
    "Answer",
    "ChosenDevice",
    "Deadline",
    "DeviceID",
    "Failure",
    "Features",
    "Inventory",
    "Ledger",
    "LedgerError",
    "Miss",
    "NoFit",
    "NotAllocated",
    "Paused",
    "Question",
    "ShareIDs",
    "TimeLimits",
    "allocate",
    "allocate_on",
]
