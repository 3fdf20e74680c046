"""How a client wants its request handled: query parameters (ListOptions, CreateOptions, ...) and media types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_plus

from dray.api.jsontext import go_json
from dray.apiserver.errors import ApiError, OptionError, bad_request, invalid

META_GROUP = "meta.k8s.io"
FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
MAX_MANAGER = 128
MAX_QUERY = 65_536
INT64 = range(-(2**63), 2**63)


class Query(Mapping[str, str]):
    """Query parameters by name, the first value each; `all` gives the others."""

    __slots__ = ("_values",)

    def __init__(self, text: str) -> None:
        if len(text) > MAX_QUERY:
            raise bad_request(f"query is too long: {len(text)} bytes, the limit is {MAX_QUERY}")
        self._values: dict[str, list[str]] = {}
        for part in text.split("&") if text else ():
            key, _, value = part.partition("=")
            if key and ";" not in key:
                self._values.setdefault(unquote_plus(key), []).append(unquote_plus(value))

    def __getitem__(self, key: str) -> str:
        return self._values[key][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        values = self._values.get(key)
        return values[0] if values else default

    def all(self, key: str) -> list[str]:
        return self._values.get(key, [])

    def flag(self, key: str) -> bool:
        """True unless the parameter is absent, "", "0" or "false"."""
        return self.get(key, "").lower() not in ("", "0", "false") if key in self._values else False

    def number(self, key: str) -> int | None:
        text = self.get(key, "")
        return None if not text else parse_int(text)


NO_QUERY = Query("")


def parse_int(text: str) -> int:
    """A 64-bit number in Go's spelling; raises 400 with Go's words."""
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isascii() or not digits.isdigit():
        raise bad_request(f"strconv.ParseInt: parsing {go_json(text)}: invalid syntax")
    value = int(text) if len(digits) < 25 else INT64.stop
    if value not in INT64:
        raise bad_request(f"strconv.ParseInt: parsing {go_json(text)}: value out of range")
    return value


@dataclass(frozen=True, slots=True)
class ListOptions:
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_s: int | None = None
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool | None = None


def list_options(query: Query, *, watch: bool) -> ListOptions:
    """Raises 400 for an unreadable option, 422 for options that exclude each other."""
    initial = query.flag("sendInitialEvents") if "sendInitialEvents" in query else None
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=max(query.number("limit") or 0, 0),
        continue_token=query.get("continue", ""),
        timeout_s=query.number("timeoutSeconds"),
        watch=watch,
        bookmarks=query.flag("allowWatchBookmarks"),
        send_initial_events=initial,
    )
    problems = list(_watch_problems(options) if watch else _list_problems(options))
    if problems:
        raise invalid(META_GROUP, "ListOptions", "", problems)
    return options


def _match_problem(body: str, type_: str = "Forbidden") -> OptionError:
    return OptionError(type_, "resourceVersionMatch", body)


def _list_problems(options: ListOptions) -> Iterator[OptionError]:
    match = options.resource_version_match
    if match:
        if not options.resource_version:
            yield _match_problem("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
        if options.continue_token:
            yield _match_problem("Forbidden: resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            supported = '"Exact", "NotOlderThan", ""'
            yield _match_problem(f"Unsupported value: {go_json(match)}: supported values: {supported}", "NotSupported")
        if match == "Exact" and options.resource_version == "0":
            yield _match_problem('Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if options.send_initial_events is not None:
        yield OptionError("Forbidden", "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")


def _watch_problems(options: ListOptions) -> Iterator[OptionError]:
    match = options.resource_version_match
    initial = options.send_initial_events
    if initial is not None and match != "NotOlderThan":
        yield _match_problem("Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match:
        if initial is None:
            yield _match_problem(
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
        if match != "NotOlderThan":
            body = f'Unsupported value: {go_json(match)}: supported values: "NotOlderThan"'
            yield _match_problem(body, "NotSupported")
        if options.continue_token:
            yield _match_problem("Forbidden: resourceVersionMatch is forbidden when continue is provided")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Create, update and patch share these; `force` is for apply only."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False


NO_OPTIONS = WriteOptions()


def write_options(query: Query, kind: str, *, is_apply: bool = False) -> WriteOptions:
    """`kind` is CreateOptions, UpdateOptions or PatchOptions: what an error message names."""
    if not query and not is_apply:
        return NO_OPTIONS
    force = query.flag("force") if "force" in query else None
    problems = list(_write_problems(query, kind, is_apply, force is not None))
    if problems:
        raise invalid(META_GROUP, kind, "", problems)
    return WriteOptions(
        dry_run=bool(query.get("dryRun")),
        field_manager=query.get("fieldManager", ""),
        field_validation=query.get("fieldValidation", "") or "Warn",
        force=bool(force),
    )


def _write_problems(query: Query, kind: str, is_apply: bool, has_force: bool) -> Iterator[OptionError]:
    manager = query.get("fieldManager", "")
    if kind == "PatchOptions":
        if is_apply and not manager:
            yield OptionError("Required", "fieldManager", "Required value: is required for apply patch")
        if not is_apply and has_force:
            yield OptionError("Forbidden", "force", "Forbidden: may not be specified for non-apply patch")
    yield from manager_problems(manager)
    yield from dry_run_problems(query.all("dryRun"))
    validation = query.get("fieldValidation", "")
    if validation not in FIELD_VALIDATIONS:
        supported = ", ".join(f'"{value}"' for value in FIELD_VALIDATIONS)
        body = f"Unsupported value: {go_json(validation)}: supported values: {supported}"
        yield OptionError("NotSupported", "fieldValidation", body)


def manager_problems(manager: str) -> Iterator[OptionError]:
    if len(manager.encode("utf-8", "surrogatepass")) > MAX_MANAGER:
        yield OptionError("TooLong", "fieldManager", f"Too long: may not be more than {MAX_MANAGER} bytes")
    if any(not char.isprintable() for char in manager):
        body = f"Invalid value: {go_json(manager)}: should only contain printable characters"
        yield OptionError("Invalid", "fieldManager", body)


def dry_run_problems(values: list[str]) -> Iterator[OptionError]:
    if values and any(value != "All" for value in values):
        body = f'Unsupported value: {go_json(values)}: supported values: "All"'
        yield OptionError("NotSupported", "dryRun", body)


def revision_number(text: str, prefix: str = "invalid resource version: ") -> int:
    """A resourceVersion from the query; raises 400."""
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 2**64:
        return int(text)
    problem = "value out of range" if text.isascii() and text.isdigit() else "invalid syntax"
    quoted = go_json(text)
    raise ApiError(
        400,
        "BadRequest",
        f"{prefix}resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}",
    )


# --- media types

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

TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
META_VERSIONS = ("v1", "v1beta1")
# A shape of our own. A server that does not know it takes the next media type of the header, and we send whole objects where it does not apply.
SHARED_DEVICES = "SharedDevices"
OWN_GROUP = "dray"
MAX_HEADER = 8192


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The media type of the response, and its shape: whole objects (no `kind`), a Table, or metadata only."""

    media_type: str = JSON
    kind: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    media_type: str
    parameters: dict[str, str]
    quality: float


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


