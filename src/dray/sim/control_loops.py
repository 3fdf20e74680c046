"""Controllers and scheduler over one look at the cluster: in the server's process, or in one of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from dray.client import Client, Informers
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import (
    ControllerManager,
    ControllerOptions,
)
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.service import SchedulerService
from dray.tasks import cancelled
from dray.telemetry import Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopsOptions:
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    # Which of the controllers, as the controller manager's option names them; none: no controllers.
    controllers: tuple[str, ...] = ("*",)
    with_scheduler: bool = True
    scheduler: SchedulerConfig | None = None
    root_ca: str = ""
    quota_counts_claims: bool = False


class ControlLoops:
    """`client_of` gives the client of a component. `await start()` returns when all of them are at work."""

    def __init__(self, client_of: Callable[[str], Client], options: LoopsOptions) -> None:
        self._client_of, self._options = client_of, options
        self._tasks: list[asyncio.Task[None]] = []
        self.scheduler: SchedulerService | None = None
        # The metrics of each part, by its name.
        self.registries: dict[str, Registry] = {}

    async def start(self) -> None:
        options, ready = self._options, []
        # One look at the cluster for all of them: each change is read once.
        self.informers = Informers(self._client_of("dray-informers"))
        if options.controllers:
            context = ControllerContext(
                self._client_of("dray-controller-manager"), self.informers.share(), options.gates
            )
            self.registries["controller-manager"] = context.registry
            choices = ControllerOptions(
                options.controllers, root_ca=options.root_ca, quota_counts_claims=options.quota_counts_claims
            )
            manager = ControllerManager(context, choices)
            self._run(manager.run(), "controllers")
            ready.append(manager.ready.wait())
        if options.with_scheduler:
            self.scheduler = SchedulerService(
                self._client_of("dray-scheduler"),
                config=options.scheduler,
                gates=options.gates,
                informers=self.informers.share(),
                joins_writes=True,
            )
            self.registries["scheduler"] = self.scheduler.metrics.registry
            self._run(self.scheduler.run(), "scheduler")
            ready.append(self.scheduler.ready.wait())
        self.informers.start()
        await asyncio.gather(*ready)

    async def stop(self) -> None:
        await cancelled(*self._tasks)
        await self.informers.stop()

    def _run(self, coroutine: object, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=name)  # type: ignore[arg-type]
        task.add_done_callback(_report_failure)
        self._tasks.append(task)


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("%s ended unexpectedly", task.get_name(), exc_info=task.exception())
