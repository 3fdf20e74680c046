"""Known traps of a cluster, each as one finding with its cause and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dray.api.core import Pod
from dray.explain.claim_findings import CLAIM_CHECKS
from dray.explain.cluster_objects import World
from dray.explain.device_findings import DEVICE_CHECKS
from dray.explain.findings import (
    Examination,
    Finding,
)
from dray.explain.pod_findings import (
    POD_CHECKS,
    START_CHECKS,
)
from dray.features import FeatureGates

Severity = Literal["error", "warning"]
Check = Callable[[Examination], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (*CLAIM_CHECKS, *DEVICE_CHECKS, *POD_CHECKS)


@dataclass(frozen=True, slots=True)
class CdiFiles:
    """Names of the files in a node's CDI directory; `node` is whose directory it is, empty if unknown."""

    names: frozenset[str]
    node: str = ""


def examine(world: World, *, gates: FeatureGates | None = None, cdi: CdiFiles | None = None) -> list[Finding]:
    """Everything that looks wrong, worst first."""
    examination = Examination(world, gates or FeatureGates.default())
    if cdi is not None:
        examination.cdi_names, examination.cdi_node = cdi.names, cdi.node
    found = [finding for check in CHECKS for finding in check(examination)]
    return sorted(found, key=lambda finding: (finding.severity != "error", finding.code, finding.subject))


def why_not_started(world: World, pod: Pod) -> list[Finding]:
    """What keeps a pod that has a node from running there, as far as the objects tell."""
    alone = Examination(replace(world, pods=(pod,)), FeatureGates.default())
    return [finding for check in START_CHECKS for finding in check(alone)]
