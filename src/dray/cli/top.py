"""`dray top`: the cluster at a glance, live."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from typing import Any

import click

from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.main import BrokenWorld
from dray.cli.options import output_option
from dray.cli.output import show_text, terminal_of, without_backticks, write_document
from dray.client import Client
from dray.client.server_check import server_problem
from dray.event_loop import (
    run_loop,
    until_signalled,
)
from dray.explain.cluster_objects import ClusterObjects
from dray.explain.overview import overview_document, overview_of, text_of
from dray.visible_text import visible

PROBE_S = 3.0


@click.command()
@source_options
@click.option("--once", is_flag=True, help="Print once and end; the default where there is no terminal.")
@click.option(
    "--interval", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds between two looks."
)
@output_option("wide shows whole reasons, and blocked and tainted devices in any case. json and yaml are printed once.")
def top(files: tuple[str, ...], live: LiveCluster, once: bool, interval: float, output: str) -> None:
    """Devices, nodes and waiting pods on one screen, fullest first. Ctrl-C ends it.

    \b
    Examples:
      dray top                      live, the cluster of your kubeconfig
      dray top --once | head        one look, plain text
      dray top -f dump.yaml         the same for a dump
      dray top -o json              one look, for programs
    """
    wide = output == "wide"
    if files or once or output in ("json", "yaml") or not sys.stdout.isatty():
        view = overview_of(load_dump(files, live).world())
        if output in ("json", "yaml"):
            write_document(overview_document(view), output)
        else:
            show_text(text_of(view, wide=wide))
        return
    from dray.client import ApiError, CredentialsError, KubeconfigError, ServerUnreachable

    # Lines of a log would be drawn across the tables; what is wrong with the server is said in the first line.
    logging.getLogger("dray").setLevel(logging.CRITICAL)
    try:
        run_loop(until_signalled(_live(live, interval, wide=wide)))
    except (ApiError, CredentialsError, KubeconfigError, ServerUnreachable) as problem:
        raise BrokenWorld(str(problem)) from None


async def _live(live: LiveCluster, interval: float, *, wide: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from dray.client import CLAIMS, NODES, PODS, SLICES, TAINT_RULES, Informers
    from dray.client.kinds import Kind

    client = live.connect()
    kinds: list[Kind[Any]] = [NODES, PODS, CLAIMS, SLICES, TAINT_RULES]
    # One plain question first: an informer would go on asking a server that is not there.
    await client.list(NODES)
    informers = Informers(client)
    watched = [informers.of(kind) for kind in kinds]
    informers.start()
    await informers.synced()
    server = _Server(client)
    probing = asyncio.create_task(server.probe())
    drawn: object = None
    try:
        console = Console(file=terminal_of(sys.stdout))
        with Live(console=console, screen=True, auto_refresh=False) as screen:
            while True:
                # What there is to draw: the revision of each kind, a server that is gone, the size of the terminal.
                now = ([informer.revision for informer in watched], server.problem, shutil.get_terminal_size())
                if now != drawn:
                    drawn = now
                    world = ClusterObjects.of(obj for informer in watched for obj in informer)
                    lines = shutil.get_terminal_size().lines
                    text = text_of(overview_of(world), lines, server.problem, wide=wide)
                    screen.update(Text(visible(without_backticks(text)), no_wrap=True, overflow="crop"), refresh=True)
                await asyncio.sleep(interval)
    finally:
        probing.cancel()
        await informers.stop()
        await client.close()


class _Server:
    """The problem with the server at the last check."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.problem = ""

    async def probe(self) -> None:
        while True:
            problem = await server_problem(self._client)
            if problem and not self.problem:
                self.problem = f"{self._client.clock.now():%H:%M:%S} UTC: {problem}; what follows is from before"
            elif not problem:
                self.problem = ""
            await asyncio.sleep(PROBE_S)
