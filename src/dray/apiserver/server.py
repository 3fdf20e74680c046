"""The server without sockets: takes a request, returns a response.

It authenticates the request, then authorizes it, then looks up the resource; in this order, so that nobody learns which objects
exist without the right to read them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from dray.api import joint_writes
from dray.api.errors import DecodeError
from dray.api.joint_writes import JointAnswer
from dray.api.scheme import Resource, Version, group_version
from dray.api.served_versions import ServedVersions
from dray.api.shaping import empty_object
from dray.api.strategies import strategy_of
from dray.apiserver import errors
from dray.apiserver.core import (
    COPYING,
    LARGE,
    QUICK,
    Core,
    JointCommit,
    WritePriority,
    clear_frames_behind,
    in_thread,
    in_thread_if_large,
)
from dray.apiserver.custom_resources.conversions import ConversionWebhooks, PreparedConversions
from dray.apiserver.discovery.plain_paths import PlainPaths
from dray.apiserver.errors import ApiError
from dray.apiserver.read.get_and_list import ListedObjects, Reader
from dray.apiserver.read.representations import (
    Representation,
    Whole,
    bytes_to_rewrite,
    in_media_type,
    representation_of,
)
from dray.apiserver.read.selectors import parse_fields
from dray.apiserver.request.authentication.authenticator import impersonate, requested_user
from dray.apiserver.request.authentication.oidc_discovery import TokenIssuer
from dray.apiserver.request.authentication.token_requests import TokenRequests
from dray.apiserver.request.authorization.authorizer import forbidden_error
from dray.apiserver.request.fairness import Flow, Level
from dray.apiserver.request.flow_control import FlowControl
from dray.apiserver.request.request_info import (
    ANONYMOUS,
    ApiCall,
    Attributes,
    Authorizer,
    Request,
    RequestInfo,
    User,
    request_info_of,
)
from dray.apiserver.request.request_options import (
    JSON,
    NO_QUERY,
    PROTOBUF,
    Query,
    ResponseFormat,
    response_format,
    write_options,
)
from dray.apiserver.subresources.agent_requests import AgentRequests
from dray.apiserver.subresources.node_agents import NodeAgents
from dray.apiserver.subresources.scale import Scales
from dray.apiserver.subresources.slice_status import with_status
from dray.apiserver.subresources.subresource_handlers import (
    Subresources,
    success,
)
from dray.apiserver.watch.stored_object import (
    Stored,
    decode,
    encode,
)
from dray.apiserver.watch.watch_requests import WatchRequests
from dray.apiserver.write import managed_fields
from dray.apiserver.write.deletion import (
    Deleter,
    delete_options,
)
from dray.apiserver.write.managed_fields import Manager, managed_kind
from dray.apiserver.write.object_writer import (
    ObjectWriter,
    WriteOutcome,
)
from dray.apiserver.write.patch_requests import Patcher
from dray.http.health import not_found
from dray.http.responses import Response
from dray.store.errors import StoreUnavailable
from dray.telemetry import Registry, Sample

if TYPE_CHECKING:
    from dray.apiserver.custom_resources.custom_kind import CustomKind

log = logging.getLogger(__name__)

Document = dict[str, Any]
REQUEST_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "code")
VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
# They wait for others than this server, and hold no seat meanwhile; their number has limits of its own.
LONG_RUNNING = frozenset(("attach", "exec", "portforward", "proxy"))
# Label for kinds that are not served: with the client's own text it could add series without end.
UNKNOWN = "other"
UNREADABLE = RequestInfo("", "", "other")
BOUND = encode(success(201))


class Authenticates(Protocol):
    async def authenticate(self, request: Request) -> User: ...


class AnswersReviews(Protocol):
    async def answer(self, kind: str, review: Document, user: User, namespace: str = "") -> Document: ...


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Authentication, authorization and what needs them. Logs and streams come from the agents of nodes."""

    authenticator: Authenticates
    authorizer: Authorizer
    reviews: AnswersReviews | None = None
    agents: NodeAgents | None = None
    tokens: TokenRequests | None = None
    issuer: TokenIssuer | None = None
    # Asks webhooks for other versions of custom resources.
    conversions: ConversionWebhooks | None = None


Handler = Callable[[ApiCall], Awaitable[Response]]


