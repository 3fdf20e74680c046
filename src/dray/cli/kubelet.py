"""`dray kubelet`: the node agent of one node."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dray.cli.main import BrokenWorld
from dray.cli.options import gate_options, gates_from, verbosity_option
from dray.signals import stop_signal
from dray.tasks import cancelled

if TYPE_CHECKING:
    from dray.api.quantity import Quantity
    from dray.clock import Clock
    from dray.kubelet.eviction import Threshold
    from dray.kubelet.runtime.interface import Runtime
    from dray.kubelet.runtime.process import LogLimits
    from dray.kubelet.server import KubeletOptions


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
    from dray.kubelet.node import NodeDescription, declared_features
    from dray.kubelet.server import KubeletOptions
    from dray.telemetry import set_up_logging

    set_up_logging(verbosity)
    gates = gates_from(feature_gates, emulate)
    description = NodeDescription(
        node_name,
        _amounts(capacity),
        _pairs("--node-label", labels),
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
        eviction=_threshold(eviction_hard),
    )
    log_limits = _log_limits(container_log_max_size, container_log_max_files)
    _run(kubeconfig, context, options, lambda clock: _runtime(runtime, root_dir, clock, isolation, log_limits))


def _run(
    kubeconfig: str | None, context: str, options: "KubeletOptions", make_runtime: "Callable[[Clock], Runtime]"
) -> None:
    from dray.client import KubeconfigError

    try:
        asyncio.run(_serve(kubeconfig, context, options, make_runtime))
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from error


async def _serve(
    kubeconfig: str | None, context: str, options: "KubeletOptions", make_runtime: "Callable[[Clock], Runtime]"
) -> None:
    """Until a signal ends it. Containers run on, and are found by the next agent."""
    from dray.client import connect, load_connection
    from dray.kubelet.server import Kubelet

    stopping = stop_signal()
    client = connect(kubeconfig, context=context, component="kubelet")
    ca = load_connection(kubeconfig, context).ca or b""
    agent = Kubelet(client, replace(options, cluster_ca=ca), make_runtime(client.clock))
    starting = asyncio.create_task(agent.start())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        click.echo(f"node {options.node.name} is ready", err=True)
        await stopped
    await cancelled(starting)
    await agent.stop()
    await client.close()


# --- what the options say


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{option} {text}: must be NAME=VALUE")
        found[name] = value
    return found


def _amounts(capacity: tuple[str, ...]) -> "dict[str, Quantity]":
    """Those of the machine, where --capacity does not say others."""
    from dray.api.quantity import Quantity, QuantityError
    from dray.kubelet.node import machine_capacity

    amounts = machine_capacity()
    for name, text in _pairs("--capacity", capacity).items():
        try:
            amounts[name] = Quantity.parse(text)
        except QuantityError as error:
            raise click.UsageError(f"--capacity {name}={text}: {error}") from error
    return amounts


def _threshold(eviction_hard: str) -> "Threshold | None":
    from dray.kubelet.eviction import Threshold, ThresholdError

    try:
        return Threshold.parse(eviction_hard) if eviction_hard else None
    except ThresholdError as error:
        raise click.UsageError(f"--eviction-hard {error}") from error


def _log_limits(size: str, files: int) -> "LogLimits":
    from dray.api.quantity import Quantity
    from dray.kubelet.runtime.process import LogLimits

    try:
        return LogLimits(Quantity.parse(size).value(), files)
    except ValueError as error:
        raise click.UsageError(f"--container-log-max-size {size}: {error}") from error


def _runtime(name: str, root_dir: Path, clock: "Clock", isolation: str, log_limits: "LogLimits") -> "Runtime":
    from dray.kubelet.runtime.choice import UnknownRuntime, make_runtime

    try:
        return make_runtime(name, root_dir, clock, isolation, log_limits)
    except UnknownRuntime as error:
        raise click.UsageError(str(error)) from None
