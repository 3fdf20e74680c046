"""`dray kubelet`: the node agent of one node."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli.main import BrokenWorld
from dray.cli.options import gate_options, gates_from, verbosity_option
from dray.signals import stop_signal
from dray.tasks import cancelled

if TYPE_CHECKING:
    from dray.clock import Clock
    from dray.kubelet.runtime.interface import Runtime
    from dray.kubelet.runtime.isolation import Isolation
    from dray.kubelet.runtime.process import LogLimits

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(), help="How to reach the API server; default: $KUBECONFIG or in-cluster."
)
@click.option("--context", default="", help="Context of the kubeconfig; default: its current one.")
@click.option("--node-name", required=True, help="The Node this agent is.")
@click.option(
    "--root-dir",
    # Containers have working directories of their own: what they are told must not be relative.
    type=click.Path(path_type=Path, resolve_path=True),
    default=Path("/var/lib/kubelet"),
    show_default=True,
)
@click.option("--runtime", default="process", show_default=True, metavar="process|none|cri://SOCKET")
@click.option(
    "--isolation",
    type=click.Choice(["auto", "none"]),
    default="auto",
    show_default=True,
    help="Of the process runtime: pods as users of their own in namespaces, where this machine can; or as the agent's user.",
)
@click.option(
    "--cdi-dir",
    "cdi_dirs",
    type=click.Path(path_type=Path, resolve_path=True),
    multiple=True,
    help="Where CDI files are; later ones win. [default: /etc/cdi, /var/run/cdi]",
)
@click.option(
    "--capacity", "capacity", multiple=True, metavar="NAME=QUANTITY", help="Instead of the machine's own, e.g. cpu=8."
)
@click.option("--node-label", "labels", multiple=True, metavar="KEY=VALUE")
@gate_options
@click.option(
    "--enforcement",
    type=click.Choice(["kep", "kubernetes"]),
    default="kep",
    show_default=True,
    help="Whether a claim's cpu counts for QoS and cgroups.",
)
@click.option(
    "--eviction-hard",
    default="memory.available<100Mi",
    show_default=True,
    metavar="memory.available<AMOUNT",
    help="Pods are driven out while less is left; also a part of the capacity, such as 5%. Empty never drives pods out.",
)
@click.option(
    "--container-log-max-size",
    default="10Mi",
    show_default=True,
    help="Of the process runtime: a container's log goes on in another file when it has this size; -1 for no limit.",
)
@click.option(
    "--container-log-max-files",
    default=5,
    show_default=True,
    type=click.IntRange(2),
    help="Of the process runtime: so many files of a container's log are kept.",
)
@click.option(
    "--healthz-port",
    default=10248,
    show_default=True,
    type=click.IntRange(-1, 65535),
    help="Metrics and health on 127.0.0.1; 0 takes a free port, -1 serves none.",
)
@verbosity_option
def kubelet(
    kubeconfig: str | None,
    context: str,
    node_name: str,
    root_dir: Path,
    runtime: str,
    isolation: str,
    cdi_dirs: tuple[Path, ...],
    capacity: tuple[str, ...],
    labels: tuple[str, ...],
    feature_gates: str,
    emulate: str | None,
    enforcement: str,
    eviction_hard: str,
    container_log_max_size: str,
    container_log_max_files: int,
    healthz_port: int,
    verbosity: int,
) -> None:
    """Run the node agent: register the node, find drivers, run its pods.

    Example: dray kubelet --kubeconfig admin.kubeconfig --node-name worker-1 --root-dir ./worker-1
    """
    from dray.accounting import Enforcement
    from dray.api.quantity import Quantity, QuantityError
    from dray.client import KubeconfigError, connect, load_connection
    from dray.kubelet.eviction import Threshold, ThresholdError
    from dray.kubelet.node import NodeDescription, declared_features, machine_capacity
    from dray.kubelet.runtime.process import LogLimits
    from dray.kubelet.server import Kubelet, KubeletOptions
    from dray.telemetry import set_up_logging

    set_up_logging(verbosity)
    try:
        amounts = machine_capacity() | {name: Quantity.parse(text) for name, text in map(_pair, capacity)}
    except QuantityError as error:
        raise click.UsageError(str(error)) from error
    try:
        eviction = Threshold.parse(eviction_hard) if eviction_hard else None
    except ThresholdError as error:
        raise click.UsageError(f"--eviction-hard {error}") from error
    gates = gates_from(feature_gates, emulate)
    try:
        log_limits = LogLimits(Quantity.parse(container_log_max_size).value(), container_log_max_files)
    except ValueError as error:
        raise click.UsageError(f"--container-log-max-size {container_log_max_size}: {error}") from error
    description = NodeDescription(
        node_name,
        amounts,
        dict(map(_pair, labels)),
        runtime=runtime.partition(":")[0],
        declared_features=declared_features(gates),
    )
    options = KubeletOptions(
        description,
        root_dir,
        cdi_dirs or (Path("/etc/cdi"), Path("/var/run/cdi")),
        gates,
        Enforcement[enforcement.upper()],
        healthz_port=None if healthz_port < 0 else healthz_port,
        eviction=eviction,
    )

    async def serve() -> None:
        stopping = stop_signal()
        client = connect(kubeconfig, context=context, component="kubelet")
        ca = load_connection(kubeconfig, context).ca or b""
        running = _runtime(runtime, root_dir, client.clock, isolation, log_limits)
        agent = Kubelet(client, replace(options, cluster_ca=ca), running)
        starting = asyncio.create_task(agent.start())
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            click.echo(f"node {node_name} is ready", err=True)
            await stopped
        await cancelled(starting)
        await agent.stop()
        await client.close()

    try:
        asyncio.run(serve())
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"{text!r}: must be NAME=VALUE")
    return name, value


def _runtime(name: str, root_dir: Path, clock: "Clock", isolation: str, log_limits: "LogLimits") -> "Runtime":
    from dray.kubelet.runtime.cgroup import CgroupTree, open_cpusets
    from dray.kubelet.runtime.cri import CriRuntime
    from dray.kubelet.runtime.none import NoRuntime
    from dray.kubelet.runtime.process import ProcessRuntime

    if name == "process":
        cgroups = CgroupTree.open("dray")
        cpusets = open_cpusets("dray", cgroups)
        return ProcessRuntime(root_dir, clock, cgroups, _isolation(isolation), cpusets, log_limits)
    if name == "none":
        return NoRuntime(clock)
    if name.startswith("cri://"):
        return CriRuntime(name.removeprefix("cri://"), root_dir / "logs", CgroupTree.open("dray"))
    raise click.UsageError(f"--runtime {name}: must be process, none or cri://SOCKET")


def _isolation(chosen: str) -> "Isolation | None":
    from dray.kubelet.runtime.isolation import available_isolation

    if chosen == "none":
        return None
    found = available_isolation()
    if isinstance(found, str):
        log.warning("containers run as the agent's user, without namespaces: %s", found)
        return None
    return found
