"""Calls to an etcd cluster: several endpoints, TLS, a user's token, etcd's errors translated to ours, and leases for keys that expire."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc

from dray.clock import Clock
from dray.proto import etcd_pb2 as pb
from dray.proto import etcd_pb2_grpc as rpc
from dray.store.errors import Compacted, FutureRevision, StoreError, StoreRefuses, StoreUnavailable, ValueTooLarge
from dray.store.store_url import StoreAddress

CALL_TIMEOUT_S = 10.0
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Reconnects quickly to an etcd that is back; gRPC alone would wait up to two minutes between attempts.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
]

_REFUSALS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
# Texts of gRPC and etcd for a server that is there but refuses us; the status codes alone are ambiguous.
_REFUSING_TEXTS = (
    "SSL_ERROR_SSL",
    "Hostname Verification Check failed",
    "Failed to create security handshaker",
    "Failed parsing HTTP/2",
    "authentication is not enabled",
)


class EtcdEndpoint:
    """One member of the cluster: a channel and its services."""

    def __init__(self, host: str, address: StoreAddress) -> None:
        self.host = host
        if address.tls:
            credentials = grpc.ssl_channel_credentials(address.ca, address.key, address.certificate)
            self.channel = grpc.aio.secure_channel(host, credentials, options=_OPTIONS)
        else:
            self.channel = grpc.aio.insecure_channel(host, options=_OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.watch = rpc.WatchStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.auth = rpc.AuthStub(self.channel)


class EtcdConnection:
    """Uses one endpoint until it fails, then the next.

    Reads are tried on every endpoint. A write is sent once: whether a write that got no answer has happened is
    unknown, and repeating it would take the answer for someone else's change.

    Certificates may be renewed in their files: after a failure they are looked at again, and new ones mean new channels.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._endpoints = [EtcdEndpoint(host, address) for host in address.endpoints]
        # With earlier certificates: calls and watches that are under way on them end by themselves.
        self._retired: list[EtcdEndpoint] = []
        self._current = 0
        self._token = ""
        self._authenticating = asyncio.Lock()

    @property
    def endpoint(self) -> EtcdEndpoint:
        return self._endpoints[self._current]

    @property
    def size(self) -> int:
        return len(self._endpoints)

    async def close(self) -> None:
        for endpoint in (*self._endpoints, *self._retired):
            await endpoint.channel.close(None)

    async def read(self, call: Callable[[EtcdEndpoint], Any], request: Any) -> Any:
        for attempt in range(len(self._endpoints) + 1):
            try:
                return await self.write(call, request)
            except StoreUnavailable:
                if attempt == len(self._endpoints):
                    raise
        raise AssertionError("unreachable")

    async def write(self, call: Callable[[EtcdEndpoint], Any], request: Any) -> Any:
        try:
            answer = await self._authorized(call, request)
        except grpc.RpcError as error:
            raise self.translate(error) from error
        if answer is None:  # gRPC could not read it
            raise self._unreadable()
        return answer

    async def _authorized(self, call: Callable[[EtcdEndpoint], Any], request: Any) -> Any:
        metadata = await self.metadata()
        try:
            return await call(self.endpoint)(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if not _is_stale_token(error) or not self._address.user:
                raise
        # Refused before it was executed: asking again with a fresh token is safe.
        self._token = ""
        return await call(self.endpoint)(request, timeout=CALL_TIMEOUT_S, metadata=await self.metadata())

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        if not self._address.user:
            return ()
        async with self._authenticating:
            if not self._token:
                request = pb.AuthenticateRequest(name=self._address.user, password=self._address.password)
                answer = await self.endpoint.auth.Authenticate(request, timeout=CALL_TIMEOUT_S)
                self._token = answer.token
        return (("token", self._token),)

    def translate(self, error: grpc.RpcError) -> StoreError:
        """Translates etcd's error to ours, and moves on to the next endpoint if this one has failed."""
        code, text = error.code(), error.details() or ""
        if "required revision has been compacted" in text:
            return Compacted(0, 0)
        if "required revision is a future revision" in text:
            return FutureRevision(0, 0)
        if "request is too large" in text:
            return ValueTooLarge("the object is larger than etcd accepts")
        if _is_stale_token(error):
            self._token = ""
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            self._current = (self._current + 1) % len(self._endpoints)
            self._take_renewed_certificates()
        is_refused = code in _REFUSALS or any(refusal in text for refusal in _REFUSING_TEXTS)
        kind = StoreRefuses if is_refused else StoreUnavailable
        return kind(f"etcd at {','.join(self._address.endpoints)}: {text or code.name}")

    def _unreadable(self) -> StoreUnavailable:
        return StoreUnavailable(f"etcd at {','.join(self._address.endpoints)}: an answer cannot be read")

    def _take_renewed_certificates(self) -> None:
        if not self._address.tls:
            return
        renewed = self._address.with_files_of_now()
        if renewed != self._address:
            self._address = renewed
            self._retired += self._endpoints
            self._endpoints = [EtcdEndpoint(host, renewed) for host in renewed.endpoints]

    async def watch(self, create: Any) -> AsyncGenerator[Any, None]:
        """The responses of one watch; ends with a StoreError when the stream breaks."""
        wanted = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield pb.WatchRequest(create_request=create)
            await wanted.wait()

        try:
            stream = self.endpoint.watch.Watch(requests(), metadata=await self.metadata())
            try:
                async for response in stream:
                    if response is None:
                        raise self._unreadable()
                    yield response
            finally:
                wanted.set()
                stream.cancel()
        except grpc.RpcError as error:
            raise self.translate(error) from error
        raise StoreUnavailable("etcd ended a watch")


def _is_stale_token(error: grpc.RpcError) -> bool:
    return error.code() == grpc.StatusCode.UNAUTHENTICATED or "invalid auth token" in (error.details() or "")


MAX_WINDOW_S = 60
KEYS_PER_LEASE = 1000


class EtcdLeases:
    """Leases for keys that expire; many keys share one.

    etcd must remember and revoke every lease, so one per event would be costly. Keys written within one window with the same
    time to live share a lease, which lives one window longer, so a key lives at least as long as requested.
    """

    def __init__(self, connection: EtcdConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        # By time to live: the lease, until when it may be shared, and how many more keys it takes.
        self._shared: dict[int, tuple[int, float, int]] = {}

    async def for_ttl(self, ttl_s: int) -> int:
        lease, until, room = self._shared.get(ttl_s, (0, 0.0, 0))
        if room <= 0 or self._clock.monotonic() >= until:
            window = min(MAX_WINDOW_S, max(1, ttl_s // 20))
            lease = await self._grant(ttl_s + window)
            until, room = self._clock.monotonic() + window, KEYS_PER_LEASE
        self._shared[ttl_s] = (lease, until, room - 1)
        return lease

    async def _grant(self, ttl_s: int) -> int:
        answer: Any = await self._connection.write(
            lambda endpoint: endpoint.lease.LeaseGrant, pb.LeaseGrantRequest(TTL=ttl_s)
        )
        if answer.error:
            raise StoreUnavailable(f"etcd grants no lease: {answer.error}")
        return int(answer.ID)
