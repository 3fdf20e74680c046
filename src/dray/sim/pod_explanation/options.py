"""How pods are explained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """`nodes` are looked at in depth. `new_pods`, by namespace and name, are not created yet, so nobody has made their claims.
    `is_live`: an object that is not in the world does not exist; a dump may just lack it. `is_brief`: only what is in the way is
    wanted, and not what would help."""

    nodes: Sequence[str] = ()
    gates: FeatureGates | None = None
    config: SchedulerConfig | None = None
    new_pods: Collection[tuple[str, str]] = ()
    is_live: bool = False
    is_brief: bool = False


DEFAULT_OPTIONS = ExplainOptions()
