"""Which representation a client reads and which one it wrote."""

from dataclasses import dataclass
from functools import lru_cache

from dray.apiserver.errors import ApiError

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OFFERED = (JSON, YAML, PROTOBUF)
WATCHED = (*OFFERED, f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

META_GROUP = "meta.k8s.io"
TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
META_VERSIONS = ("v1", "v1beta1")
MAX_HEADER = 8192


@dataclass(frozen=True, slots=True)
class Wanted:
    """The media type to answer in, and the shape: whole objects (no `kind`), a Table, or metadata only."""

    media_type: str = JSON
    kind: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    media_type: str
    parameters: dict[str, str]
    quality: float


@lru_cache(maxsize=512)
def clauses(accept: str) -> tuple[Clause, ...]:
    """The alternatives of an Accept header, best first."""
    found = []
    for part in accept[:MAX_HEADER].split(","):
        media_type, *pieces = (piece.strip() for piece in part.split(";"))
        if not media_type:
            continue
        parameters = dict(_parameter(piece) for piece in pieces if piece)
        found.append(Clause(media_type.lower(), parameters, _quality(parameters.pop("q", "1"))))
    return tuple(sorted(found, key=lambda clause: -clause.quality))


def _parameter(piece: str) -> tuple[str, str]:
    key, _, value = piece.partition("=")
    return key.strip().lower(), value.strip().strip('"')


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0


@lru_cache(maxsize=512)
def wanted(accept: str, *, streams: bool) -> Wanted:
    """What to answer to this Accept header; raises 406. `streams` says that the path can also be watched."""
    found = clauses(accept or "*/*")
    if not any(clause.media_type in ("*/*", *OFFERED) for clause in found):
        offered = ", ".join(WATCHED if streams else OFFERED)
        raise _not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {offered}", {})
    for clause in found:
        answer = _satisfies(clause)
        if answer is not None:
            return answer
    raise _not_acceptable(f"only the following media types are accepted: {', '.join(OFFERED)}")


def _satisfies(clause: Clause) -> Wanted | None:
    media_type = JSON if clause.media_type in ("*/*", "application/*") else clause.media_type
    if media_type not in (JSON, YAML) or not clause.quality:
        return None
    kind = clause.parameters.get("as", "")
    if not kind:
        return Wanted(media_type)
    version = clause.parameters.get("v", "")
    if kind not in TRANSFORMS or version not in META_VERSIONS or clause.parameters.get("g") != META_GROUP:
        return None
    return Wanted(media_type, kind, version)


def _not_acceptable(message: str, details: dict[str, str] | None = None) -> ApiError:
    return ApiError(406, "NotAcceptable", message, details)


def body_type(content_type: str) -> str:
    """The format of a request body, for everything but patches; raises 415. A missing header means JSON."""
    media_type = plain_type(content_type)
    if not media_type or media_type == "application/x-www-form-urlencoded":
        return JSON
    if media_type in OFFERED:
        return media_type
    raise unknown_format()


def unknown_format() -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(OFFERED),
    )


def patch_type(content_type: str) -> str:
    media_type = plain_type(content_type)
    if media_type not in PATCH_TYPES:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return media_type


def plain_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
