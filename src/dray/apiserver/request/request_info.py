"""What a request asks for, read from method, path and query alone: before anyone is identified, before anything exists."""

import re
from functools import lru_cache
from urllib.parse import unquote

import msgspec

VERB_BY_METHOD = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
# Below one namespace these are parts of the namespace object itself, not resources inside it.
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
MAX_SEGMENT = 1024
# What nearly every path is made of; nothing in it can be taken for something else.
_IS_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,252})+").fullmatch


class Asked(msgspec.Struct, frozen=True):
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
    # What follows a subresource that takes a path of its own (proxy).
    rest: str = ""
    # /apis/G/V/watch/..., the old spelling of ?watch=true.
    is_watch_path: bool = False
    in_namespace_path: bool = False
    # For a collection: the one name its field selector lets through. Whoever may have that one may list it.
    selected_name: str = ""

    @property
    def is_watch(self) -> bool:
        return self.verb == "watch"


def segments(path: str) -> list[str]:
    """Decoded path segments. Empty ones are dropped at the end only: `//` in the middle names nothing."""
    parts = path.split("/")[1:]
    if "%" in path:
        parts = [unquote(part) for part in parts]
    while parts and not parts[-1]:
        parts.pop()
    return parts


def is_suspicious(parts: list[str]) -> bool:
    """Segments that could be taken for another path, or that no name could have."""
    if "" in parts or "." in parts or ".." in parts or any("/" in part or len(part) > MAX_SEGMENT for part in parts):
        return True
    whole = "/".join(parts)
    return "%" in whole or "\\" in whole or "\x00" in whole


@lru_cache(maxsize=2048)
def asked(method: str, path: str, *, watch: bool = False, field_name: str = "") -> Asked:
    """`watch` and `field_name` come from the query: ?watch=true, and fieldSelector=metadata.name=X."""
    parts = segments(path)
    verb = VERB_BY_METHOD.get(method, method.lower())
    if not parts or (not _IS_PLAIN(path) and is_suspicious(parts)):
        return Asked(method, path, method.lower())
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Asked(method, path, method.lower())
    is_watch_path = rest[0] == "watch" and len(rest) > 1
    if is_watch_path:
        rest, verb = rest[1:], "watch"
    namespace, in_namespace = "", False
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in NAMESPACE_SUBRESOURCES:
            rest, in_namespace = rest[2:], True
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    if not name:
        verb = _collection_verb(verb, watch)
    return Asked(
        method, path, verb, True, group, version, plural, namespace, name,
        rest[2] if len(rest) > 2 else "", "/".join(rest[3:]), is_watch_path, in_namespace,
        field_name if not name and verb in ("list", "watch", "deletecollection") else "",
    )  # fmt: skip


def _collection_verb(verb: str, watch: bool) -> str:
    if verb == "get":
        return "watch" if watch else "list"
    return "deletecollection" if verb == "delete" else verb
