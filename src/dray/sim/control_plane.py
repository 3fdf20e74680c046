"""API server, controllers and scheduler in one process, or the latter two apart; and clients for everybody in this one."""

import socket
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dray import __version__
from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.request_info import LOOPBACK, Request
from dray.client import Client, InProcessTransport
from dray.clock import Clock, RealClock
from dray.features import FeatureGates
from dray.scheduler.config import SchedulerConfig
from dray.scheduler.service import SchedulerService
from dray.sim.control_loops import ControlLoops, LoopsOptions
from dray.sim.pipe_server import PipeServer
from dray.store.interface import Store
from dray.store.store_url import open_store


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
    # Controllers and scheduler are in another process, at the other end of a pipe.
    loops_apart: bool = False

    @property
    def quota_counts_claims(self) -> bool:
        """Quotas count what claims take from nodes, as KEP-5517 plans; a release of Kubernetes does not."""
        return self.gates.enabled("DRANodeAllocatableResources") and not self.emulates


class ControlPlane:
    """`await start()`, then `client(...)` and `await listen(...)`; `await stop()` ends it."""

    def __init__(self, options: ControlPlaneOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or RealClock()
        self._store: Store | None = None
        self.running: RunningServer
        self._loops: ControlLoops | None = None
        self.loops_options: LoopsOptions
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
            quota_counts_claims=options.quota_counts_claims,
        )
        self.running = await start_server(self._store, server_options, self._clock)
        ca = self.running.credentials.authority.certificate_pem.decode()
        self.loops_options = LoopsOptions(
            options.gates,
            options.controllers if options.with_controllers else (),
            options.with_scheduler,
            options.scheduler,
            ca,
            options.quota_counts_claims,
        )
        if not options.loops_apart:
            self._loops = ControlLoops(self.client, self.loops_options)
            await self._loops.start()
            self.running.server.metrics.of_others |= {
                part: registry.text for part, registry in self._loops.registries.items()
            }

    async def serve_pipe(self, connected: socket.socket) -> PipeServer:
        """The process at the other end of the socket has all permissions."""
        return await PipeServer.over(connected, self.running.server.handle)

    @property
    def scheduler(self) -> SchedulerService | None:
        """If there is one in this process."""
        return self._loops.scheduler if self._loops else None

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
        if self._loops is not None:
            await self._loops.stop()
        await self.running.stop()
        if self._store is not None:
            await self._store.close()
