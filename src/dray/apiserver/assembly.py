"""A whole server from a store: first objects, credentials, caches, security, and on request a listening socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dray.accounting import SCHEDULING, SCHEDULING_WITHOUT_CLAIMS
from dray.api.scheme import by_kind
from dray.apiserver.core import Core
from dray.apiserver.discovery.served_versions import served
from dray.apiserver.guard.guarded_bindings import GuardedBindings
from dray.apiserver.guard.placements import Placements
from dray.apiserver.http.listener import Listener
from dray.apiserver.request.authentication.issuer import TokenIssuer
from dray.apiserver.request.request_info import MASTERS
from dray.apiserver.security.assembly import (
    SecurityOptions,
    prepare_store,
    start_security,
)
from dray.apiserver.security.credentials import Credentials
from dray.apiserver.server import Access, Server
from dray.apiserver.subresources.pod_logs import (
    CLIENT_NAME,
    PodLogs,
)
from dray.apiserver.watch.cached_objects import CachedObjects
from dray.clock import Clock, RealClock
from dray.features import FeatureGates
from dray.http.server import Handler, url_of
from dray.store.compaction import keep_history
from dray.store.interface import Store
from dray.store.sqlite import SqliteStore
from dray.tasks import cancelled


@dataclass(frozen=True, slots=True)
class ServerOptions:
    data: Path
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    runtime_config: str = ""
    # The release whose version number is shown.
    minor: str = "37"
    hosts: Iterable[str] = ()
    anonymous: bool = True
    token_file: Path | None = None
    # Charge cpu and memory that claims add to a pod to the quotas of its namespace.
    quota_counts_claims: bool = False
    # Whether pods whose claims take cpu or memory of the node can be resized, as in Kubernetes 1.37.
    resize_with_claims: bool = False
    # Whether pods may be bound to nodes that have no room for them, as in Kubernetes.
    overbooking: bool = False


@dataclass(slots=True)
class Running:
    """A server that answers `server.handle`; `listen` puts it on a socket."""

    server: Server
    credentials: Credentials
    _listeners: list[Listener] = field(default_factory=list)
    _mounts: dict[str, Handler] = field(default_factory=dict)

    def mount(self, prefix: str, handler: Handler) -> None:
        """Requests to this path and below go to `handler`, on every socket, before they are authenticated."""
        self._mounts[prefix] = handler

    async def listen(self, host: str, port: int) -> str:
        """HTTPS on this address (port 0: any free one); returns a URL that works on this machine."""
        listener = Listener(self.server, self.credentials.server_context(), self._mounts)
        found_host, found_port = await listener.start(host, port)
        self._listeners.append(listener)
        return url_of("https", found_host, found_port)

    async def stop(self) -> None:
        await self.server.stop_watches()
        for listener in self._listeners:
            await listener.stop()
        await self.server.stop()


async def start_server(store: Store, options: ServerOptions, clock: Clock | None = None) -> Running:
    clock = clock or RealClock()
    credentials = await prepare_store(store, options.data, clock, options.hosts)
    core = Core(store, clock, options.gates)
    core.resize_with_claims = options.resize_with_claims
    await core.start()
    security_options = SecurityOptions(
        anonymous=options.anonymous,
        token_file=options.token_file,
        quota_counts_claims=options.quota_counts_claims,
    )
    security = await start_security(store, CachedObjects(core), credentials, clock, options.gates, security_options)
    core.admission = security.admission
    core.commit, core.check_holdings = security.guard.commit, security.guard.changes
    if not options.overbooking:
        _guard_bindings(store, core)
    logs = PodLogs(core, credentials.client_pair(CLIENT_NAME, [MASTERS]))
    access = Access(
        security.authenticator,
        security.authorizer,
        security.reviews,
        logs,
        security.token_requests,
        TokenIssuer(credentials.token_key),
    )
    server = Server(core, access, served(options.runtime_config, options.gates), options.minor)
    server.on_stop(security.stop)
    forgetting = asyncio.create_task(keep_history(store, clock))
    server.on_stop(lambda: cancelled(forgetting))
    return Running(server, credentials)


def _guard_bindings(store: Store, core: Core) -> None:
    counts_claims = core.gates.enabled("DRANodeAllocatableResources")
    placements = Placements(
        lambda: core.cache(by_kind("Pod")),
        lambda: core.cache(by_kind("Node")),
        SCHEDULING if counts_claims else SCHEDULING_WITHOUT_CLAIMS,
    )
    # A file is one server's own; any other store may have several.
    bindings = GuardedBindings(core, placements, core.commit, several_servers=not isinstance(store, SqliteStore))
    core.commit = bindings.commit
    core.check_holdings = bindings.checked(core.check_holdings)
