"""`dray doctor --watch`: the promises of the cluster, checked while it runs."""

from __future__ import annotations

import asyncio
import sys

import click

from dray.cli.event_loop import until_signalled
from dray.cli.main import EXIT_NO, BrokenWorld
from dray.client import NODES, ApiError, CredentialsError, KubeconfigError, ServerUnreachable, connect
from dray.proof import OnlineCheck, Violation, watch_cluster


def watch(kubeconfig: str | None, for_s: float) -> None:
    """Print each broken promise when it happens; exit code 1 if there was any."""
    check = OnlineCheck(_print)
    try:
        asyncio.run(_watch(kubeconfig, check, for_s))
    except (KubeconfigError, CredentialsError, ServerUnreachable, ApiError) as error:
        raise BrokenWorld(str(error)) from error
    found = f"{check.violations} promises broken" if check.violations else "every promise was kept"
    click.echo(f"{found} ({check.events} changes, {check.objects} objects)", err=True)
    if check.violations:
        sys.exit(EXIT_NO)


async def _watch(kubeconfig: str | None, check: OnlineCheck, for_s: float) -> None:
    client = connect(kubeconfig, component="dray-doctor")
    await client.list(NODES)  # Says at once what is wrong with the way in; the watch itself would try for ever.
    click.echo("watching; end with Ctrl-C" if not for_s else f"watching for {for_s:g} s", err=True)
    await until_signalled(watch_cluster(client, check, for_s=for_s))
    await client.close()


def _print(violation: Violation) -> None:
    click.echo(f"{click.style('broken', fg='red')}: {violation.subject}: {violation.message} [{violation.rule}]")
