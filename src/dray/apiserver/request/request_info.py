"""One request as the stages behind HTTP see it: who sends it, what its path asks for, and what was noticed on the way.

`RequestInfo` is read from method, path and query alone, before the user is authenticated and before any object is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import msgspec

from dray.api.scheme import Resource
from dray.apiserver.request.request_options import Query, ResponseFormat

if TYPE_CHECKING:
    from dray.apiserver.core import JointCommit

Document = dict[str, Any]

# --- users ------------------------------------------------------------------------------------------------------------

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
NODE_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"

NODE_NAME_EXTRA = "authentication.kubernetes.io/node-name"
NODE_UID_EXTRA = "authentication.kubernetes.io/node-uid"
POD_NAME_EXTRA = "authentication.kubernetes.io/pod-name"
POD_UID_EXTRA = "authentication.kubernetes.io/pod-uid"
CREDENTIAL_EXTRA = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class User:
    """`extra` holds what the credentials say besides name and groups, such as the node a token is bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def node_name(self) -> str:
        """The node this user is the identity of, or empty."""
        if NODES_GROUP in self.groups and self.name.startswith(NODE_PREFIX):
            return self.name.removeprefix(NODE_PREFIX)
        return ""

    @property
    def service_account(self) -> tuple[str, str] | None:
        """Namespace and name, for a service account."""
        if not self.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return None
        namespace, _, name = self.name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if namespace and name and ":" not in name else None


def service_account_user_name(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
# The caller inside the server's own process: it may do everything.
LOOPBACK = User("system:apiserver", (MASTERS, AUTHENTICATED))


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True):
    """`path` is percent-encoded as on the wire, `query` is what follows the question mark, header names are lower-case.

    An in-process caller names its `user`; a request from the network has none, and is identified by its
    `authorization` header or by the client certificate (DER, verified by the TLS layer) it came with.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    user: User | None = None
    client_certificate: bytes | None = None
    remote: str = ""
    # The server's address and port that the client reached.
    local: str = ""
    # The commit that this write shares with others of the same caller.
    joint: JointCommit | None = None


# --- what a path asks for ---------------------------------------------------------------------------------------------

VERB_BY_METHOD = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
MAX_SEGMENT = 1024
# Characters. Longer paths are read each time: anybody may send them, and they would fill the memory.
REMEMBERED_LENGTH = 1024
# Nearly every path is like this; none of its segments can be mistaken for another path.
_IS_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,252})+").fullmatch
# /api or /apis/GROUP, the version, /watch (the old spelling of ?watch=true), the namespace, the resource, a name, a subresource and the path after it.
# Below one namespace `status` and `finalize` are parts of the namespace object itself, not resources inside it.
_RESOURCE_PATH = re.compile(
    r"/(?:api|apis/([^/]+))/([^/]+)(/watch(?=/))?(?:/namespaces/([^/]+)(?=/(?!(?:status|finalize)(?:/|$))))?"
    r"/([^/]+)(?:/([^/]+)(?:/([^/]+)(?:/(.+))?)?)?",
    re.DOTALL,
).fullmatch


class RequestInfo(msgspec.Struct, frozen=True):
    """The attributes that authorization judges; `is_resource` is false for paths such as /healthz."""

    method: str
    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # The path after a subresource that takes one (proxy).
    rest: str = ""
    # /apis/G/V/watch/..., the old spelling of ?watch=true.
    is_watch_path: bool = False
    in_namespace_path: bool = False
    # For a collection: the only name its field selector allows. A user who may read that object may list it this way.
    selected_name: str = ""

    @property
    def is_watch(self) -> bool:
        return self.verb == "watch"


def segments(path: str) -> list[str]:
    """Decoded path segments. Empty ones are dropped at the end only: a path with `//` in the middle names no resource."""
    parts = path.split("/")[1:]
    if "%" in path:
        parts = [unquote(part) for part in parts]
    while parts and not parts[-1]:
        parts.pop()
    return parts


def is_suspicious(parts: list[str]) -> bool:
    """Whether a segment could be mistaken for another path, or cannot be a name."""
    if "" in parts or "." in parts or ".." in parts or any("/" in part or len(part) > MAX_SEGMENT for part in parts):
        return True
    whole = "/".join(parts)
    return "%" in whole or "\\" in whole or "\x00" in whole


def request_info_of(method: str, path: str, *, watch: bool = False, field_name: str = "") -> RequestInfo:
    """`watch` and `field_name` come from the query: ?watch=true, and fieldSelector=metadata.name=X."""
    read = _remembered if len(path) + len(field_name) <= REMEMBERED_LENGTH else _read
    return read(method, path, watch, field_name)


def _read(method: str, path: str, watch: bool, field_name: str) -> RequestInfo:
    text = path
    if not _IS_PLAIN(path):
        parts = segments(path)
        if is_suspicious(parts):
            return RequestInfo(method, path, method.lower())
        text = "/" + "/".join(parts)
    found = _RESOURCE_PATH(text)
    if found is None:
        return RequestInfo(method, path, method.lower())
    group, version, watched, namespace, plural, name, subresource, rest = found.groups("")
    verb = "watch" if watched else VERB_BY_METHOD.get(method, method.lower())
    if not name:
        verb = _collection_verb(verb, watch)
    return RequestInfo(
        method, path, verb, True, group, version, plural, namespace or (name if plural == "namespaces" else ""), name,
        subresource, rest, bool(watched), bool(namespace),
        field_name if not name and verb in ("list", "watch", "deletecollection") else "",
    )  # fmt: skip


_remembered = lru_cache(maxsize=2048)(_read)


def _collection_verb(verb: str, watch: bool) -> str:
    if verb == "get":
        return "watch" if watch else "list"
    return "deletecollection" if verb == "delete" else verb


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term of a field selector, such as `spec.nodeName=n1`."""

    field: str
    operator: str  # "=" or "!="
    value: str


