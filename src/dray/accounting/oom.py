"""OOM score adjustments: who is killed first when the node runs out of memory."""

from collections.abc import Sequence

from dray.accounting.ask import RequestOptions, requests_asked
from dray.accounting.charges import ClaimCharge, charges_in_status
from dray.accounting.footprint import requests_footprint
from dray.accounting.qos import Enforcement, qos_class
from dray.accounting.resources import MEMORY, ledger_amount
from dray.accounting.shares import split_share
from dray.api.core import Container, Pod

NODE_CRITICAL = "system-node-critical"

_GUARANTEED = -997
_BEST_EFFORT = 1000
_BURSTABLE_RANGE = (3, 999)
_CONTAINERS = RequestOptions(skip_pod_level_resources=True, exclude_overhead=True)


def oom_score_adj(
    pod: Pod,
    container: Container,
    memory_capacity: int,
    enforcement: Enforcement = Enforcement.KEP,
    charges: Sequence[ClaimCharge] | None = None,
) -> int:
    """The adjustment for one container on a node with `memory_capacity` bytes; higher is killed earlier."""
    if charges is None:
        charges = charges_in_status(pod.status.node_allocatable_resource_claim_statuses)
    tier = qos_class(pod, enforcement, charges)
    if pod.spec.priority_class_name == NODE_CRITICAL or tier == "Guaranteed":
        return _GUARANTEED
    if tier == "BestEffort" or memory_capacity <= 0:
        return _BEST_EFFORT
    beside = _unclaimed_level(pod, charges)
    own = _adjustment(_memory(container, charges) + beside, memory_capacity)
    if container.restart_policy != "Always" or container in pod.spec.containers:
        return own
    # A sidecar must outlive the containers it serves.
    smallest = min((_memory(other, charges) for other in pod.spec.containers), default=0)
    return min(own, _adjustment(smallest + beside, memory_capacity))


def _adjustment(memory: int, capacity: int) -> int:
    lowest, highest = _BURSTABLE_RANGE
    return max(lowest, min(highest, 1000 - 1000 * memory // capacity))


def _memory(container: Container, charges: Sequence[ClaimCharge]) -> int:
    own = container.resources.requests.get(MEMORY)
    return ledger_amount(MEMORY, split_share(container.name, MEMORY, own.nanos if own else 0, charges))


def _unclaimed_level(pod: Pod, charges: Sequence[ClaimCharge]) -> int:
    """Each container's even part of pod-level memory that no container or claim has asked for."""
    level = pod.spec.resources
    if level is None or MEMORY not in level.requests:
        return 0
    asked = requests_footprint(requests_asked(pod, _CONTAINERS), charges).amounts.get(MEMORY, 0)
    left = ledger_amount(MEMORY, level.requests[MEMORY].nanos) - ledger_amount(MEMORY, asked)
    return max(0, left) // (len(pod.spec.init_containers) + len(pod.spec.containers))
