"""`dray dashboard`: the web page for any cluster, served on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from dray import __version__
from dray.atomic_files import write_private
from dray.cli.main import BrokenWorld
from dray.cli.options import gate_options, gates_from, parse_address
from dray.client import Client, Connection, CredentialsError, KubeconfigError, ServerUnreachable, load_connection
from dray.client.transport import Call
from dray.dashboard import Dashboard, dashboard_url, new_token
from dray.dashboard.access import is_on_this_machine
from dray.dashboard.application import DashboardServer
from dray.event_loop import run_loop
from dray.features import FeatureGates
from dray.signals import stop_signal
from dray.sim.pod_explanation import explain_live_pods
from dray.telemetry import set_up_logging


@click.command(epilog="Example: dray dashboard --kubeconfig ./kubeconfig")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config.")
@click.option("--context", default="", help="Context of the kubeconfig; default: its current one.")
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
    kubeconfig: str | None, context: str, listen: str, url_file: Path | None, feature_gates: str, emulate: str | None
) -> None:
    """Show a cluster in the browser: devices by use, claims, the ledger, waiting pods. Read-only.

    The printed address carries a token; without it the page shows nothing. It needs get, list and watch on nodes, pods,
    namespaces, priority classes and the resource.k8s.io kinds.
    """
    host, port = parse_address(listen)
    if not is_on_this_machine("127.0.0.1" if host == "localhost" else host):
        raise click.UsageError(
            f"--listen {listen}: the page is served on this machine only, as on 127.0.0.1:0; "
            "from elsewhere reach it with ssh -L"
        )
    gates = gates_from(feature_gates, emulate)
    set_up_logging(0)
    try:
        connection = load_connection(kubeconfig, context=context)
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from None
    try:
        run_loop(_serve(connection, host, port, gates, url_file))
    except OSError as error:
        raise BrokenWorld(f"--listen {listen}: {error.strerror or error}") from None


async def _serve(connection: Connection, host: str, port: int, gates: FeatureGates, url_file: Path | None) -> None:
    from dray.client.https import HttpsTransport

    stopping = stop_signal()
    client = Client(HttpsTransport(connection), user_agent=f"dray-dashboard/{__version__}")
    try:
        await client.transport.request(Call("GET", "/version", timeout_s=10))
        token = new_token()
        server = DashboardServer(
            Dashboard(client, token, explain=explain_live_pods, gates=gates, title=connection.server)
        )
        address = dashboard_url(await server.start(host, port), token)
        if url_file is not None:
            write_private(url_file, f"{address}\n".encode())
        click.echo(f"dashboard of {connection.server}: {address}")
        click.echo("Ctrl-C ends it.")
        await stopping.wait()
        await server.stop()
    except (ServerUnreachable, CredentialsError) as error:
        raise BrokenWorld(str(error)) from None
    finally:
        await client.close()
