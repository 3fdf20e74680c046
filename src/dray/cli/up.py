"""`dray up`: a whole cluster on one machine."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from dray.cli.detaching import DetachedChild, fork_detached
from dray.cli.main import BrokenWorld
from dray.cli.options import Serving, serving_options, verbosity_option
from dray.cli.output import ProgressLine
from dray.clock import RealClock
from dray.event_loop import (
    YOUNG_OF_A_SERVER,
    give_memory_back,
    raise_file_limit,
    run_loop,
    spare_the_collector,
)
from dray.signals import stop_signal
from dray.tasks import cancelled

if TYPE_CHECKING:
    from dray.kubeconfig_file import ClusterEntry
    from dray.sim.loops_process import LoopsProcess
    from dray.sim.node_pools import NodePool
    from dray.sim.nodes import Nodes
    from dray.sim.running_clusters import ClusterRecord, Reservation, RunningClusters

DEFAULT_DRIVERS = "gpu,cpu,nic"


@dataclass(frozen=True, slots=True)
class UpOptions:
    serving: Serving
    pools: "tuple[NodePool, ...]"
    data: Path
    kubeconfig: Path
    reservation: "Reservation"
    log: Path | None = None
    on_ready: Callable[[str], None] = click.echo
    processes: int | None = None
    verbosity: int = 0

    @property
    def nodes(self) -> int:
        return sum(pool.count for pool in self.pools)

    @property
    def drivers(self) -> list[str]:
        """Those that come with Dray by their short names, those of slices by their own."""
        pools = [pool for pool in self.pools if pool.count]
        return list(dict.fromkeys(name for pool in pools for name in pool.driver_names()))


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
    "--node-pools",
    "node_pools",
    metavar="FILE",
    help="Nodes of several kinds instead, each with capacity, labels, taints, devices and slices of its own; see docs/testing.md.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 2),
    help="For debugging: 1 keeps controllers and scheduler in the server's process, 2 gives them one of their own. "
    "By default they have one where there are two cores, unless the cluster has 1 to 10 nodes.",
)
@click.option("--name", help="Of the cluster and its context: lab is dray-lab. [default: dray, dray-2, ...]")
@click.option("--detach", is_flag=True, help="Return once it is ready; dray list shows it, dray down ends it.")
@serving_options(listen="127.0.0.1:0")
@verbosity_option
@click.pass_context
def up(
    context: click.Context,
    serving: Serving,
    nodes: int,
    devices: str,
    node_pools: str | None,
    processes: int | None,
    name: str | None,
    detach: bool,
    verbosity: int,
) -> None:
    """Start a cluster: API server, controllers, scheduler, nodes and drivers, on this machine.

    It is a Kubernetes to kubectl and to every client. Without --kubeconfig the administrator's is written into the data
    directory. In a file that holds other clusters, one context is added and made current; at the end it is taken out again.
    Ctrl-C, SIGTERM or dray down ends it.
    """
    from dray.sim.running_clusters import RunningClusters
    from dray.store.errors import StoreError
    from dray.telemetry import set_up_logging

    set_up_logging(verbosity)
    if not verbosity:
        logging.getLogger("dray").setLevel(logging.WARNING)
    given = {context.get_parameter_source(name) for name in ("nodes", "devices")}
    if node_pools is not None and click.core.ParameterSource.COMMANDLINE in given:
        raise click.UsageError("--nodes and --devices say the same as --node-pools; give one or the other")
    pools = _chosen_pools(nodes, devices, node_pools)
    running = RunningClusters.of_user()
    with _reserved(running, name) as reservation:
        serving.check_kubeconfig(reservation.name)
        on_ready: Callable[[str], None] = click.echo
        log = running.log_of(reservation.name) if detach else None
        if log is not None:
            child = fork_detached(log)
            if isinstance(child, DetachedChild):
                reservation.leave_to_child()
                child.wait_until_ready()
                return
            on_ready = child
        with serving.data_directory() as directory:
            kubeconfig = (serving.kubeconfig or directory / "kubeconfig").absolute()
            options = UpOptions(serving, pools, directory, kubeconfig, reservation, log, on_ready, processes, verbosity)
            spare_the_collector(YOUNG_OF_A_SERVER)
            raise_file_limit()
            try:
                run_loop(_serve(options))
            except (StoreError, OSError) as error:
                raise BrokenWorld(str(error)) from None


def _chosen_pools(nodes: int, devices: str, file: str | None) -> "tuple[NodePool, ...]":
    from dray.sim.node_pools import NodePool, NodePoolError, known_drivers, read_node_pools

    try:
        if file is not None:
            return read_node_pools(Path(file))
        names = known_drivers([name for name in devices.split(",") if name and name != "none"])
    except NodePoolError as error:
        raise click.UsageError(str(error)) from None
    return (NodePool(count=nodes, devices=names),)


@contextlib.contextmanager
def _reserved(running: "RunningClusters", name: str | None) -> "Iterator[Reservation]":
    from dray.sim.running_clusters import ClusterNameError

    try:
        with running.reserve(name) as reservation:
            yield reservation
    except ClusterNameError as error:
        raise click.UsageError(str(error)) from None


async def _serve(options: UpOptions) -> None:
    from dray.dashboard import PREFIX, Dashboard, dashboard_url, new_token
    from dray.kubeconfig_file import ClusterEntry
    from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
    from dray.sim.loops_process import LoopsProcess, processes_for
    from dray.sim.nodes import make_nodes
    from dray.sim.pod_explanation import explain_live_pods

    stopping = stop_signal()
    serving = options.serving
    record = _record(options)
    options.reservation.write(record)
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
    give_memory_back()
    if loops:
        loops.connect()
    token = new_token()
    dashboard = Dashboard(
        plane.client("dray-dashboard"), token, explain=explain_live_pods, gates=serving.gates, title="dray up"
    )
    plane.running.mount(PREFIX, dashboard)
    try:
        url = await plane.listen(serving.host, serving.port)
    except OSError as error:
        raise serving.cannot_listen(error) from None
    ca = plane.running.credentials.authority.certificate_pem
    # Sockets have short names, and so must their directory; it is gone with the process.
    with tempfile.TemporaryDirectory(prefix="dray-n", ignore_cleanup_errors=True) as root:
        nodes = make_nodes(plane.client("dray-up"), options.pools, Path(root), serving.gates, ca)
        starting = asyncio.create_task(_start(nodes, options.nodes, loops))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            plane.running.server.metrics.of_others |= {part: each.text for part, each in nodes.registries.items()}
            entry = ClusterEntry.of(options.reservation.name, plane.kubeconfig())
            try:
                await _announce(options, record, url, entry, dashboard_url(url, token))
                await stopped
            finally:
                await _take_out_of_kubeconfig(options.kubeconfig, entry)
        await cancelled(starting)
        await dashboard.stop()
        await nodes.stop()
        if loops:
            await loops.stop()
        await plane.stop()


async def _start(nodes: "Nodes", count: int, loops: "LoopsProcess | None") -> None:
    with ProgressLine("starting", unit="nodes") as progress:
        await nodes.start(lambda done: progress.at(done, count))
    give_memory_back()
    if loops:
        await loops.ready()


def _record(options: UpOptions) -> "ClusterRecord":
    from dray.sim.running_clusters import ClusterRecord

    return ClusterRecord(
        name=options.reservation.name,
        process=os.getpid(),
        started=f"{RealClock().now():%Y-%m-%dT%H:%M:%SZ}",
        nodes=options.nodes,
        kubeconfig=str(options.kubeconfig),
        data=str(options.data) if options.serving.data else "",
        log=str(options.log or ""),
    )


async def _announce(
    options: UpOptions, record: "ClusterRecord", url: str, entry: "ClusterEntry", dashboard: str
) -> None:
    await asyncio.to_thread(options.serving.write_kubeconfig, options.kubeconfig, entry)
    options.reservation.write(replace(record, url=url, dashboard=dashboard, cluster=entry.cluster))
    options.serving.write_url(url)
    options.on_ready(_announcement(options, url, entry.name, dashboard))


async def _take_out_of_kubeconfig(path: Path, entry: "ClusterEntry") -> None:
    from dray.kubeconfig_file import KubeconfigError, remove_cluster

    try:
        await asyncio.to_thread(remove_cluster, path, entry)
    except (KubeconfigError, OSError) as error:
        click.echo(f"the cluster is still in {path}: {error}", err=True)


def _announcement(options: UpOptions, url: str, name: str, dashboard: str) -> str:
    nodes = f"{options.nodes} nodes" if options.nodes != 1 else "1 node"
    devices = f" with devices of {', '.join(options.drivers)}" if options.drivers and options.nodes else ""
    look = "devices" if options.nodes else "kubelet --node-name my-node --root-dir ./my-node"
    end = "Ctrl-C ends it" if options.log is None else f"{_program()} down {name} ends it"
    kept = "" if options.serving.data is None else f"; its state stays in {options.data}"
    return "\n".join(
        (
            f"cluster is up: {url}, {nodes}{devices}",
            f"dashboard:     {dashboard}",
            *([f"log:           {options.log}"] if options.log else []),
            "",
            f"  export KUBECONFIG={options.kubeconfig}",
            "  kubectl get nodes,resourceslices",
            f"  {_program()} {look}",
            "",
            f"{end}{kept}.",
        )
    )


def _program() -> str:
    return "kubectl dray" if os.path.basename(sys.argv[0]) == "kubectl-dray" else "dray"
