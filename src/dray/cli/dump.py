"""A cluster's objects, out of files or from its API server, for the commands that only look."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from dray.api.codec import shape_document, to_object
from dray.api.core import Namespace, Node, Pod, PriorityClass
from dray.api.defaults import apply_defaults
from dray.api.errors import DecodeError
from dray.api.jsontext import read_json
from dray.api.manifests import Manifest, read_manifests
from dray.api.resource import (
    API_VERSION,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.api.scheme import is_namespaced
from dray.api.spellings import uses_old_spelling
from dray.api.versions import to_storage
from dray.cli.yaml_parts import parts_of_yaml
from dray.explain.world import World
from dray.validation import Context, validate_create

Document = dict[str, Any]
T = TypeVar("T")

# Kind to its type and to the version that an object without one is taken for.
_KINDS: dict[str, tuple[type, str]] = {
    "Node": (Node, "v1"),
    "Pod": (Pod, "v1"),
    "ResourceClaim": (ResourceClaim, API_VERSION),
    "ResourceClaimTemplate": (ResourceClaimTemplate, API_VERSION),
    "ResourceSlice": (ResourceSlice, API_VERSION),
    "DeviceClass": (DeviceClass, API_VERSION),
    "DeviceTaintRule": (DeviceTaintRule, API_VERSION),
    "Namespace": (Namespace, "v1"),
    "PriorityClass": (PriorityClass, "scheduling.k8s.io/v1"),
}
_SUFFIXES = (".yaml", ".yml", ".json")


# When a manifest leaves a time to the server; any fixed time will do, since nothing here counts from it.
_NOW = "2024-01-01T00:00:00Z"

# Whether a namespace may hold claims with admin access was decided when they were created.
_TRUSTED = {"resource.kubernetes.io/admin-access": "true"}


class InvalidObjects(click.ClickException):
    """The answer is no: what was handed in is not valid."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Dump:
    """What a cluster holds, in the order in which it was found; a repeated object counts as it was found last.

    `problems` are objects that were left out, one line each with file and name; `old_spellings` are objects that use
    names from before the newest.
    """

    objects: dict[str, dict[tuple[str, str], Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    old_spellings: list[str] = field(default_factory=list)

    def add(self, kind: str, obj: Any) -> None:
        key = (obj.metadata.namespace, obj.metadata.name)
        self.objects.setdefault(kind, {})[key] = obj

    def of(self, kind: type[T]) -> list[T]:
        return list(self.objects.get(kind.__name__, {}).values())

    def find(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        return self.objects.get(kind.__name__, {}).get((namespace, name))

    def world(self) -> World:
        return World.of(obj for kind in self.objects.values() for obj in kind.values())

    def __len__(self) -> int:
        return sum(map(len, self.objects.values()))


def read_dump(
    paths: Sequence[str],
    *,
    check: Context | None = None,
    keep_going: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> Dump:
    """The objects of files and folders (`-` is standard input): YAML or JSON, many documents, Lists, in any version.

    With `check`, objects are validated as the API server would. An object that cannot be used ends the reading, or with
    `keep_going` becomes one of the problems. `on_bytes` is told how much has been read.
    """
    dump = Dump()
    if check is not None:
        check = replace(check, namespace_labels=_TRUSTED)
    for path in paths:
        for name, data in _files(path):
            try:
                for document in _documents(name, data, on_bytes):
                    problem = _enter(dump, document, check)
                    if problem:
                        _note(dump, f"{name}: {_said_name(document)}: {problem}", keep_going)
            except DecodeError as problem:
                if not keep_going:
                    raise click.UsageError(f"{name}: {problem}") from None
                dump.problems.append(f"{name}: {problem}")
    return dump


def _note(dump: Dump, problem: str, keep_going: bool) -> None:
    if not keep_going:
        raise InvalidObjects(problem)
    dump.problems.append(problem)


def _said_name(document: Document) -> str:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{document.get('kind') or 'object'} {name or 'without a name'}"


def _files(path: str) -> Iterator[tuple[str, bytes]]:
    if path == "-":
        yield "standard input", sys.stdin.buffer.read()
        return
    place = Path(path)
    found = sorted(each for each in place.rglob("*") if each.suffix in _SUFFIXES) if place.is_dir() else [place]
    for each in found:
        try:
            yield str(each), each.read_bytes()
        except OSError as problem:
            raise click.UsageError(f"{each}: {problem.strerror or problem}") from None


def _documents(name: str, data: bytes, on_bytes: Callable[[int], None] | None) -> Iterator[Document]:
    # Large dumps are JSON more often than not, which reads a hundred times faster as JSON than as YAML.
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            yield from _opened(read_json(data))
        except DecodeError:
            if name.endswith(".json"):
                raise
        else:
            if on_bytes is not None:
                on_bytes(len(data))
            return
    for part in parts_of_yaml(data):
        try:
            found = list(read_manifests(part))
        except DecodeError as problem:
            if part is data:
                raise
            # Anchors may reach across the cuts, and lines count from the beginning of the file.
            found, part = _as_a_whole(data, problem), data
        for manifest in found:
            yield manifest.document
        if part is data:
            return
        if on_bytes is not None:
            on_bytes(len(part))


def _as_a_whole(data: bytes, problem: DecodeError) -> list[Manifest]:
    try:
        return list(read_manifests(data))
    except DecodeError as larger:
        raise (larger if larger.line is not None else problem) from None


def _opened(value: Any) -> Iterator[Document]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
        return
    if not isinstance(value, dict):
        raise DecodeError("expected an object with apiVersion and kind")
    items, kind = value.get("items"), str(value.get("kind") or "")
    if not kind.endswith("List") or not isinstance(items, list):
        yield value
        return
    said = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    yield from ({**said, **item} for item in items if isinstance(item, dict))


def _enter(dump: Dump, document: Document, check: Context | None) -> str:
    """Take the object in; a text says why it cannot be used."""
    kind = str(document.get("kind") or "")
    if not kind:
        return "has no kind"
    if kind not in _KINDS:
        return ""
    wanted, version = _KINDS[kind]
    try:
        shaped = shape_document({**document, "apiVersion": document.get("apiVersion") or version}).document
        stored = to_storage(apply_defaults(_in_namespace(shaped, kind), _NOW))
        errors = validate_create(stored, check) if check is not None else []
        if errors:
            return "; ".join(map(str, errors[:3])) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
        obj: Any = to_object(stored, wanted)
    except DecodeError as problem:
        return str(problem)
    if not obj.metadata.name:
        return "has no name"
    dump.add(kind, obj)
    if uses_old_spelling(document):
        dump.old_spellings.append(_said_name(document))
    return ""


def _in_namespace(document: Document, kind: str) -> Document:
    metadata = document.get("metadata")
    if not is_namespaced(kind) or not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": "default"}}


def fetch_dump(kubeconfig: str | None) -> Dump:
    """The same from a live cluster; its answers may be a moment apart from each other."""
    from dray.cli.main import BrokenWorld
    from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable

    dump = Dump()
    try:
        # Filled and not returned: asyncio prints what a coroutine returns when it puts the signal handlers back, and
        # throws the text away. A large cluster is printed for seconds.
        asyncio.run(_fetch(kubeconfig, dump))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None
    return dump


def default_namespace(kubeconfig: str | None) -> str:
    """The namespace of the kubeconfig's context."""
    from dray.client import load_connection

    return load_connection(kubeconfig).namespace


async def _fetch(kubeconfig: str | None, dump: Dump) -> None:
    from dray.client import (
        CLAIMS,
        DEVICE_CLASSES,
        NAMESPACES,
        NODES,
        PODS,
        PRIORITY_CLASSES,
        SLICES,
        TAINT_RULES,
        TEMPLATES,
        ApiError,
        connect,
    )
    from dray.client.kinds import Kind

    client = connect(kubeconfig)
    needed: list[Kind[Any]] = [NODES, PODS, CLAIMS, SLICES, DEVICE_CLASSES]
    # A cluster may not serve these, or not to everybody; most questions have an answer without them.
    welcome: list[Kind[Any]] = [TEMPLATES, TAINT_RULES, NAMESPACES, PRIORITY_CLASSES]
    try:
        for kind in (*needed, *welcome):
            try:
                listing = await client.list(kind)
            except ApiError as problem:
                if kind in needed or not (problem.is_not_found or problem.code == 403):
                    raise
                continue
            for obj in listing.items:
                dump.add(type(obj).__name__, obj)
    finally:
        await client.close()


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-f` and `--kubeconfig`, for a command that takes either a dump or a live cluster."""
    command = click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to ask; default as kubectl.")(
        command
    )
    return click.option(
        "-f", "--filename", "files", multiple=True, metavar="DUMP", help="File or folder with objects; - reads stdin."
    )(command)