def response_format(accept: str, *, streams: bool, has_table: bool = True) -> ResponseFormat:
    """The format that this Accept header asks for; raises 406.

    `streams` says that the path can also be watched, `has_table` that its objects can be shown as a table.
    """
    return _response_format(accept[:MAX_HEADER], streams, has_table)


@lru_cache(maxsize=512)
def _response_format(accept: str, streams: bool, has_table: bool) -> ResponseFormat:
    found = clauses(accept or "*/*")
    if not any(clause.media_type in ("*/*", *OFFERED) for clause in found):
        offered = ", ".join(WATCHED if streams else OFFERED)
        raise _not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {offered}", {})
    for clause in found:
        answer = _satisfies(clause)
        if answer is not None and (has_table or answer.kind != "Table"):
            return answer
    raise _not_acceptable(f"only the following media types are accepted: {', '.join(OFFERED)}")


def _satisfies(clause: Clause) -> ResponseFormat | None:
    media_type = JSON if clause.media_type in ("*/*", "application/*") else clause.media_type
    if media_type not in OFFERED or not clause.quality:
        return None
    kind = clause.parameters.get("as", "")
    if kind and media_type == PROTOBUF:
        return None
    if not kind:
        return ResponseFormat(media_type)
    version = clause.parameters.get("v", "")
    if (kind, version, clause.parameters.get("g")) == (SHARED_DEVICES, "v1", OWN_GROUP):
        return ResponseFormat(media_type, kind, version)
    if kind not in TRANSFORMS or version not in META_VERSIONS or clause.parameters.get("g") != META_GROUP:
        return None
    return ResponseFormat(media_type, kind, version)


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


def patch_type(content_type: str, *, strategic: bool = True) -> str:
    """Raises 415; `strategic` is whether the kind has the description that a strategic merge patch needs."""
    media_type = plain_type(content_type)
    if media_type == STRATEGIC_PATCH and not strategic:
        accepted = ", ".join(name for name in (JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", text)
    if media_type not in PATCH_TYPES:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return media_type


def plain_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
