"""`dray scheduler`: pods to nodes, against any API server."""

from __future__ import annotations

import contextlib
import logging
import socket
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import click

from dray import __version__
from dray.cli.event_loop import fast_runner, spare_the_collector, until_signalled
from dray.cli.gates import gate_options, gates_from
from dray.cli.main import BrokenWorld
from dray.client import (
    Client,
    Connection,
    KubeconfigError,
    LeaderElector,
    LeadershipLost,
    LeaseTiming,
    load_connection,
)
from dray.features import FeatureGates
from dray.scheduler.config import ConfigError, LeaderElectionConfig, SchedulerConfig, load
from dray.scheduler.policies import POLICIES, with_policy
from dray.scheduler.service import SchedulerService
from dray.telemetry import set_up_logging

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    connection: Connection
    config: SchedulerConfig
    gates: FeatureGates
    address: tuple[str, int]


@click.command("scheduler", epilog="Example: dray scheduler --kubeconfig admin.conf --config scheduler.yaml")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config, the pod's own."
)
@click.option("--context", default="", help="Context of the kubeconfig; default: its current one.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="KubeSchedulerConfiguration."
)
@click.option("--policy", type=click.Choice(sorted(POLICIES)), help="Pack devices instead of spreading pods.")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Overrides the configuration file.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For /healthz and /metrics.")
@click.option("--secure-port", default=10259, show_default=True, help="0 serves neither health nor metrics.")
@gate_options
@click.option("-v", "--verbosity", default=0, help="4 and more shows decisions.")
def scheduler(
    kubeconfig: str | None,
    context: str,
    config: Path | None,
    policy: str | None,
    leader_elect: bool | None,
    bind_address: str,
    secure_port: int,
    feature_gates: str,
    emulate: str | None,
    verbosity: int,
) -> None:
    """Find a node, and devices, for every pod that waits."""
    set_up_logging(verbosity)
    gates = gates_from(feature_gates, emulate)
    chosen = _config(config, gates, policy, leader_elect)
    try:
        connection = load_connection(kubeconfig, context)
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from None
    settings = Settings(connection, chosen, gates, (bind_address, secure_port))
    while True:
        try:
            with fast_runner() as runner:
                runner.run(_run(settings))
            return
        except LeadershipLost as error:
            # The API server was away for long, or somebody else leads: begin anew, and wait for the lease.
            log.warning("%s; standing for election again", error)
        except KubeconfigError as error:
            raise BrokenWorld(str(error)) from None


def _config(path: Path | None, gates: FeatureGates, policy: str | None, leader_elect: bool | None) -> SchedulerConfig:
    try:
        config = load(path, gates) if path is not None else SchedulerConfig()
    except ConfigError as error:
        raise click.UsageError(f"{path}: {error}") from None
    if leader_elect is not None:
        config = replace(config, leader_election=replace(config.leader_election, leader_elect=leader_elect))
    return with_policy(config, policy) if policy else config


async def _run(settings: Settings) -> None:
    from dray.client.https import HttpsTransport

    client = Client(HttpsTransport(settings.connection), user_agent=f"dray-scheduler/{__version__}")
    try:
        try:
            service = SchedulerService(client, config=settings.config, gates=settings.gates)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        spare_the_collector()
        async with contextlib.AsyncExitStack() as stack:
            await _serve(stack, settings.address, service)
            await until_signalled(_lead(client, settings.config.leader_election, service))
    finally:
        await client.close()


async def _serve(stack: contextlib.AsyncExitStack, address: tuple[str, int], service: SchedulerService) -> None:
    host, port = address
    if not port:
        return
    from dray.cli.health_server import health_server

    try:
        checks = {"ping": lambda: True}
        await stack.enter_async_context(health_server(host, port, service.metrics.registry, checks))
    except OSError as error:
        raise BrokenWorld(f"cannot serve health on {host}:{port}: {error}") from None


async def _lead(client: Client, election: LeaderElectionConfig, service: SchedulerService) -> None:
    if not election.leader_elect:
        await service.run()
        return
    timing = LeaseTiming(election.lease_duration_s, election.renew_deadline_s, election.retry_period_s)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    elector = LeaderElector(
        client.named("leader-election"), election.name, identity, namespace=election.namespace, timing=timing
    )
    await elector.run(service.run)
