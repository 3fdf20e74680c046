"""`dray up`: a whole cluster in one process."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from dray.atomic_files import write_private
from dray.cli.apiserver import parse_address
from dray.cli.event_loop import run_loop, spare_the_collector, stop_signal
from dray.cli.gates import gates_from
from dray.cli.main import BrokenWorld
from dray.features import RELEASES, FeatureGates

DEFAULT_DRIVERS = "gpu,cpu,nic"


@dataclass(frozen=True, slots=True)
class UpOptions:
    nodes: int
    drivers: tuple[str, ...]
    host: str
    port: int
    data: Path
    store: str
    kubeconfig: Path
    ready_file: Path | None
    gates: FeatureGates
    minor: str
    runtime_config: str


@click.command(epilog="Example: dray up --nodes 3 --devices gpu --kubeconfig ./kubeconfig")
@click.option(
    "--nodes",
    default=3,
    show_default=True,
    type=click.IntRange(0, 20000),
    help="0: bring your own nodes. More than 10 are simulated: their pods run on paper.",
)
@click.option(
    "--devices",
    default=DEFAULT_DRIVERS,
    show_default=True,
    metavar="NAME,...",
    help="Drivers on every node: gpu, gpu-shared, cpu, nic; none for no devices.",
)
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve HTTPS; port 0 takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the cluster here (default: a temporary directory).",
)
@click.option(
    "--store",
    default="",
    metavar="URL",
    help="etcd://HOST:PORT[,HOST:PORT...] instead of SQLite in the data directory.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the administrator's kubeconfig here once ready (default: in the data directory).",
)
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the server's URL here once ready."
)
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Turn features on or off.")
@click.option("--emulate", type=click.Choice(RELEASES), help="Use the gates of a Kubernetes release.")
@click.option(
    "--runtime-config", default="", metavar="KEY=BOOL,...", help="Turn API versions on or off, such as api/all=true."
)
@click.option("-v", "--verbose", count=True, help="More about what happens, on standard error.")
def up(
    nodes: int,
    devices: str,
    listen: str,
    data: Path | None,
    store: str,
    kubeconfig: Path | None,
    ready_file: Path | None,
    feature_gates: str,
    emulate: str | None,
    runtime_config: str,
    verbose: int,
) -> None:
    """Start a cluster: API server, controllers, scheduler, nodes and drivers, in one process.

    It is a Kubernetes to kubectl and to every client. Ctrl-C or SIGTERM ends it.
    """
    from dray.apiserver.served import BadRuntimeConfig, served
    from dray.sim.nodes import known_drivers
    from dray.telemetry import set_up_logging

    set_up_logging(verbose)
    if not verbose:
        logging.getLogger("dray").setLevel(logging.WARNING)
    host, port = parse_address(listen)
    gates = gates_from(feature_gates, emulate)
    try:
        served(runtime_config)
        drivers = known_drivers([name for name in devices.split(",") if name and name != "none"])
    except (BadRuntimeConfig, ValueError) as error:
        raise click.UsageError(str(error)) from None
    with _data_directory(data) as directory:
        minor = (emulate or RELEASES[-1]).partition(".")[2]
        config = kubeconfig or directory / "kubeconfig"
        options = UpOptions(
            nodes, drivers, host, port, directory, store, config, ready_file, gates, minor, runtime_config
        )
        from dray.store.errors import StoreError

        spare_the_collector()
        try:
            run_loop(_serve(options))
        except (StoreError, OSError) as error:
            raise BrokenWorld(str(error)) from None


@contextlib.contextmanager
def _data_directory(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


async def _serve(options: UpOptions) -> None:
    from dray.dashboard import PREFIX, Dashboard, dashboard_url, new_token
    from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
    from dray.sim.nodes import NodesOptions, make_nodes

    stopping = stop_signal()
    plane = ControlPlane(
        ControlPlaneOptions(options.data, options.store, options.gates, options.runtime_config, options.minor)
    )
    await plane.start()
    token = new_token()
    dashboard = Dashboard(plane.client("dray-dashboard"), token, gates=options.gates, title="dray up")
    plane.running.mount(PREFIX, dashboard)
    url = await plane.listen(options.host, options.port)
    ca = plane.running.credentials.authority.certificate_pem
    # Sockets have short names, and so must their directory; it is gone with the process.
    with tempfile.TemporaryDirectory(prefix="dray-n", ignore_cleanup_errors=True) as root:
        chosen = NodesOptions(options.nodes, options.drivers, Path(root), options.gates, cluster_ca=ca)
        nodes = make_nodes(plane.client("dray-up"), chosen)
        starting = asyncio.create_task(nodes.start())
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _announce(options, url, plane.kubeconfig(), dashboard_url(url, token))
            await stopped
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await dashboard.stop()
        await nodes.stop()
        await plane.stop()


def _announce(options: UpOptions, url: str, kubeconfig: str, dashboard: str) -> None:
    write_private(options.kubeconfig, kubeconfig.encode())
    if options.ready_file is not None:
        write_private(options.ready_file, f"{url}\n".encode())
    nodes = f"{options.nodes} nodes" if options.nodes != 1 else "1 node"
    devices = f" with devices of {', '.join(options.drivers)}" if options.drivers and options.nodes else ""
    click.echo(f"cluster is up: {url}, {nodes}{devices}")
    click.echo(f"dashboard:     {dashboard}")
    click.echo("")
    click.echo(f"  export KUBECONFIG={options.kubeconfig}")
    click.echo("  kubectl get nodes,resourceslices")
    if options.nodes == 0:
        click.echo(f"  {_program()} kubelet --node-name my-node --root-dir ./my-node")
    else:
        click.echo(f"  {_program()} devices")
    click.echo("")
    click.echo(
        "Ctrl-C ends it."
        if options.data.name.startswith("dray-")
        else f"Ctrl-C ends it; its state stays in {options.data}."
    )


def _program() -> str:
    return "kubectl dray" if os.path.basename(sys.argv[0]) == "kubectl-dray" else "dray"
