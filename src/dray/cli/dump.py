"""A cluster's objects, out of files or from its API server, for the commands that only look."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from dray.api.codec import shape_document, to_object
from dray.api.core import Node, Pod
from dray.api.errors import DecodeError
from dray.api.jsontext import read_json
from dray.api.manifests import read_manifests
from dray.api.resource import API_VERSION, DeviceClass, ResourceClaim, ResourceSlice
from dray.api.versions import to_storage

Document = dict[str, Any]
T = TypeVar("T")

# Kind to its type and to the version that an object without one is taken for.
_KINDS: dict[str, tuple[type, str]] = {
    "Node": (Node, "v1"),
    "Pod": (Pod, "v1"),
    "ResourceClaim": (ResourceClaim, API_VERSION),
    "ResourceSlice": (ResourceSlice, API_VERSION),
    "DeviceClass": (DeviceClass, API_VERSION),
}
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Dump:
    """What a cluster holds, in the order in which it was found; a repeated object counts as it was found last."""

    objects: dict[str, dict[tuple[str, str], Any]] = field(default_factory=dict)

    def add(self, kind: str, obj: Any) -> None:
        key = (obj.metadata.namespace, obj.metadata.name)
        self.objects.setdefault(kind, {})[key] = obj

    def of(self, kind: type[T]) -> list[T]:
        return list(self.objects.get(kind.__name__, {}).values())


def read_dump(paths: Sequence[str]) -> Dump:
    """The objects of files and folders (`-` is standard input): YAML or JSON, many documents, Lists, in any version."""
    dump = Dump()
    for path in paths:
        for name, data in _files(path):
            try:
                for document in _documents(name, data):
                    _enter(dump, document)
            except DecodeError as problem:
                raise click.UsageError(f"{name}: {problem}") from None
    return dump


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


def _documents(name: str, data: bytes) -> Iterable[Document]:
    # Large dumps are JSON more often than not, which reads a hundred times faster as JSON than as YAML.
    if data.lstrip()[:1] == b"{":
        try:
            return _opened(read_json(data))
        except DecodeError:
            if name.endswith(".json"):
                raise
    return [manifest.document for manifest in read_manifests(data)]


def _opened(value: Any) -> list[Document]:
    if not isinstance(value, dict):
        return []
    items, kind = value.get("items"), str(value.get("kind") or "")
    if not kind.endswith("List") or not isinstance(items, list):
        return [value]
    said = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**said, **item} for item in items if isinstance(item, dict)]


def _enter(dump: Dump, document: Document) -> None:
    kind = str(document.get("kind") or "")
    if kind not in _KINDS:
        return
    wanted, version = _KINDS[kind]
    shaped = shape_document({**document, "apiVersion": document.get("apiVersion") or version}).document
    dump.add(kind, to_object(to_storage(shaped), wanted))


def fetch_dump(kubeconfig: str | None) -> Dump:
    """The same from a live cluster; its answers may be a moment apart from each other."""
    from dray.cli.main import BrokenWorld
    from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable

    try:
        return asyncio.run(_fetch(kubeconfig))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None


async def _fetch(kubeconfig: str | None) -> Dump:
    from dray.client import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, connect
    from dray.client.kinds import Kind

    client = connect(kubeconfig)
    dump = Dump()
    kinds: list[Kind[Any]] = [NODES, PODS, CLAIMS, SLICES, DEVICE_CLASSES]
    try:
        for kind in kinds:
            listing = await client.list(kind)
            for obj in listing.items:
                dump.add(type(obj).__name__, obj)
    finally:
        await client.close()
    return dump


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-f` and `--kubeconfig`, for a command that takes either a dump or a live cluster."""
    command = click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to ask; default as kubectl.")(
        command
    )
    return click.option(
        "-f", "--filename", "files", multiple=True, metavar="DUMP", help="File or folder with objects; - reads stdin."
    )(command)
