"""`dray backup` and `dray restore`: a cluster's objects and keys in one file, as of any moment that was copied."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from dray.cli.main import BrokenWorld
from dray.clock import RealClock
from dray.event_loop import until_signalled
from dray.store.backup import Backup, BackupSource, EtcdSource, SqliteSource
from dray.store.errors import StoreError
from dray.store.etcd import EtcdStore
from dray.store.store_url import StoreAddress, is_etcd, store_file


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    data = click.option(
        "--data", type=click.Path(file_okay=False, path_type=Path), help="The data directory of the cluster."
    )
    store = click.option(
        "--store", default="", metavar="URL", help="Or its store: sqlite:///FILE or etcd://HOST:PORT[,HOST:PORT...]."
    )
    return data(store(command))


@click.command(epilog="Example: dray backup --data ./cluster cluster.backup --every 10")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_place_options
@click.option(
    "--every", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Go on copying until Ctrl-C; default: one copy."
)
def backup(file: Path, data: Path | None, store: str, every: float | None) -> None:
    """Copy a cluster into FILE while it runs. A second copy into the same file adds what has changed since.

    The file then knows every moment of which a copy was made, and with --every less than five minutes all revisions in between. It holds the
    keys and Secrets of the cluster: keep it as safe as the cluster itself.
    """
    _check_place(data, store)
    try:
        with closing(Backup(file)) as target:
            asyncio.run(until_signalled(_copy(target, data, store, every)))
    except StoreError as problem:
        raise BrokenWorld(str(problem)) from None


async def _copy(target: Backup, data: Path | None, store: str, every: float | None) -> None:
    async with AsyncExitStack() as stack:
        source = await _source(stack, data, store)
        while True:
            added = await target.copy(source, time.time())
            click.echo(f"{_shown(time.time())}: revision {target.revision}, {added} changes")
            if every is None:
                return
            await asyncio.sleep(every)


async def _source(stack: AsyncExitStack, data: Path | None, store: str) -> BackupSource:
    if not is_etcd(store):
        return SqliteSource(store_file(store, data or Path()))
    opened = await EtcdStore.open(StoreAddress.parse(store), RealClock())
    stack.push_async_callback(opened.close)
    return EtcdSource(opened)


@click.command(epilog="Example: dray restore cluster.backup --data ./new-cluster --time 2026-11-16T06:00:00Z")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_place_options
@click.option("--revision", type=click.IntRange(min=1), help="As of this revision; default: the last that was copied.")
@click.option(
    "--time", "moment", metavar="TIME", help="As of the last copy that ended by then, such as 2026-11-16T06:00:00Z."
)
@click.option("--list", "only_list", is_flag=True, help="Only show what can be restored.")
def restore(
    file: Path, data: Path | None, store: str, revision: int | None, moment: str | None, only_list: bool
) -> None:
    """Make a new cluster's store from FILE. Nothing that exists is written over.

    Start it afterwards with the same --data or --store. Nodes, controllers and clients find it as it was; watches of the lost cluster begin anew.
    """
    if revision is not None and moment is not None:
        raise click.UsageError("give --revision or --time, not both")
    try:
        with closing(Backup(file, must_exist=True)) as source:
            if only_list:
                _print_moments(source)
                return
            _check_place(data, store)
            copied, at = source.moment_at(_parsed(moment) if moment else math.inf)
            count = asyncio.run(_restore(source, revision or at, data, store))
    except StoreError as problem:
        raise BrokenWorld(str(problem)) from None
    known = f"revision {revision}" if revision is not None else f"revision {at}, copied {_shown(copied)}"
    click.echo(f"restored {count} keys as of {known}")


async def _restore(source: Backup, revision: int, data: Path | None, store: str) -> int:
    if not is_etcd(store):
        return source.restore_file(revision, store_file(store, data or Path()))
    opened = await EtcdStore.open(StoreAddress.parse(store), RealClock())
    try:
        return await source.restore_into(revision, opened)
    finally:
        await opened.close()


def _check_place(data: Path | None, store: str) -> None:
    if (data is None) == (not store):
        raise click.UsageError("give --data or --store")


def _print_moments(source: Backup) -> None:
    gaps = {before: after for after, before in source.gaps()}
    for at, revision in source.moments():
        note = f"  (nothing is known between revision {gaps[revision]} and this one)" if revision in gaps else ""
        click.echo(f"{_shown(at)}  revision {revision}{note}")


def _shown(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parsed(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--time {text}: give a time such as 2026-11-16T06:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
