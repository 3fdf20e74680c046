"""`dray apiserver`: the API server alone, without controllers."""

from __future__ import annotations

import contextlib
import resource
import tempfile
from pathlib import Path

import click

from dray.apiserver.assembly import Running, ServerOptions, start_server
from dray.apiserver.served import BadRuntimeConfig, served
from dray.atomic_files import write_private
from dray.cli.event_loop import run_loop, spare_the_collector, stop_signal
from dray.cli.gates import gates_from
from dray.cli.main import BrokenWorld
from dray.features import RELEASES
from dray.store.errors import StoreError
from dray.store.opening import open_store


@click.command(epilog="Example: dray apiserver --data ./cluster --kubeconfig ./kubeconfig")
@click.option(
    "--listen",
    default="127.0.0.1:6443",
    metavar="HOST:PORT",
    show_default=True,
    help="Where to serve HTTPS; port 0 takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the store and keys (default: a temporary one).",
)
@click.option(
    "--store",
    default="",
    metavar="URL",
    help="sqlite:///FILE or etcd://HOST:PORT[,HOST:PORT...] (default: SQLite in the data directory).",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the administrator's kubeconfig here once ready.",
)
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the server's URL here once ready."
)
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Turn features on or off.")
@click.option("--emulate", type=click.Choice(RELEASES), help="Use the gates of a Kubernetes release.")
@click.option(
    "--runtime-config", default="", metavar="KEY=BOOL,...", help="Turn API versions on or off, such as api/all=true."
)
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
    listen: str,
    data: Path | None,
    store: str,
    kubeconfig: Path | None,
    ready_file: Path | None,
    feature_gates: str,
    emulate: str | None,
    runtime_config: str,
    token_file: Path | None,
    anonymous: bool,
    quota_counts_claims: bool,
    allow_overbooking: bool,
) -> None:
    """Run the API server alone, without controllers."""
    host, port = parse_address(listen)
    gates = gates_from(feature_gates, emulate)
    try:
        served(runtime_config)
    except BadRuntimeConfig as error:
        raise click.UsageError(str(error)) from None
    with contextlib.ExitStack() as stack:
        directory = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dray-")))
        minor = (emulate or RELEASES[-1]).partition(".")[2]
        options = ServerOptions(
            directory,
            gates,
            runtime_config,
            minor,
            [host],
            anonymous=anonymous,
            token_file=token_file,
            quota_counts_claims=quota_counts_claims,
            resize_with_claims=emulate is not None,
            overbooking=allow_overbooking,
        )
        try:
            run_loop(_serve(options, host, port, store, kubeconfig, ready_file))
        except (StoreError, OSError, ValueError) as error:
            raise BrokenWorld(str(error)) from None


def parse_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: write HOST:PORT, as in 127.0.0.1:6443")
    return host.strip("[]") or "127.0.0.1", int(port)


async def _serve(
    options: ServerOptions, host: str, port: int, store_url: str, kubeconfig: Path | None, ready_file: Path | None
) -> None:
    stopped = stop_signal()
    _raise_file_limit()
    store = await open_store(store_url, options.data)
    try:
        running = await start_server(store, options)
        url = await running.listen(host, port)
        _announce(running, url, kubeconfig, ready_file)
        spare_the_collector()
        await stopped.wait()
        await running.stop()
    finally:
        await store.close()


def _announce(running: Running, url: str, kubeconfig: Path | None, ready_file: Path | None) -> None:
    if kubeconfig:
        write_private(kubeconfig, running.credentials.admin_kubeconfig(url).encode())
    click.echo(f"dray apiserver: {url}")
    if kubeconfig:
        click.echo(f"kubeconfig: {kubeconfig}")
    if ready_file:
        write_private(ready_file, f"{url}\n".encode())


def _raise_file_limit() -> None:
    """A watch is an open file; ask for as many as we may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
