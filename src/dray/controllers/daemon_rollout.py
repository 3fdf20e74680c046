"""Which daemon pods go and where new ones come next, so that not too many nodes are without one. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dray.api.core import Pod
from dray.api.dra.pod_phase import is_active
from dray.api.workloads import RollingUpdate
from dray.controllers.owned_pods import first_to_go


@dataclass(frozen=True, slots=True)
class NodePods:
    """What a node has of one DaemonSet: the best pod of the new edition, the best of an old one, and the rest."""

    new: Pod | None = None
    old: Pod | None = None
    surplus: tuple[Pod, ...] = ()
    is_stopping: bool = False

    @classmethod
    def of(cls, live: Sequence[Pod], edition: str, hash_label: str, *, is_stopping: bool) -> NodePods:
        """`live` has those that nobody deleted. Finished ones are surplus: they are replaced."""
        good = [pod for pod in live if is_active(pod)]
        new = _best([pod for pod in good if pod.metadata.labels.get(hash_label) == edition])
        old = _best([pod for pod in good if pod.metadata.labels.get(hash_label) != edition])
        surplus = tuple(pod for pod in live if pod is not new and pod is not old)
        return cls(new, old, surplus, is_stopping)


@dataclass(slots=True)
class Plan:
    delete: list[Pod] = field(default_factory=list)
    create_on: list[str] = field(default_factory=list)


def limits(rolling: RollingUpdate | None, nodes: int) -> tuple[int, int]:
    """How many nodes may be without a working daemon, and how many may have two. Percentages are rounded up."""
    surge = _amount(rolling.max_surge if rolling else None, 0, nodes)
    unavailable = _amount(rolling.max_unavailable if rolling else None, 1, nodes)
    return (max(1, unavailable) if surge == 0 else unavailable), surge


def rolling_plan(
    nodes: Mapping[str, NodePods], available: frozenset[str], max_unavailable: int, max_surge: int
) -> Plan:
    """`nodes` has every node that wants a daemon; `available` holds the UIDs of pods that work."""
    plan = Plan()
    without = sum(not _works(found, available) for found in nodes.values())
    doubled = sum(found.new is not None and found.old is not None for found in nodes.values())
    room, surge_room = max_unavailable - without, max_surge - doubled
    for name, found in sorted(nodes.items()):
        plan.delete += found.surplus
        if found.old is None:
            if found.new is None and not found.is_stopping:
                plan.create_on.append(name)
        elif found.new is not None:
            # Two on one node: the old one goes as soon as the new one can do its work.
            if not max_surge or found.new.metadata.uid in available:
                plan.delete.append(found.old)
        elif found.old.metadata.uid not in available:
            plan.delete.append(found.old)
        elif surge_room > 0:
            surge_room -= 1
            plan.create_on.append(name)
        elif not max_surge and room > 0:
            room -= 1
            plan.delete.append(found.old)
    return plan


def manual_plan(nodes: Mapping[str, NodePods]) -> Plan:
    """`OnDelete`: a pod of any edition is good until somebody deletes it."""
    plan = Plan()
    for name, found in sorted(nodes.items()):
        plan.delete += found.surplus
        if found.new is not None and found.old is not None:
            plan.delete.append(found.old)
        elif found.new is None and found.old is None and not found.is_stopping:
            plan.create_on.append(name)
    return plan


def _works(found: NodePods, available: frozenset[str]) -> bool:
    return any(pod is not None and pod.metadata.uid in available for pod in (found.new, found.old))


def _best(pods: list[Pod]) -> Pod | None:
    return max(pods, key=first_to_go) if pods else None


def _amount(value: int | str | None, default: int, of: int) -> int:
    if value is None:
        return default
    if isinstance(value, int):
        return max(0, value)
    text = value.removesuffix("%")
    return math.ceil(int(text) * of / 100) if text.isdigit() else default
