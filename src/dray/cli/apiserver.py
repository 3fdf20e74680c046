"""`dray apiserver`: the API server alone, without controllers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from dray.apiserver.assembly import RunningServer, ServerOptions, start_server
from dray.apiserver.request.fairness import SEATS
from dray.cli.main import BrokenWorld
from dray.cli.options import Serving, serving_options
from dray.clock import RealClock
from dray.event_loop import (
    YOUNG_OF_A_SERVER,
    give_memory_back,
    raise_file_limit,
    run_loop,
    spare_the_collector,
)
from dray.kubeconfig_file import ClusterEntry
from dray.signals import stop_signal
from dray.store.errors import StoreError
from dray.store.interface import Store
from dray.store.store_url import open_store
from dray.store.waiting import start_when_reachable
from dray.validation.expressions import environment_for

# Of the cluster, the user and the context in a kubeconfig.
KUBECONFIG_NAME = "dray-apiserver"


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
@click.option(
    "--encryption-provider-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="EncryptionConfiguration: kinds that are encrypted in the store, and the keys.",
)
@click.option(
    "--keys",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the keys of the authority and of tokens in this folder, not in the store.",
)
@click.option(
    "--max-requests-inflight",
    type=click.IntRange(min=1),
    default=SEATS,
    show_default=True,
    help="Requests in progress at the same time, shared by the priority levels.",
)
@click.option(
    "--kubelet-insecure-tls",
    is_flag=True,
    help="Fetch logs from node agents without a certificate of the cluster's authority, such as kubelets without serverTLSBootstrap.",
)
@click.option("--allow-overbooking", is_flag=True, help="Let pods be bound to nodes without room for them.")
def apiserver(
    serving: Serving,
    token_file: Path | None,
    anonymous: bool,
    quota_counts_claims: bool,
    allow_overbooking: bool,
    encryption_provider_config: Path | None,
    keys: Path | None,
    max_requests_inflight: int,
    kubelet_insecure_tls: bool,
) -> None:
    """Run the API server alone, without controllers."""
    serving.check_kubeconfig(KUBECONFIG_NAME)
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
            encryption_config=encryption_provider_config,
            keys=keys.absolute() if keys is not None else None,
            max_requests_inflight=max_requests_inflight,
            kubelet_insecure_tls=kubelet_insecure_tls,
        )
        try:
            run_loop(_serve(options, serving))
        except (StoreError, OSError, ValueError) as error:
            raise BrokenWorld(str(error)) from None


async def _serve(options: ServerOptions, serving: Serving) -> None:
    stopped = asyncio.create_task(stop_signal().wait())
    raise_file_limit()
    starting = asyncio.create_task(_start_patiently(options, serving))
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        return  # Told to end before there was anything to serve; the loop ends what has begun.
    store, running = starting.result()
    try:
        await _serve_until(stopped, running, options, serving)
    finally:
        # In this order, however it ends: what the server runs beside requests uses the store.
        try:
            await running.stop()
        finally:
            await store.close()


async def _serve_until(
    stopped: asyncio.Task[object], running: RunningServer, options: ServerOptions, serving: Serving
) -> None:
    try:
        url = await running.listen(serving.host, serving.port)
    except OSError as error:
        raise serving.cannot_listen(error) from None
    _announce(running, url, serving)
    spare_the_collector(YOUNG_OF_A_SERVER)
    give_memory_back()
    # Loads CEL beside the first requests. Otherwise the first claim with an expression would load it, and everybody would wait.
    await asyncio.to_thread(environment_for, options.gates)
    await stopped


async def _start_patiently(options: ServerOptions, serving: Serving) -> tuple[Store, RunningServer]:
    """An etcd that starts at the same time as we do, or has no quorum, is waited for; a file is there or is not."""
    if not serving.store.startswith("etcd"):
        return await _start(options, serving)
    return await start_when_reachable(lambda: _start(options, serving), RealClock())


async def _start(options: ServerOptions, serving: Serving) -> tuple[Store, RunningServer]:
    store = await open_store(serving.store, options.data)
    try:
        return store, await start_server(store, options)
    except BaseException:
        await store.close()
        raise


def _announce(running: RunningServer, url: str, serving: Serving) -> None:
    if serving.kubeconfig is not None:
        text = running.credentials.admin_kubeconfig(url)
        serving.write_kubeconfig(serving.kubeconfig, ClusterEntry.of(KUBECONFIG_NAME, text))
    click.echo(f"dray apiserver: {url}")
    if serving.kubeconfig is not None:
        click.echo(f"kubeconfig: {serving.kubeconfig}")
    serving.write_url(url)
