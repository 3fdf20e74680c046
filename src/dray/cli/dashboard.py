"""`dray dashboard`: the web page for any cluster, served on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from dray import __version__
from dray.atomic_files import write_private
from dray.cli.cluster_source import LiveCluster, read_dump, refuse_two_sources, source_options
from dray.cli.main import BrokenWorld
from dray.cli.options import gate_options, gates_from, parse_address
from dray.client import Client, CredentialsError, KubeconfigError, ServerUnreachable, load_connection
from dray.client.transport import Call
from dray.dashboard import Dashboard, dashboard_url, new_token
from dray.dashboard.access import is_on_this_machine
from dray.dashboard.application import DashboardServer
from dray.dashboard.dump_transport import DumpTransport
from dray.event_loop import run_loop
from dray.signals import stop_signal
from dray.sim.pod_explanation import explain_live_pods
from dray.telemetry import set_up_logging


@click.command(epilog="Examples: dray dashboard --kubeconfig ./kubeconfig, dray dashboard -f dump.yaml")
@source_options
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="An address of this machine; port 0 takes a free one.",
)
@click.option("--url-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the page's address here, too.")
@gate_options
def dashboard(
    files: tuple[str, ...],
    live: LiveCluster,
    listen: str,
    url_file: Path | None,
    feature_gates: str,
    emulate: str | None,
) -> None:
    """Show a cluster in the browser: devices by use, pods, claims, the ledger, waiting pods, events, history. Read-only.

    The printed address carries a token; without it the page shows nothing. It needs get, list and watch on nodes, pods,
    namespaces, priority classes, quotas, events and the resource.k8s.io kinds. With -f it opens a dump, and needs no cluster.
    """
    host, port = parse_address(listen)
    if not is_on_this_machine("127.0.0.1" if host == "localhost" else host):
        raise click.UsageError(
            f"--listen {listen}: the page is served on this machine only, as on 127.0.0.1:0; "
            "from elsewhere reach it with ssh -L"
        )
    gates = gates_from(feature_gates, emulate)
    refuse_two_sources(files, live)
    set_up_logging(0)
    client, title = _dump_client(files) if files else _live_client(live)
    page = Dashboard(client, new_token(), explain=explain_live_pods, gates=gates, title=title, is_dump=bool(files))
    try:
        run_loop(_serve(page, client, title, host, port, url_file))
    except OSError as error:
        raise BrokenWorld(f"--listen {listen}: {error.strerror or error}") from None


def _dump_client(files: tuple[str, ...]) -> tuple[Client, str]:
    return Client(DumpTransport(read_dump(files).world())), ", ".join(files)


def _live_client(live: LiveCluster) -> tuple[Client, str]:
    from dray.client.https import HttpsTransport

    try:
        connection = load_connection(live.kubeconfig, context=live.context)
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from None
    return Client(HttpsTransport(connection), user_agent=f"dray-dashboard/{__version__}"), connection.server


async def _serve(page: Dashboard, client: Client, title: str, host: str, port: int, url_file: Path | None) -> None:
    stopping = stop_signal()
    try:
        await client.transport.request(Call("GET", "/version", timeout_s=10))
        server = DashboardServer(page)
        address = dashboard_url(await server.start(host, port), page.token)
        page.keep_watching()
        if url_file is not None:
            write_private(url_file, f"{address}\n".encode())
        click.echo(f"dashboard of {title}: {address}")
        click.echo("Ctrl-C ends it.")
        await stopping.wait()
        await server.stop()
    except (ServerUnreachable, CredentialsError) as error:
        raise BrokenWorld(str(error)) from None
    finally:
        await client.close()
