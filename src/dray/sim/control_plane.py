"""API server, controllers and scheduler in one process, and a client for each."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dray import __version__
from dray.apiserver.assembly import Running, ServerOptions, start_server
from dray.apiserver.exchange import Request
from dray.apiserver.identity import LOOPBACK
from dray.client import Client, Informers, InProcessTransport
from dray.clock import Clock, RealClock
from dray.controllers.context import Context
from dray.controllers.roster import Choices, Roster
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.service import SchedulerService
from dray.store.interface import Store
from dray.store.opening import open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    data: Path
    store_url: str = ""
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    runtime_config: str = ""
    minor: str = "37"
    scheduler: SchedulerConfig | None = None
    with_controllers: bool = True
    # Which of them, as the controller manager's option names them.
    controllers: tuple[str, ...] = ("*",)
    with_scheduler: bool = True
    # Names and addresses that the server's certificate is for.
    hosts: tuple[str, ...] = ("127.0.0.1",)
    # As a release of Kubernetes, with what it does not refuse.
    emulates: bool = False


class ControlPlane:
    """`await start()`, then `client(...)` and `await listen(...)`; `await stop()` ends it."""

    def __init__(self, options: ControlPlaneOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or RealClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._store: Store | None = None
        self.running: Running
        self.scheduler: SchedulerService | None = None
        self.url = ""

    async def start(self) -> None:
        options = self._options
        options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._store = await open_store(options.store_url, options.data)
        server_options = ServerOptions(
            options.data,
            options.gates,
            options.runtime_config,
            options.minor,
            options.hosts,
            resize_with_claims=options.emulates,
        )
        self.running = await start_server(self._store, server_options, self._clock)
        ready = []
        # One look at the cluster for all of them: each change is read once.
        self._informers = Informers(self.client("dray-informers"))
        if options.with_controllers:
            client = self.client("dray-controller-manager")
            ca = self.running.credentials.authority.certificate_pem.decode()
            context = Context(client, self._informers.share(), options.gates)
            roster = Roster(context, Choices(options.controllers, root_ca=ca))
            self._run(roster.run(), "controllers")
            ready.append(roster.ready.wait())
        if options.with_scheduler:
            self.scheduler = SchedulerService(
                self.client("dray-scheduler"),
                config=options.scheduler,
                gates=options.gates,
                informers=self._informers.share(),
            )
            self._run(self.scheduler.run(), "scheduler")
            ready.append(self.scheduler.ready.wait())
        self._informers.start()
        await asyncio.gather(*ready)

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve HTTPS as well; the answer is the URL."""
        self.url = await self.running.listen(host, port)
        return self.url

    def client(self, component: str) -> Client:
        """A client without sockets that may do everything."""
        transport = InProcessTransport(self.running.server.handle, partial(Request, user=LOOPBACK))
        return Client(transport, clock=self._clock, user_agent=f"{component}/{__version__}")

    def kubeconfig(self) -> str:
        assert self.url, "listen first"
        return self.running.credentials.admin_kubeconfig(self.url)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._informers.stop()
        await self.running.stop()
        if self._store is not None:
            await self._store.close()

    def _run(self, coroutine: object, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=name)  # type: ignore[arg-type]
        task.add_done_callback(_report_failure)
        self._tasks.append(task)


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("%s ended unexpectedly", task.get_name(), exc_info=task.exception())
