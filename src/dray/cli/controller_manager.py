"""`dray controller-manager`: the control loops, against any API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import uuid
from pathlib import Path

import click

from dray import __version__
from dray.cli.event_loop import until_signalled
from dray.cli.gates import gate_options, gates_from
from dray.cli.main import BrokenWorld
from dray.client import (
    Client,
    Connection,
    Informers,
    KubeconfigError,
    LeaderElector,
    LeadershipLost,
    LeaseTiming,
    load_connection,
)
from dray.controllers.context import Context
from dray.controllers.roster import BUILDERS, Choices, Roster
from dray.features import FeatureGates
from dray.telemetry import Registry, set_up_logging

LEASE = "kube-controller-manager"

log = logging.getLogger(__name__)


@click.command("controller-manager", epilog="Example: dray controller-manager --kubeconfig admin.conf")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Default: $KUBECONFIG, ~/.kube/config, the pod's own."
)
@click.option("--context", default="", help="Context of the kubeconfig; default: its current one.")
@click.option("--controllers", default="*", show_default=True, help="Comma-separated: *, NAME, -NAME.")
@click.option(
    "--concurrent-resourceclaim-syncs", default=50, show_default=True, help="Claims and pods worked on at once."
)
@click.option("--terminated-pod-gc-threshold", default=12500, show_default=True, help="Finished pods that may stay.")
@click.option(
    "--quota-counts-claims", is_flag=True, help="Cpu and memory of claims count in quotas, as the server's flag."
)
@click.option("--root-ca-file", type=click.Path(exists=True, dir_okay=False), help="Default: the kubeconfig's CA.")
@click.option("--leader-elect/--no-leader-elect", default=True, help="Work only while holding the Lease.")
@click.option("--leader-elect-resource-name", default=LEASE, show_default=True, help="Name of the Lease.")
@click.option("--leader-elect-lease-duration", default=15.0, show_default=True, help="Seconds.")
@click.option("--leader-elect-renew-deadline", default=10.0, show_default=True, help="Seconds.")
@click.option("--leader-elect-retry-period", default=2.0, show_default=True, help="Seconds.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For /healthz and /metrics.")
@click.option("--secure-port", default=10257, show_default=True, help="0 serves neither health nor metrics.")
@gate_options
@click.option("-v", "--verbosity", default=0, help="4 and more shows decisions.")
def controller_manager(
    kubeconfig: str | None,
    context: str,
    controllers: str,
    concurrent_resourceclaim_syncs: int,
    terminated_pod_gc_threshold: int,
    quota_counts_claims: bool,
    root_ca_file: str | None,
    leader_elect: bool,
    leader_elect_resource_name: str,
    leader_elect_lease_duration: float,
    leader_elect_renew_deadline: float,
    leader_elect_retry_period: float,
    bind_address: str,
    secure_port: int,
    feature_gates: str,
    emulate: str | None,
    verbosity: int,
) -> None:
    """Run the controllers: claims, garbage, namespaces, evictions, workloads."""
    if concurrent_resourceclaim_syncs <= 0:
        raise click.UsageError(
            f"concurrent-resourceclaim-syncs must be larger than 0, got {concurrent_resourceclaim_syncs}"
        )
    set_up_logging(verbosity)
    gates = gates_from(feature_gates, emulate)
    try:
        connection = load_connection(kubeconfig, context)
    except KubeconfigError as error:
        raise BrokenWorld(str(error)) from None
    choices = Choices(
        controllers=_chosen(controllers),
        claim_workers=concurrent_resourceclaim_syncs,
        root_ca=_root_ca(root_ca_file, connection),
        terminated_pods=terminated_pod_gc_threshold,
        quota_counts_claims=quota_counts_claims,
    )
    timing = LeaseTiming(leader_elect_lease_duration, leader_elect_renew_deadline, leader_elect_retry_period)
    lease = (leader_elect_resource_name, timing) if leader_elect else None
    while True:
        try:
            asyncio.run(_Process(connection, choices, gates, lease, (bind_address, secure_port)).run())
            return
        except LeadershipLost as error:
            # The API server was away for long, or somebody else leads: begin anew, and wait for the lease.
            log.warning("%s; standing for election again", error)
        except KubeconfigError as error:
            raise BrokenWorld(str(error)) from None


class _Process:
    """One controller manager: health, lease, roster, and a clean end on SIGTERM."""

    def __init__(
        self,
        connection: Connection,
        choices: Choices,
        gates: FeatureGates,
        lease: tuple[str, LeaseTiming] | None,
        address: tuple[str, int],
    ) -> None:
        self._connection = connection
        self._choices = choices
        self._gates = gates
        self._lease = lease
        self._address = address
        self._registry = Registry()

    async def run(self) -> None:
        from dray.client.https import HttpsTransport

        client = Client(HttpsTransport(self._connection), user_agent=f"dray-controller-manager/{__version__}")
        # A resync twice a day, at another time in every process, finds what was ever missed.
        informers = Informers(client, resync_s=random.uniform(12 * 3600, 24 * 3600))
        roster = Roster(Context(client, informers, self._gates, self._registry), self._choices)
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._serve(stack, roster)
                await until_signalled(self._lead(client, roster))
        finally:
            await client.close()

    async def _serve(self, stack: contextlib.AsyncExitStack, roster: Roster) -> None:
        host, port = self._address
        if not port:
            return
        from dray.cli.health_server import health_server

        checks = {"ping": lambda: True, "informer-sync": lambda: self._lease is not None or roster.ready.is_set()}
        try:
            await stack.enter_async_context(health_server(host, port, self._registry, checks))
        except OSError as error:
            raise BrokenWorld(f"cannot serve health on {host}:{port}: {error}") from None

    async def _lead(self, client: Client, roster: Roster) -> None:
        if self._lease is None:
            await roster.run()
            return
        name, timing = self._lease
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        elector = LeaderElector(client.named("leader-election"), name, identity, timing=timing)
        await elector.run(roster.run)


def _chosen(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name != "*" and name.removeprefix("-") not in BUILDERS:
            raise click.UsageError(f'"{name}" is not in the list of known controllers: {", ".join(sorted(BUILDERS))}')
    return names


def _root_ca(path: str | None, connection: Connection) -> str:
    if path:
        return Path(path).read_text()
    return connection.ca.decode() if connection.ca else ""
