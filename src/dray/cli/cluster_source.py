"""Where the commands that only read get a cluster's objects: `-f` files and folders, or the API server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.api.errors import DecodeError
from dray.cli.main import BrokenWorld
from dray.explain.dump import Dump, DumpReader, InvalidObject

if TYPE_CHECKING:
    from dray.client import Client
    from dray.validation import ValidationContext

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Which cluster to ask: a kubeconfig, and a context in it. Where both are left out, they are found as kubectl finds them."""

    kubeconfig: str | None = None
    context: str = ""

    @property
    def is_named(self) -> bool:
        return self.kubeconfig is not None or bool(self.context)

    def connect(self, component: str = "dray") -> Client:
        from dray.client import connect

        return connect(self.kubeconfig, context=self.context, component=component)

    @property
    def namespace(self) -> str:
        """The namespace of the context."""
        from dray.client import load_connection

        return load_connection(self.kubeconfig, self.context).namespace


def live_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--kubeconfig` and `--context`, for a command that asks a cluster; it gets them as `live`."""

    @wraps(command)
    def with_live(*, kubeconfig: str | None, context: str, **given: Any) -> Any:
        return command(live=LiveCluster(kubeconfig, context), **given)

    decorated = click.option("--context", default="", help="Context of the kubeconfig; default: its current one.")(
        with_live
    )
    return click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to ask; default as kubectl.")(
        decorated
    )


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-f`, `--kubeconfig` and `--context`, for a command that takes either a dump or a live cluster."""
    return click.option(
        "-f", "--filename", "files", multiple=True, metavar="DUMP", help="File or folder with objects; - reads stdin."
    )(live_options(command))


def load_dump(
    files: Sequence[str],
    live: LiveCluster,
    *,
    check: ValidationContext | None = None,
    with_events: bool = False,
    kinds: Collection[str] = (),
) -> Dump:
    """The objects of the files, or of the cluster where there are none. With `kinds`, a cluster is asked for these only."""
    refuse_two_sources(files, live)
    if files:
        return read_dump(files, check=check, keep_going=check is not None)
    return fetch_dump(live, with_events, kinds)


def refuse_two_sources(files: Sequence[str], live: LiveCluster) -> None:
    if files and live.is_named:
        raise click.UsageError(f"-f and {'--kubeconfig' if live.kubeconfig else '--context'} exclude each other")


def read_dump(
    paths: Sequence[str],
    *,
    check: ValidationContext | None = None,
    keep_going: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> Dump:
    """The objects of files and folders; `-` is standard input. See `DumpReader` for the options."""
    dump = Dump()
    reader = DumpReader(dump, check, keep_going, on_bytes)
    with _collector_at_rest():
        for path in paths:
            for name, data in files_in(path):
                try:
                    reader.read(name, data)
                except DecodeError as problem:
                    raise click.UsageError(f"{name}: {problem}") from None
                except InvalidObject as problem:
                    raise click.ClickException(str(problem)) from None
    return dump


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """No garbage collection: what is read stays, and looking through it again and again takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def files_in(path: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, or of each manifest below a folder."""
    if path == "-":
        yield "standard input", sys.stdin.buffer.read()
        return
    place = Path(path)
    found = sorted(each for each in place.rglob("*") if each.suffix in SUFFIXES) if place.is_dir() else [place]
    for each in found:
        try:
            yield str(each), each.read_bytes()
        except OSError as problem:
            raise click.UsageError(f"{each}: {problem.strerror or problem}") from None


def fetch_dump(live: LiveCluster, with_events: bool = False, kinds: Collection[str] = ()) -> Dump:
    """The objects of a live cluster; its kinds are listed one after the other. Quotas and events, which may be many, on demand."""
    from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable

    dump = Dump()
    # The command ends soon, and what it reads stays until then: 500 nodes with 104,000 devices are explained without a search for garbage.
    gc.set_threshold(250_000, 20, 100)
    try:
        # The dump is filled, not returned: asyncio formats a returned value as text when it restores the signal
        # handlers. For a large cluster that takes seconds.
        asyncio.run(_fetch(live, dump, with_events, kinds))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None
    return dump


async def _fetch(live: LiveCluster, dump: Dump, with_events: bool, kinds: Collection[str]) -> None:
    from dray.client.cluster_listing import list_cluster

    client = live.connect()
    try:
        for obj in await list_cluster(client, with_events=with_events, kinds=kinds):
            dump.add(type(obj).__name__, obj)
    finally:
        await client.close()