class Server:
    def __init__(
        self,
        core: Core,
        access: AccessControl,
        served: ServedVersions,
        flow_control: FlowControl,
        minor: str = "37",
        registry: Registry | None = None,
    ) -> None:
        self.core = core
        self._access = access
        self._levels = flow_control.levels
        self._served = served
        self._turns = WritePriority()
        self._reader = Reader(core)
        self._writer = ObjectWriter(core)
        self._deleter = Deleter(core)
        self._patcher = Patcher(core, self._writer, self._check_create)
        self._watching = WatchRequests(core, self._reader, Random())
        self._subresources = Subresources(core, self._writer, self._deleter, access.tokens)
        self._scales = Scales(core, self._writer, self._patcher)
        self.metrics = ServerMetrics(core, self._watching, registry or Registry())
        flow_control.register(self.metrics.registry)
        self._plain_paths = PlainPaths(core.store, served, self.metrics, access.issuer, minor)
        self._on_object: dict[str, Handler] = {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._on_collection: dict[str, Handler] = {
            "GET": self._list,
            "HEAD": self._list,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._on_part: dict[str, Handler] = {"get": self._get, "update": self._update, "patch": self._patch}
        self._agent_requests = AgentRequests(core, self._reader, access.agents, self._check_create)
        self._on_special: dict[tuple[str, str], Handler] = {
            ("pods", "binding"): self._bind,
            ("pods", "eviction"): self._evict,
            ("serviceaccounts", "token"): self._token,
            **self._agent_requests.handlers(),
        }
        self._tasks: list[Callable[[], Awaitable[None]]] = []

    def on_stop(self, action: Callable[[], Awaitable[None]]) -> None:
        """Calls `action` when the server stops; the last one registered is called first."""
        self._tasks.append(action)

    async def stop_watches(self) -> None:
        """Ends every open watch; clients watch again at another server, or later."""
        self.core.close_watchers()

    async def stop(self) -> None:
        await self._watching.stop()
        await self.core.stop()
        for action in reversed(self._tasks):
            await action()

    # --- from request to answer ---------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        """Never raises, except for cancellation: a failure becomes a response."""
        started = time.perf_counter()
        info = UNREADABLE
        try:
            if request.path == joint_writes.PATH and request.user is not None:
                return await self._write_jointly(request)
            query = Query(request.query) if request.query else NO_QUERY
            info = self._request_info(request, query)
            response = await self._answer(request, query, info)
        except ApiError as error:
            response = failure(error)
        except StoreUnavailable as error:
            response = failure(errors.unavailable(str(error)))
        except asyncio.CancelledError:
            raise
        except DecodeError as error:
            response = failure(errors.bad_request(error.answer))
        except RecursionError:
            response = failure(errors.bad_request("the request is nested too deeply"))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            response = failure(errors.internal("the server failed; its log says why"))
        streams = response.stream is not None or response.tunnel is not None
        self.metrics.observe(info, response.status, time.perf_counter() - started, streams=streams)
        return response

    async def _write_jointly(self, request: Request) -> Response:
        """Handles each write as a request of its own, in order; all are stored in one commit, or none if one is refused."""
        joint = JointCommit(self.core)
        shown: list[msgspec.Raw] = []
        for write in joint_writes.decode_writes(request.body).writes:
            if not _may_be_joint(request_info_of(write.method, write.path)):
                raise errors.bad_request(f"{write.method} {write.path} cannot share its commit with other writes")
            alone = Request(
                write.method, write.path, "", request.headers, bytes(write.body), user=request.user, joint=joint
            )
            response = await self.handle(alone)
            if response.status >= 400:
                return response
            shown.append(msgspec.Raw(response.body))
        return Response(200, joint_writes.encode_answer(JointAnswer(await joint.commit(), shown)))

    async def has_credentials(self, request: Request) -> bool:
        """Whether the head of a request names a known user; asked before a large body is read."""
        try:
            return (await self._access.authenticator.authenticate(request)) is not ANONYMOUS
        except ApiError:
            return False

    async def _answer(self, request: Request, query: Query, info: RequestInfo) -> Response:
        user = await self._access.authenticator.authenticate(request)
        await self._turns.wait(user, request, info)
        attributes = _attributes(user, info, query)
        impersonated = requested_user(request.headers)
        if impersonated is not None:
            user = await impersonate(attributes, impersonated, self._access.authorizer)
            attributes = replace(attributes, user=user)
        flow = self._levels.flow_of(user, info)
        if flow.level is None:
            flow.dispatched += 1
            response = await self._authorized(request, query, info, attributes)
        else:
            response = await self._in_turn(flow.level, flow, request, query, info, attributes)
        response.headers = (*response.headers, *flow.headers) if response.headers else flow.headers
        return response

    async def _in_turn(
        self, level: Level, flow: Flow, request: Request, query: Query, info: RequestInfo, attributes: Attributes
    ) -> Response:
        """Starts when the request's priority level has a seat for it, and holds that seat until there is a response."""
        if info.subresource in LONG_RUNNING:
            flow.dispatched += 1
            return await self._authorized(request, query, info, attributes)
        turn = None
        try:
            if not level.starts_at_once(flow):
                turn = await level.wait(flow, flow.schema.flow_name(attributes.user, info), len(request.body))
        except ApiError as error:
            return failure(error)
        try:
            return await self._authorized(request, query, info, attributes)
        finally:
            level.finish(flow, turn)

    async def _authorized(self, request: Request, query: Query, info: RequestInfo, attributes: Attributes) -> Response:
        user = attributes.user
        decision = await self._access.authorizer.authorize(attributes)
        if not decision.allowed:
            return failure(forbidden_error(attributes, decision))
        if not info.is_resource:
            return await self._plain_paths.answer(request, query)
        found = self._served.find(info.group, info.version, info.plural)
        if found is None or info.in_namespace_path != _needs_namespace(found[0], info):
            return self._nothing_here(info)
        row, version = found
        handler = self._handler(row, info)
        streams = not info.name and row.is_stored and not info.subresource
        # What a proxied server accepts is between the client and it.
        accept = request.headers.get("accept", "") if info.subresource != "proxy" else ""
        wanted = response_format(accept, streams=streams, has_table=row.is_stored)
        if row.custom is not None and wanted.media_type == PROTOBUF:
            wanted = ResponseFormat()  # such kinds have no description in protobuf
        call = ApiCall(request, info, query, user, attributes, row, info.version, wanted)
        if version.deprecated_in:
            call.warn(_deprecation(row, version))
        if row.custom is not None:
            _check_custom(call)
        try:
            response = await (handler(call) if row.custom is None else self._handled(call, handler))
        except errors.DevicesHeld as error:
            response = failure(error if await self._may_see(user, error.holders) else error.without_names())
        except ApiError as error:
            # A large request can have as many mistakes.
            is_small = len(request.body) < LARGE
            response = failure(error) if is_small else await in_thread(_failure_of_large, error)
        if call.warnings:
            response.warnings = [*call.warnings, *response.warnings]
        size = bytes_to_rewrite(response, wanted, query)
        return await in_thread_if_large(size, partial(in_media_type, response, wanted, query)) if size else response

    async def _may_see(self, user: User, claims: Iterable[tuple[str, str]]) -> bool:
        """Whether the user may read all these claims."""
        for namespace, name in claims:
            asked = Attributes(user, "get", "resource.k8s.io", "v1", "resourceclaims", namespace=namespace, name=name)
            if not (await self._access.authorizer.authorize(asked)).allowed:
                return False
        return True

    def _request_info(self, request: Request, query: Query) -> RequestInfo:
        if query is NO_QUERY:
            return request_info_of(request.method, request.path)
        field_name = ""
        watch = query.flag("watch")
        if "fieldSelector" in query and request.method in ("GET", "HEAD", "DELETE"):
            field_name = _named_by_selector(query["fieldSelector"])
        return request_info_of(request.method, request.path, watch=watch, field_name=field_name)

    def _nothing_here(self, info: RequestInfo) -> Response:
        if self._served.has_group(info.group):
            raise errors.no_such_resource()
        return not_found()

    async def _check_create(self, attributes: Attributes) -> None:
        """Server-side apply of a missing object creates it, which the user must be allowed to do."""
        creating = replace(attributes, verb="create")
        decision = await self._access.authorizer.authorize(creating)
        if not decision.allowed:
            raise forbidden_error(creating, decision)

    # --- routing ------------------------------------------------------------------------------------------------------

    def _handler(self, row: Resource, info: RequestInfo) -> Handler:
        if info.rest and info.subresource != "proxy":
            raise errors.no_such_resource()
        if info.is_watch_path or info.is_watch:
            if info.subresource or not row.is_stored or info.method not in ("GET", "HEAD"):
                raise errors.no_such_resource() if info.subresource else errors.method_not_allowed()
            return self._watch
        if info.subresource:
            return self._subresource_handler(row, info)
        if not row.is_stored:
            return self._unstored_handler(row, info)
        if row.namespaced and not info.in_namespace_path and info.method not in ("GET", "HEAD"):
            # all namespaces at once can be read, not written
            raise errors.method_not_allowed()
        handler = (self._on_object if info.name else self._on_collection).get(info.method)
        if handler is None or info.verb not in row.verbs:
            raise errors.method_not_allowed()
        return handler

    def _subresource_handler(self, row: Resource, info: RequestInfo) -> Handler:
        subresource = row.subresource(info.subresource)
        if subresource is None:
            return self._computed_handler(row, info)
        if info.verb not in subresource.verbs:
            raise errors.method_not_allowed()
        if subresource.name == "scale":
            return self._scale
        return self._on_special.get((row.plural, subresource.name)) or self._on_part[info.verb]

    def _computed_handler(self, row: Resource, info: RequestInfo) -> Handler:
        """Views that Kubernetes does not have: read only, in the stored version, not in discovery, and not when a release is emulated."""
        is_known = (row.plural, info.subresource) == (
            "resourceslices",
            "status",
        ) and info.version == row.storage_version
        if not is_known or self.core.gates.release is not None:
            raise errors.no_such_resource()
        if info.verb != "get":
            raise errors.method_not_allowed()
        return self._slice_status

    def _unstored_handler(self, row: Resource, info: RequestInfo) -> Handler:
        if info.name:
            raise errors.no_such_resource()
        if info.verb != "create" or (row.namespaced and not info.in_namespace_path):
            raise errors.method_not_allowed()
        return self._bind if row.kind == "Binding" else self._review

    # --- handlers -----------------------------------------------------------------------------------------------------

    async def _get(self, call: ApiCall) -> Response:
        return await self._show(call, await self._reader.get(call))

    # --- kinds whose versions a webhook converts

    async def _handled(self, call: ApiCall, handler: Handler) -> Response:
        if _conversions_of(call) is None or self._access.conversions is None:
            return await handler(call)
        return await self._access.conversions.run(lambda: handler(call))

    async def _show_converted(self, call: ApiCall, show: Callable[[], Awaitable[Response]]) -> Response:
        """The answer to a write, which must not be made twice: only showing it is tried again."""

        if call.row.custom is None:
            return await show()

        async def shown(_: ApiCall) -> Response:
            return await show()

        return await self._handled(call, shown)

    async def _prepare(self, call: ApiCall, chosen: Sequence[Stored]) -> None:
        """Asks a conversion webhook about all objects of a list at once."""
        conversions = _conversions_of(call)
        if conversions is not None and self._access.conversions is not None:
            api_version = group_version(call.row.group, call.version)
            documents = [stored.document() for stored in chosen]
            await self._access.conversions.prepare(conversions, documents, api_version)

    async def _show(self, call: ApiCall, stored: Stored, status: int = 200) -> Response:
        shown = representation_of(call, self.core.clock, is_list=False)
        if shown.copies:
            return Response(status, shown.encode(stored), shown.content_type)
        body = await in_thread_if_large(stored.size // QUICK, lambda: shown.encode(stored))
        return Response(status, body, shown.content_type)

    async def _show_list(self, shown: Representation, listing: ListedObjects) -> Response:
        size = sum(stored.size for stored in listing.chosen) // (COPYING if shown.copies else QUICK)
        body = await in_thread_if_large(size, lambda: shown.list(listing.chosen, listing.meta))
        return Response(200, body, shown.content_type)

    async def _list(self, call: ApiCall) -> Response:
        shown = representation_of(call, self.core.clock, is_list=True)
        listing = await self._reader.list(call)
        await self._prepare(call, listing.chosen)
        return await self._show_list(shown, listing)

    async def _watch(self, call: ApiCall) -> Response:
        if _conversions_of(call) is not None and call.version != call.row.storage_version:
            text = f"objects that a webhook converts can be watched in version {call.row.storage_version} only"
            raise ApiError(405, "MethodNotAllowed", text, errors.of_object(call.row, ""))
        stream = await self._watching.watch(call)
        if call.response_format.media_type == PROTOBUF:
            return Response(200, content_type=f"{PROTOBUF};stream=watch", stream=stream)
        return Response(200, stream=stream)

    async def _create(self, call: ApiCall) -> Response:
        outcome = await self._writer.create(call)
        return await self._show_converted(call, lambda: self._written(call, outcome))

    async def _update(self, call: ApiCall) -> Response:
        outcome = await self._writer.replace(call, call.info.subresource)
        return await self._show_converted(call, lambda: self._written(call, outcome))

    async def _patch(self, call: ApiCall) -> Response:
        outcome = await self._patcher.patch(call, call.info.subresource)
        return await self._show_converted(call, lambda: self._written(call, outcome))

    async def _written(self, call: ApiCall, outcome: WriteOutcome) -> Response:
        response = await self._show(call, outcome.stored, 201 if outcome.created else 200)
        if outcome.document is not None and not call.response_format.kind:
            shown = Whole(call.row, call.version).encode(outcome.stored)
            response.body = await in_thread_if_large(len(shown) // QUICK, lambda: _without_revision(shown))
            response.content_type = JSON
        return response

    async def _delete(self, call: ApiCall) -> Response:
        deleted = await self._deleter.delete(call, await delete_options(call))
        returned = strategy_of(call.row).returns_deleted
        if deleted.is_gone and returned is not None and call.version not in returned:
            uid = (await self.core.document(deleted.stored))["metadata"]["uid"]
            details = errors.of_object(call.row, call.name, uid=uid)
            document = success(200)
            del document["code"]
            return Response(200, encode({**document, "details": details}))
        return await self._show_converted(call, lambda: self._show(call, deleted.stored))

    async def _delete_collection(self, call: ApiCall) -> Response:
        options = await delete_options(call)
        shown = representation_of(call, self.core.clock, is_list=True)
        listing = await self._reader.list(call)
        await self._prepare(call, listing.chosen)
        await self._deleter.delete_all(call, options, listing.chosen)
        return await self._show_list(shown, listing)

    async def _bind(self, call: ApiCall) -> Response:
        await self._subresources.bind(call)
        return Response(201, BOUND)

    async def _evict(self, call: ApiCall) -> Response:
        return Response(201, encode(await self._subresources.evict(call)))

    async def _scale(self, call: ApiCall) -> Response:
        if call.info.verb == "get":
            return Response(200, await self._scales.show(call, await self._reader.get(call)))
        change = self._scales.replace if call.info.verb == "update" else self._scales.patch
        return Response(200, await self._scales.show(call, await change(call)))

    async def _slice_status(self, call: ApiCall) -> Response:
        return Response(200, encode(await with_status(self.core, (await self._reader.get(call)).document())))

    async def _token(self, call: ApiCall) -> Response:
        return Response(201, encode(await self._subresources.issue_token(call)))

    async def _review(self, call: ApiCall) -> Response:
        options = write_options(call.query, "CreateOptions")
        decoded = await self._writer.decode(call, options)
        row, review = call.row, decoded.document
        api_version = group_version(row.group, call.version)
        manager = Manager(call.field_manager(options.field_manager), managed_fields.UPDATE, api_version)
        empty = empty_object(api_version, row.kind)
        kind = managed_fields.ManagedKind(
            managed_kind(row, "").schema_of, lambda document, _: document, {"f:status": {}}
        )
        entries = await in_thread_if_large(
            len(call.request.body),
            lambda: managed_fields.owned_by_creator(review, empty, manager, kind, self.core.now()),
        )
        if call.namespace:
            review["metadata"].setdefault("namespace", call.namespace)
        if entries:
            review["metadata"]["managedFields"] = entries
        assert self._access.reviews is not None
        answered = await self._access.reviews.answer(row.kind, review, call.user, call.namespace)
        shown = {"kind": row.kind, "apiVersion": api_version, **answered}
        return Response(201, await in_thread_if_large(len(call.request.body), lambda: encode(shown)))


class ServerMetrics:
    def __init__(self, core: Core, watching: WatchRequests, registry: Registry) -> None:
        self._core = core
        self._watching = watching
        self.registry = registry
        # Gives the metrics of other parts, served below `/metrics/` under these names.
        self.of_others: dict[str, Callable[[], str | Awaitable[str]]] = {}
        self._requests = self.registry.counter(
            "apiserver_request_total", "Requests by verb, resource and HTTP status.", REQUEST_LABELS
        )
        self._durations = self.registry.histogram(
            "apiserver_request_duration_seconds",
            "Time from request to answer, watches left out.",
            ("verb", "group", "version", "resource", "subresource", "scope"),
        )
        self.registry.computed_gauge("apiserver_storage_objects", "Stored objects by resource.", self._objects)
        self.registry.computed_gauge("apiserver_longrunning_requests", "Open watches.", self._open_watches)

    def observe(self, info: RequestInfo, status: int, seconds: float, *, streams: bool) -> None:
        if not info.is_resource or status in (403, 404, 405):
            labels = (VERBS.get(info.verb, UNKNOWN), "", "", UNKNOWN, "", "")
        else:
            verb = "WATCH" if streams else VERBS.get(info.verb, UNKNOWN)
            if info.subresource in LONG_RUNNING:
                verb = "CONNECT"
            scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
            labels = (verb, info.group, info.version, info.plural, info.subresource, scope)
        self._requests.inc(*labels, str(status))
        if not streams:
            self._durations.observe(seconds, *labels)

    def _objects(self) -> Iterable[Sample]:
        return [({"resource": cache.row.qualified_plural}, len(cache)) for cache in self._core.caches()]

    def _open_watches(self) -> Iterable[Sample]:
        return [({"verb": "WATCH"}, self._watching.open)]


def _may_be_joint(info: RequestInfo) -> bool:
    """Whether the write changes one object that exists. Others would be stored at once."""
    return (info.verb == "update" and info.plural == "resourceclaims") or (info.plural, info.subresource) == (
        "pods",
        "binding",
    )


def _without_revision(shown: bytes) -> bytes:
    """A dry run has no revision to show."""
    document = decode(shown)
    document["metadata"].pop("resourceVersion", None)
    return encode(document)


def _conversions_of(call: ApiCall) -> PreparedConversions | None:
    custom: CustomKind | None = call.row.custom
    return custom.conversions if custom is not None else None


def _check_custom(call: ApiCall) -> None:
    """Warns of a deprecated version; raises 405 for a new object of a kind that is going away."""
    kind: CustomKind | None = call.row.custom
    assert kind is not None
    if warning := kind.versions[call.version].warning:
        named = f"{call.row.group}/{call.version} {call.row.kind}"
        call.warn(f"{named} is deprecated" if warning == "deprecated" else warning)
    if kind.is_terminating and call.info.verb == "create":
        text = f"{call.info.verb} not allowed while custom resource definition is terminating"
        raise ApiError(405, "MethodNotAllowed", text, errors.of_object(call.row, ""))


def _needs_namespace(row: Resource, info: RequestInfo) -> bool:
    """Whether the path must contain a namespace: it must for one object of a namespaced kind, and may for a list."""
    if not row.namespaced:
        return False
    return info.in_namespace_path if not info.name or info.is_watch else True


def _named_by_selector(text: str) -> str:
    try:
        return parse_fields(text).exact("metadata.name") or ""
    except ApiError:
        return ""


def _attributes(user: User, info: RequestInfo, query: Query) -> Attributes:
    if not info.is_resource:
        return Attributes(user, info.verb, path=info.path)
    requirements: tuple[Any, ...] = ()
    if query is not NO_QUERY and query.get("fieldSelector") and info.verb in ("list", "watch", "deletecollection"):
        try:
            requirements = parse_fields(query["fieldSelector"]).requirements
        except ApiError:
            requirements = ()
    return Attributes(
        user, info.verb, info.group, info.version, info.plural, info.subresource, info.namespace,
        info.name or info.selected_name, info.path, field_requirements=requirements,
    )  # fmt: skip


def _deprecation(row: Resource, version: Version) -> str:
    instead = f"; use {version.replaced_by}" if version.replaced_by else f", unavailable in v{version.removed_in}+"
    return f"{group_version(row.group, version.name)} {row.kind} is deprecated in v{version.deprecated_in}+{instead}"


def failure(error: ApiError) -> Response:
    return Response(error.code, encode(error.status()), JSON, error.headers)


def _failure_of_large(error: ApiError) -> Response:
    """Also lets go of everything that the error holds, here and not in the loop. The frame that caught it still waits for this answer."""
    response = failure(error)
    caught = error.__traceback__
    clear_frames_behind(error, caught.tb_next if caught else None)
    error.details = None
    return response
