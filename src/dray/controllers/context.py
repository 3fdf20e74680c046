"""The dependencies of every controller: the client, informers, feature gates and the metrics registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from dray.client import Client, Informers
from dray.clock import Clock
from dray.features import FeatureGates
from dray.telemetry import Registry


@dataclass(frozen=True, slots=True)
class ControllerContext:
    client: Client
    informers: Informers
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    registry: Registry = field(default_factory=Registry)

    @property
    def clock(self) -> Clock:
        return self.client.clock


class Controller(Protocol):
    """Built before the informers start, so that its handlers miss nothing; works when `run` is awaited."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Reconcile until cancelled."""
        ...
