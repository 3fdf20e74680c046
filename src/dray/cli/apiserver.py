"""`dray apiserver`: the API server alone, without controllers."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dray.apiserver.assembly import Running, ServerOptions, start_server
from dray.atomic_files import write_private
from dray.cli.event_loop import raise_file_limit, run_loop, spare_the_collector
from dray.cli.main import BrokenWorld
from dray.cli.serving import Serving, serving_options
from dray.signals import stop_signal
from dray.store.errors import StoreError, StoreRefuses, StoreUnavailable
from dray.store.opening import open_store

# How long a start waits for etcd, and how often it looks. Once started, the server waits for ever.
ETCD_PATIENCE_S = 20.0
ETCD_RETRY_S = 0.5


@click.command(epilog="Example: dray apiserver --data ./cluster --kubeconfig ./kubeconfig")
@serving_options(listen="127.0.0.1:6443")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Static bearer tokens, one token,user,uid,"group1,group2" per line.',
)
@click.option(
    "--anonymous/--no-anonymous",
    default=True,
    show_default=True,
    help="Whether requests without credentials may ask for health and version.",
)
@click.option("--quota-counts-claims", is_flag=True, help="Charge cpu and memory of claims to quotas, too.")
@click.option("--allow-overbooking", is_flag=True, help="Let pods be bound to nodes without room for them.")
def apiserver(
    serving: Serving, token_file: Path | None, anonymous: bool, quota_counts_claims: bool, allow_overbooking: bool
) -> None:
    """Run the API server alone, without controllers."""
    with serving.data_directory() as directory:
        options = ServerOptions(
            directory,
            serving.gates,
            serving.runtime_config,
            serving.minor,
            serving.hosts,
            anonymous=anonymous,
            token_file=token_file,
            quota_counts_claims=quota_counts_claims,
            resize_with_claims=serving.emulates,
            overbooking=allow_overbooking,
        )
        try:
            _run_patiently(options, serving)
        except (StoreError, OSError, ValueError) as error:
            raise BrokenWorld(str(error)) from None


def _run_patiently(options: ServerOptions, serving: Serving) -> None:
    """An etcd that starts at the same time as we do, or chooses a new leader, is waited for.

    Each attempt has an event loop of its own, so nothing of a start that failed half way goes on.
    """
    deadline = time.monotonic() + (ETCD_PATIENCE_S if serving.store.startswith("etcd") else 0.0)
    while True:
        try:
            return run_loop(_serve(options, serving))
        except StoreRefuses:
            raise
        except StoreUnavailable as error:
            if time.monotonic() >= deadline:
                raise
            click.echo(f"{error}; trying again", err=True)
            time.sleep(ETCD_RETRY_S)


async def _serve(options: ServerOptions, serving: Serving) -> None:
    stopped = stop_signal()
    raise_file_limit()
    store = await open_store(serving.store, options.data)
    try:
        running = await start_server(store, options)
        url = await running.listen(serving.host, serving.port)
        _announce(running, url, serving)
        spare_the_collector()
        await stopped.wait()
        await running.stop()
    finally:
        await store.close()


def _announce(running: Running, url: str, serving: Serving) -> None:
    if serving.kubeconfig is not None:
        write_private(serving.kubeconfig, running.credentials.admin_kubeconfig(url).encode())
    click.echo(f"dray apiserver: {url}")
    if serving.kubeconfig is not None:
        click.echo(f"kubeconfig: {serving.kubeconfig}")
    serving.write_url(url)
