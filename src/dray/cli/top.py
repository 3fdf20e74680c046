"""`dray top`: the cluster at a glance, live."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from typing import Any

import click

from dray.cli.dump import fetch_dump, read_dump, source_options
from dray.cli.main import BrokenWorld
from dray.cli.top_view import overview_of, text_of
from dray.explain.world import World


@click.command()
@source_options
@click.option("--once", is_flag=True, help="Print once and end; the default where there is no terminal.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds between two looks."
)
def top(files: tuple[str, ...], kubeconfig: str | None, once: bool, interval: float) -> None:
    """Devices, nodes and waiting pods on one screen, fullest first. Ctrl-C ends it.

    \b
    Examples:
      dray top                      live, the cluster of your kubeconfig
      dray top --once | head        one look, plain text
      dray top -f dump.yaml         the same for a dump
    """
    if files and kubeconfig:
        raise click.UsageError("-f and --kubeconfig exclude each other")
    if files or once or not sys.stdout.isatty():
        dump = read_dump(files) if files else fetch_dump(kubeconfig)
        click.echo(text_of(overview_of(dump.world())))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _follow(kubeconfig, interval)


def _follow(kubeconfig: str | None, interval: float) -> None:
    from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable

    try:
        asyncio.run(_live(kubeconfig, interval))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None


async def _live(kubeconfig: str | None, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from dray.client import CLAIMS, NODES, PODS, SLICES, TAINT_RULES, Informers, connect
    from dray.client.kinds import Kind

    client = connect(kubeconfig)
    kinds: list[Kind[Any]] = [NODES, PODS, CLAIMS, SLICES, TAINT_RULES]
    # One plain question first: an informer would go on asking a server that is not there.
    await client.list(NODES)
    informers = Informers(client)
    watched = [informers.of(kind) for kind in kinds]
    informers.start()
    await informers.synced()
    try:
        with Live(screen=True, auto_refresh=False) as screen:
            while True:
                world = World.of(obj for informer in watched for obj in informer)
                size = shutil.get_terminal_size()
                screen.update(
                    Text(text_of(overview_of(world), size.lines), no_wrap=True, overflow="crop"), refresh=True
                )
                await asyncio.sleep(interval)
    finally:
        await informers.stop()
        await client.close()
