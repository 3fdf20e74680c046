"""Known traps of a cluster, each as one finding with its cause and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dray.api.core import Pod
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.doctor.claim_findings import CLAIM_CHECKS
from dray.explain.doctor.device_findings import DEVICE_CHECKS
from dray.explain.doctor.finding import (
    CheckedCluster,
    DoctorFinding,
    named,
)
from dray.explain.doctor.pod_findings import (
    POD_CHECKS,
    START_CHECKS,
)
from dray.features import FeatureGates

Severity = Literal["error", "warning"]
Check = Callable[[CheckedCluster], Iterator[DoctorFinding]]

CHECKS: tuple[Check, ...] = (*CLAIM_CHECKS, *DEVICE_CHECKS, *POD_CHECKS)


@dataclass(frozen=True, slots=True)
class CdiFileNames:
    """Names of the files in a node's CDI directory; `node` is whose directory it is, empty if unknown."""

    names: frozenset[str]
    node: str = ""


def examine(
    world: ClusterObjects, *, gates: FeatureGates | None = None, cdi: CdiFileNames | None = None
) -> list[DoctorFinding]:
    """Everything that looks wrong, worst first."""
    checked = CheckedCluster(world, gates or FeatureGates.default())
    if cdi is not None:
        checked.cdi_names, checked.cdi_node = cdi.names, cdi.node
    found = [finding for check in CHECKS for finding in check(checked)]
    return sorted(found, key=lambda finding: (finding.severity != "error", finding.code, finding.subject))


def held_up_pods(world: ClusterObjects) -> list[Pod]:
    """Pods that have a node and are kept from starting there."""
    checked = CheckedCluster(world, FeatureGates.default())
    found = {row.subject for check in START_CHECKS for row in check(checked) if row.severity == "error"}
    return [pod for pod in world.pods if pod.spec.node_name and pod.status.phase == "Pending" and named(pod) in found]


def why_not_started(world: ClusterObjects, pod: Pod) -> list[DoctorFinding]:
    """The findings that explain why a pod on a node does not run, as far as the objects show."""
    alone = CheckedCluster(replace(world, pods=(pod,)), FeatureGates.default())
    return [finding for check in START_CHECKS for finding in check(alone)]
