"""`dray controller-manager`: the control loops, against any API server."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import click

from dray.cli.component import Component, component_options, lead, run_as_leader
from dray.client import Client, Connection, Informers, LeaseTiming
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import (
    BUILDERS,
    ControllerManager,
    ControllerOptions,
)
from dray.event_loop import until_signalled
from dray.telemetry import Registry

LEASE = "kube-controller-manager"


@click.command("controller-manager", epilog="Example: dray controller-manager --kubeconfig admin.conf")
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
@component_options(secure_port=10257)
def controller_manager(
    component: Component,
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
) -> None:
    """Run the controllers: claims, garbage, namespaces, evictions, workloads."""
    if concurrent_resourceclaim_syncs <= 0:
        raise click.UsageError(
            f"concurrent-resourceclaim-syncs must be larger than 0, got {concurrent_resourceclaim_syncs}"
        )
    choices = ControllerOptions(
        controllers=_chosen(controllers),
        claim_workers=concurrent_resourceclaim_syncs,
        root_ca=_root_ca(root_ca_file, component.connection),
        terminated_pods=terminated_pod_gc_threshold,
        quota_counts_claims=quota_counts_claims,
    )
    timing = LeaseTiming(leader_elect_lease_duration, leader_elect_renew_deadline, leader_elect_retry_period)
    lease = (leader_elect_resource_name, timing) if leader_elect else None
    run_as_leader(lambda: _Process(component, choices, lease).run())


@dataclass(frozen=True, slots=True)
class _Process:
    """One controller manager: health, lease, controllers, and a clean end on SIGTERM."""

    component: Component
    choices: ControllerOptions
    lease: tuple[str, LeaseTiming] | None
    registry: Registry = field(default_factory=Registry)

    async def run(self) -> None:
        client = self.component.client("dray-controller-manager")
        # A resync twice a day, at another time in every process, finds what was ever missed.
        informers = Informers(client, resync_s=random.uniform(12 * 3600, 24 * 3600))
        manager = ControllerManager(
            ControllerContext(client, informers, self.component.gates, self.registry), self.choices
        )
        checks = {"ping": lambda: True, "informer-sync": lambda: self.lease is not None or manager.ready.is_set()}
        try:
            async with self.component.health(self.registry, checks):
                await until_signalled(self._lead(client, manager))
        finally:
            await client.close()

    async def _lead(self, client: Client, manager: ControllerManager) -> None:
        if self.lease is None:
            await manager.run()
        else:
            await lead(client, *self.lease, manager.run)


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