class Attributes(msgspec.Struct, frozen=True):
    """A resource request, or (no resource) a request for a plain path.

    `verb` is Kubernetes' word: get, list, watch, create, update, patch, delete, deletecollection; for a plain path the
    HTTP method in lower case. `name` is empty for collections, and for creations with generateName.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    dry_run: bool = False
    field_requirements: tuple[FieldRequirement, ...] = ()

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)

    @property
    def full_resource(self) -> str:
        """As RBAC rules spell it: `pods`, or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Decision(msgspec.Struct, frozen=True, gc=False):
    """`allowed` False with an empty reason means that no authorizer had an opinion."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    async def authorize(self, attributes: Attributes) -> Decision: ...


MAX_MANAGER = 128
MAX_WARNINGS = 4096
WARNING_HEADERS = 50


class ApiCall(msgspec.Struct):
    request: Request
    info: RequestInfo
    query: Query
    user: User
    attributes: Attributes
    row: Resource
    version: str
    response_format: ResponseFormat
    warnings: list[str] = msgspec.field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.info.namespace if self.row.namespaced else ""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    def field_manager(self, option: str) -> str:
        """The owner of the fields this request writes: the named manager, or else the client's program."""
        if option:
            return option
        agent = self.request.headers.get("user-agent", "").partition("/")[0][:MAX_MANAGER]
        return agent if agent.isprintable() else "".join(filter(str.isprintable, agent))

    def warn(self, text: str) -> None:
        add_warning(self.warnings, text)


def add_warning(warnings: list[str], text: str) -> None:
    """Adds a warning, which is sent as a header; more than a client would read are dropped."""
    size = sum(len(known) for known in warnings) + len(text)
    fits = size <= MAX_WARNINGS and len(warnings) < WARNING_HEADERS
    if text not in warnings and (fits or not warnings):
        warnings.append(text[:MAX_WARNINGS])
