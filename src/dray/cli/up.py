"""`dray up`: a whole cluster on one machine."""

import asyncio
import logging
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli.main import BrokenWorld
from dray.cli.options import Serving, serving_options, verbosity_option
from dray.cli.output import ProgressLine
from dray.event_loop import (
    YOUNG_OF_A_SERVER,
    raise_file_limit,
    run_loop,
    spare_the_collector,
)
from dray.signals import stop_signal
from dray.tasks import cancelled

if TYPE_CHECKING:
    from dray.sim.loops_process import LoopsProcess
    from dray.sim.nodes import RealNodes, SimulatedNodes

DEFAULT_DRIVERS = "gpu,cpu,nic"


@dataclass(frozen=True, slots=True)
class UpOptions:
    serving: Serving
    nodes: int
    drivers: tuple[str, ...]
    data: Path
    kubeconfig: Path
    processes: int | None = None
    verbosity: int = 0


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
    "--processes",
    type=click.IntRange(1, 2),
    help="For debugging: 1 keeps controllers and scheduler in the server's process, 2 gives them one of their own. "
    "By default they have one where there are two cores, unless the cluster has 1 to 10 nodes.",
)
@serving_options(listen="127.0.0.1:0")
@verbosity_option
def up(serving: Serving, nodes: int, devices: str, processes: int | None, verbosity: int) -> None:
    """Start a cluster: API server, controllers, scheduler, nodes and drivers, on this machine.

    It is a Kubernetes to kubectl and to every client. Without --kubeconfig the administrator's is written into the data
    directory. Ctrl-C or SIGTERM ends it.
    """
    from dray.sim.nodes import known_drivers
    from dray.store.errors import StoreError
    from dray.telemetry import set_up_logging

    set_up_logging(verbosity)
    if not verbosity:
        logging.getLogger("dray").setLevel(logging.WARNING)
    try:
        drivers = known_drivers([name for name in devices.split(",") if name and name != "none"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    serving.check_kubeconfig()
    with serving.data_directory() as directory:
        kubeconfig = serving.kubeconfig or directory / "kubeconfig"
        options = UpOptions(serving, nodes, drivers, directory, kubeconfig, processes, verbosity)
        spare_the_collector(YOUNG_OF_A_SERVER)
        raise_file_limit()
        try:
            run_loop(_serve(options))
        except (StoreError, OSError) as error:
            raise BrokenWorld(str(error)) from None


async def _serve(options: UpOptions) -> None:
    from dray.dashboard import PREFIX, Dashboard, dashboard_url, new_token
    from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
    from dray.sim.loops_process import LoopsProcess, processes_for
    from dray.sim.nodes import NodesOptions, make_nodes
    from dray.sim.pod_explanation import explain_live_pod

    stopping = stop_signal()
    serving = options.serving
    apart = (options.processes or processes_for(options.nodes)) > 1
    plane = ControlPlane(
        ControlPlaneOptions(
            options.data,
            serving.store,
            serving.gates,
            serving.runtime_config,
            serving.minor,
            hosts=serving.hosts,
            emulates=serving.emulates,
            loops_apart=apart,
        )
    )
    loops = LoopsProcess(plane, options.verbosity) if apart else None
    if loops:
        loops.start()
    await plane.start()
    if loops:
        loops.connect()
    token = new_token()
    dashboard = Dashboard(
        plane.client("dray-dashboard"), token, explain=explain_live_pod, gates=serving.gates, title="dray up"
    )
    plane.running.mount(PREFIX, dashboard)
    try:
        url = await plane.listen(serving.host, serving.port)
    except OSError as error:
        raise serving.cannot_listen(error) from None
    ca = plane.running.credentials.authority.certificate_pem
    # Sockets have short names, and so must their directory; it is gone with the process.
    with tempfile.TemporaryDirectory(prefix="dray-n", ignore_cleanup_errors=True) as root:
        chosen = NodesOptions(options.nodes, options.drivers, Path(root), serving.gates, cluster_ca=ca)
        nodes = make_nodes(plane.client("dray-up"), chosen)
        starting = asyncio.create_task(_start(nodes, options.nodes, loops))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            plane.running.server.metrics.of_others |= {part: each.text for part, each in nodes.registries.items()}
            _announce(options, url, plane.kubeconfig(), dashboard_url(url, token))
            await stopped
        await cancelled(starting)
        await dashboard.stop()
        await nodes.stop()
        if loops:
            await loops.stop()
        await plane.stop()


async def _start(nodes: "RealNodes | SimulatedNodes", count: int, loops: "LoopsProcess | None") -> None:
    with ProgressLine("starting", unit="nodes") as progress:
        await nodes.start(lambda done: progress.at(done, count))
    if loops:
        await loops.ready()


def _announce(options: UpOptions, url: str, kubeconfig: str, dashboard: str) -> None:
    options.serving.write_kubeconfig(options.kubeconfig, kubeconfig)
    options.serving.write_url(url)
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
        "Ctrl-C ends it." if options.serving.data is None else f"Ctrl-C ends it; its state stays in {options.data}."
    )


def _program() -> str:
    return "kubectl dray" if os.path.basename(sys.argv[0]) == "kubectl-dray" else "dray"
