"""Builds a complete API server over a store: first objects, credentials, caches, access control, write path, sockets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom

from dray.accounting import SCHEDULING, SCHEDULING_WITHOUT_CLAIMS
from dray.api.scheme import by_kind
from dray.api.served_versions import served_versions
from dray.apiserver.core import Core, RandomNames, WritePath
from dray.apiserver.custom_resources.conversions import ConversionWebhooks
from dray.apiserver.custom_resources.definition_controller import DefinitionController
from dray.apiserver.custom_resources.definitions import CustomDefinitions
from dray.apiserver.guard.binding_guard import BindingGuard, NodeRoom
from dray.apiserver.guard.claim_guard import ClaimGuard
from dray.apiserver.guard.device_records import PublishedDevices
from dray.apiserver.http.listener import Listener, connection_limits
from dray.apiserver.request.authentication.authenticator import Authenticator, StaticTokens
from dray.apiserver.request.authentication.oidc_discovery import TokenIssuer
from dray.apiserver.request.authentication.service_account_tokens import ServiceAccountTokens
from dray.apiserver.request.authentication.token_requests import TokenRequests
from dray.apiserver.request.authorization.authorizer import ServerAuthorizer
from dray.apiserver.request.authorization.reviews import Reviews
from dray.apiserver.request.fairness import SEATS
from dray.apiserver.request.flow_control import FlowControl
from dray.apiserver.security.api_service import keep_address, publish_address, publish_when_writable
from dray.apiserver.security.bootstrap import bootstrap
from dray.apiserver.security.credentials import SERVER_NAMES, Credentials, load_credentials
from dray.apiserver.security.encryption_config import encrypted
from dray.apiserver.security.kubelet_serving_signer import KubeletServingSigner
from dray.apiserver.server import AccessControl, Server
from dray.apiserver.subresources.node_agents import CLIENT_NAME, NodeAgents, kubelet_context
from dray.apiserver.watch.kind_cache import KindCaches, StoreFollower
from dray.apiserver.watch.stored_object import resource_prefix
from dray.apiserver.write.admission.chain import AdmissionChain
from dray.apiserver.write.admission.default_plugins import Surroundings, default_chain
from dray.apiserver.write.admission.policies_and_webhooks import PoliciesAndWebhooks, PolicySurroundings
from dray.apiserver.write.admission.service_addresses import AddressBook
from dray.apiserver.write.admission.service_node_ports import NodePortBook
from dray.apiserver.write.webhooks.calling import WebhookCaller
from dray.apiserver.write.webhooks.service_endpoints import ServiceEndpoints
from dray.clock import Clock, RealClock, rfc3339
from dray.features import FeatureGates
from dray.http.server import HttpHandler, url_of
from dray.store.compaction import keep_history
from dray.store.encryption import EncryptedStore
from dray.store.errors import StoreUnavailable
from dray.store.interface import Store
from dray.store.sqlite import SqliteStore
from dray.tasks import cancelled
from dray.telemetry import Registry


@dataclass(frozen=True, slots=True)
class ServerOptions:
    data: Path
    gates: FeatureGates = field(default_factory=FeatureGates.default)
    runtime_config: str = ""
    # The release whose version number is shown.
    minor: str = "37"
    hosts: Iterable[str] = ()
    # Whether a request without credentials is `system:anonymous` (which may do next to nothing) or 401.
    anonymous: bool = True
    token_file: Path | None = None
    # Charge cpu and memory that claims add to a pod to the quotas of its namespace.
    quota_counts_claims: bool = False
    # Whether pods whose claims take cpu or memory of the node can be resized, as in Kubernetes 1.37.
    resize_with_claims: bool = False
    # Whether the certificates of node agents are taken as they are, as in Kubernetes without a kubelet certificate authority.
    kubelet_insecure_tls: bool = False
    # Kubernetes' EncryptionConfiguration: what is encrypted in the store, and with which keys.
    encryption_config: Path | None = None
    # Where the keys of the authority and of tokens live, if not in the store.
    keys: Path | None = None
    # Seats for requests in progress, shared by all priority levels that are not exempt.
    max_requests_inflight: int = SEATS
    # Whether pods may be bound to nodes that have no room for them, as in Kubernetes.
    overbooking: bool = False


@dataclass(slots=True)
class RunningServer:
    """A server that answers `server.handle`; `listen` puts it on a socket."""

    server: Server
    credentials: Credentials
    store: Store
    clock: Clock
    _listeners: list[Listener] = field(default_factory=list)
    _mounts: dict[str, HttpHandler] = field(default_factory=dict)

    def mount(self, prefix: str, handler: HttpHandler) -> None:
        """Requests to this path and below go to `handler`, on every socket, before they are authenticated."""
        self._mounts[prefix] = handler

    async def listen(self, host: str, port: int) -> str:
        """HTTPS on this address (port 0: any free one); returns a URL that works on this machine."""
        context = self.credentials.server_context()
        renewing = asyncio.create_task(self.credentials.keep_serving_certificate(context, self.clock))
        self.server.on_stop(lambda: cancelled(renewing))
        listener = Listener(self.server, context, self._mounts, connection_limits())
        found_host, found_port = await listener.start(host, port)
        self._listeners.append(listener)
        address = (self.store, self.clock, _new_uid, found_host, found_port)
        try:
            await publish_address(*address)
        except StoreUnavailable:
            # Reads can be answered, and writes as soon as the store takes them.
            publishing = asyncio.create_task(publish_when_writable(*address))
            self.server.on_stop(lambda: cancelled(publishing))
        keeping = asyncio.create_task(keep_address(*address))
        self.server.on_stop(lambda: cancelled(keeping))
        return url_of("https", found_host, found_port)

    async def stop(self) -> None:
        await self.server.stop_watches()
        for listener in self._listeners:
            await listener.stop()
        await self.server.stop()


@dataclass(frozen=True, slots=True)
class FollowedStore:
    """The store, its follower and the caches that the follower fills; they are complete once `follower.start()` has returned."""

    store: Store
    follower: StoreFollower
    caches: KindCaches

    @classmethod
    def of(cls, store: Store, clock: Clock) -> FollowedStore:
        follower = StoreFollower(store, clock)
        return cls(store, follower, KindCaches(follower))


@dataclass(frozen=True, slots=True)
class Security:
    """Authentication, authorization and admission of a server."""

    authenticator: Authenticator
    authorizer: ServerAuthorizer
    admission: AdmissionChain
    reviews: Reviews
    token_requests: TokenRequests
    webhook_caller: WebhookCaller


async def start_server(store: Store, options: ServerOptions, clock: Clock | None = None) -> RunningServer:
    clock = clock or RealClock()
    store = await encrypted(store, options.encryption_config)
    credentials = await prepare_store(store, options.data, clock, options.hosts, options.keys)
    followed = FollowedStore.of(store, clock)
    registry = Registry()
    security = assemble_security(followed, credentials, clock, options, registry)
    guard = ClaimGuard(store, PublishedDevices.following(followed.follower))
    writes = _write_path(followed, security.admission, guard, options)
    core = Core(
        store,
        followed.follower,
        followed.caches,
        writes,
        clock,
        options.gates,
        resize_with_claims=options.resize_with_claims,
    )
    kubelet_tls = kubelet_context(
        credentials.client_pair(CLIENT_NAME), None if options.kubelet_insecure_tls else credentials.authority
    )
    access = AccessControl(
        security.authenticator,
        security.authorizer,
        security.reviews,
        NodeAgents(core, kubelet_tls),
        security.token_requests,
        TokenIssuer(credentials.token_key),
        ConversionWebhooks(security.webhook_caller, _new_uid),
    )
    flow_control = FlowControl.following(followed.follower, options.max_requests_inflight)
    kinds = served_versions(options.runtime_config, options.gates)
    server = Server(core, access, kinds, flow_control, options.minor, registry)
    definitions = CustomDefinitions(kinds, followed.caches)
    definitions.follow(followed.follower)
    definition_controller = DefinitionController(definitions, core, server.handle)
    signer = KubeletServingSigner(
        store, security.authorizer, credentials.authority, clock, (*SERVER_NAMES, *options.hosts)
    )
    signer.follow(followed.follower)
    await followed.follower.start()
    await guard.repair()
    loops = [
        asyncio.create_task(keep_history(store, clock, forgotten=core.forget_history)),
        asyncio.create_task(signer.run()),
        asyncio.create_task(definition_controller.run()),
    ]
    server.on_stop(lambda: cancelled(*loops))
    server.on_stop(security.webhook_caller.close)
    return RunningServer(server, credentials, store, clock)


async def prepare_store(
    store: Store, data: Path, clock: Clock, hosts: Iterable[str] = (), keys: Path | None = None
) -> Credentials:
    """Makes the objects and credentials of a first start; to be called before the store is followed."""
    credentials = await load_credentials(store, data, hosts, clock.now(), keys)
    await bootstrap(store, clock, _new_uid)
    return credentials


def assemble_security(
    followed: FollowedStore, credentials: Credentials, clock: Clock, options: ServerOptions, registry: Registry
) -> Security:
    authorizer = ServerAuthorizer(followed.follower)
    tokens = ServiceAccountTokens(credentials.token_key, followed.caches, clock, _new_uid)
    caller = WebhookCaller(ServiceEndpoints(followed.caches, SystemRandom()))
    policies_and_webhooks = PoliciesAndWebhooks(
        PolicySurroundings(caller, followed.caches, authorizer.decide, _new_uid, lambda: rfc3339(clock.now()), registry)
    )
    policies_and_webhooks.follow(followed.follower)
    static = StaticTokens.read(options.token_file) if options.token_file else None
    authenticator = Authenticator(clock, tokens, static, anonymous=options.anonymous)
    surroundings = Surroundings(
        store=followed.store,
        objects=followed.caches,
        authorizer=authorizer,
        policies_and_webhooks=policies_and_webhooks,
        addresses=AddressBook.following(followed.follower, clock),
        node_ports=NodePortBook.following(followed.follower, clock),
        gates=options.gates,
        new_suffix=RandomNames().suffix,
        quota_counts_claims=options.quota_counts_claims,
    )
    return Security(
        authenticator=authenticator,
        authorizer=authorizer,
        admission=default_chain(surroundings),
        reviews=Reviews(authorizer, authorizer.rbac, authenticator, tokens, clock),
        token_requests=TokenRequests(tokens, followed.caches),
        webhook_caller=caller,
    )


def _write_path(
    followed: FollowedStore, admission: AdmissionChain, guard: ClaimGuard, options: ServerOptions
) -> WritePath:
    """Admission, then the guards of nodes and of devices, then the store."""
    if options.overbooking:
        return WritePath(admission, guard.commit, guard.changes)
    counts_claims = options.gates.enabled("DRANodeAllocatableResources")
    node_room = NodeRoom(
        followed.caches.of(by_kind("Node")),
        followed.caches.of(by_kind("Pod")),
        SCHEDULING if counts_claims else SCHEDULING_WITHOUT_CLAIMS,
    )
    followed.follower.subscribe(resource_prefix("", "pods"), node_room)
    bindings = BindingGuard(
        followed.store,
        followed.follower.progress,
        node_room,
        guard.commit,
        # A file is one server's own; any other store may have several.
        several_servers=not _is_file(followed.store),
    )
    return WritePath(admission, bindings.commit, bindings.checked(guard.changes))


def _is_file(store: Store) -> bool:
    return isinstance(store.inner if isinstance(store, EncryptedStore) else store, SqliteStore)


def _new_uid() -> str:
    return str(uuid.uuid4())
