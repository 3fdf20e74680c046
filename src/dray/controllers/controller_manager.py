"""Starts the controllers that were chosen and keeps them running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dray.client import (
    POD_GROUPS,
    POOL_STATUS_REQUESTS,
    REPLICATION_CONTROLLERS,
    TAINT_RULES,
    ApiError,
    CredentialsError,
    Kind,
    ServerUnreachable,
)
from dray.controllers.claims import DEFAULT_WORKERS, ClaimController
from dray.controllers.context import Controller, ControllerContext
from dray.controllers.daemon_sets import DaemonSetController
from dray.controllers.deployments import DeploymentController
from dray.controllers.discovery import discover
from dray.controllers.disruption import DisruptionController
from dray.controllers.endpoint_slices import EndpointSliceController
from dray.controllers.garbage_collector import GarbageCollector
from dray.controllers.jobs import JobController
from dray.controllers.namespaces import NamespaceController
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.controllers.node_taint_eviction import NodeTaintEvictionController
from dray.controllers.pod_gc import TERMINATED_THRESHOLD, PodGarbageCollector
from dray.controllers.pool_status import PoolStatusController
from dray.controllers.replica_sets import ReplicaSetController
from dray.controllers.resource_quotas import QuotaController
from dray.controllers.root_ca_publisher import RootCaController
from dray.controllers.service_accounts import ServiceAccountController
from dray.controllers.taint_eviction import TaintEvictionController

log = logging.getLogger(__name__)

REPLICATION_CONTROLLER = "replicationcontroller-controller"
RESTART_S = 1.0
SERVER_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of the command line. `controllers` reads like Kubernetes' flag: `*`, `name`, `-name`."""

    controllers: tuple[str, ...] = ("*",)
    claim_workers: int = DEFAULT_WORKERS
    root_ca: str = ""
    terminated_pods: int = TERMINATED_THRESHOLD
    # As the server's option of that name: whether cpu and memory that claims bring count in pods' quotas.
    quota_counts_claims: bool = False

    def wants(self, name: str) -> bool:
        if f"-{name}" in self.controllers:
            return False
        return name in self.controllers or "*" in self.controllers


Builder = Callable[[ControllerContext, ControllerOptions, Sequence[Kind[Any]]], Controller | None]


def _taint_eviction(context: ControllerContext, _: ControllerOptions, kinds: Sequence[Kind[Any]]) -> Controller | None:
    if not context.gates.enabled("DRADeviceTaints"):
        return None
    # Servers before 1.37 serve rules in older versions, of the same shape, or not at all.
    served = next((kind.version for kind in kinds if kind.plural == TAINT_RULES.plural), None)
    follows_rules = context.gates.enabled("DRADeviceTaintRules") and served is not None
    return TaintEvictionController(context, rules=TAINT_RULES.at_version(served or "") if follows_rules else None)


def _claims(context: ControllerContext, choices: ControllerOptions, kinds: Sequence[Kind[Any]]) -> Controller | None:
    if not context.gates.enabled("DynamicResourceAllocation"):
        return None
    served = next((kind.version for kind in kinds if kind.plural == POD_GROUPS.plural), None)
    groups = POD_GROUPS.at_version(served) if served is not None else None
    return ClaimController(context, workers=choices.claim_workers, groups=groups)


def _pool_status(context: ControllerContext, _: ControllerOptions, kinds: Sequence[Kind[Any]]) -> Controller | None:
    is_served = any(kind.plural == POOL_STATUS_REQUESTS.plural for kind in kinds)
    return PoolStatusController(context) if is_served and context.gates.enabled("DRAResourcePoolStatus") else None


def _root_ca(context: ControllerContext, choices: ControllerOptions, _: Sequence[Kind[Any]]) -> Controller | None:
    return RootCaController(context, choices.root_ca) if choices.root_ca else None


BUILDERS: dict[str, Builder] = {
    ClaimController.name: _claims,
    TaintEvictionController.name: _taint_eviction,
    PoolStatusController.name: _pool_status,
    GarbageCollector.name: lambda context, _, kinds: GarbageCollector(context, kinds),
    NamespaceController.name: lambda context, _, kinds: NamespaceController(context, kinds),
    QuotaController.name: lambda context, choices, kinds: QuotaController(
        context, kinds, counts_claims=choices.quota_counts_claims
    ),
    ServiceAccountController.name: lambda context, *_: ServiceAccountController(context),
    RootCaController.name: _root_ca,
    PodGarbageCollector.name: lambda context, choices, _: PodGarbageCollector(
        context, terminated_threshold=choices.terminated_pods
    ),
    NodeLifecycleController.name: lambda context, *_: NodeLifecycleController(context),
    NodeTaintEvictionController.name: lambda context, *_: NodeTaintEvictionController(context),
    ReplicaSetController.name: lambda context, *_: ReplicaSetController(context),
    REPLICATION_CONTROLLER: lambda context, *_: ReplicaSetController(
        context, REPLICATION_CONTROLLERS, REPLICATION_CONTROLLER
    ),
    DeploymentController.name: lambda context, *_: DeploymentController(context),
    JobController.name: lambda context, *_: JobController(context),
    DaemonSetController.name: lambda context, *_: DaemonSetController(context),
    EndpointSliceController.name: lambda context, *_: EndpointSliceController(context),
    DisruptionController.name: lambda context, *_: DisruptionController(context),
}


class ControllerManager:
    """The running controllers. `await run()` works until cancelled; `ready` is set once every copy has synced."""

    def __init__(self, context: ControllerContext, choices: ControllerOptions | None = None) -> None:
        self._context = context
        self._choices = choices or ControllerOptions()
        self.controllers: list[Controller] = []
        self.ready = asyncio.Event()

    async def run(self) -> None:
        kinds = await self._discover()
        self.controllers = list(self._build(kinds))
        informers = self._context.informers
        informers.start()
        try:
            async with asyncio.TaskGroup() as group:
                for controller in self.controllers:
                    group.create_task(self._keep_running(controller), name=controller.name)
                await informers.synced()
                self.ready.set()
                log.info("controllers are running: %s", ", ".join(item.name for item in self.controllers))
        finally:
            await informers.stop()

    def _build(self, kinds: Sequence[Kind[Any]]) -> Iterator[Controller]:
        for name, build in BUILDERS.items():
            if self._choices.wants(name):
                context = replace(self._context, informers=self._context.informers.share())
                controller = build(context, self._choices, kinds)
                if controller is not None:
                    yield controller

    async def _discover(self) -> list[Kind[Any]]:
        """What the server serves; a server that is not there yet is waited for."""
        while True:
            try:
                return await discover(self._context.client)
            except (ApiError, ServerUnreachable, CredentialsError) as error:
                log.warning("waiting for the API server: %s", error)
                await self._context.clock.sleep(SERVER_RETRY_S)

    async def _keep_running(self, controller: Controller) -> None:
        """One controller's bug must not take the others down."""
        while True:
            try:
                await controller.run()
                return
            except Exception:
                log.exception("%s failed, starting it again", controller.name)
            await self._context.clock.sleep(RESTART_S)
