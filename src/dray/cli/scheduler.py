"""`dray scheduler`: pods to nodes, against any API server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from dray.cli.cluster_source import read_dump
from dray.cli.component import Component, component_options, lead, run_as_leader
from dray.client import Client, LeaseTiming
from dray.event_loop import (
    spare_the_collector,
    until_signalled,
)
from dray.features import FeatureGates
from dray.scheduler.config import POLICIES, ConfigError, LeaderElectionConfig, SchedulerConfig, load, with_policy
from dray.scheduler.service import SchedulerService
from dray.sim.admitted_pods import pods_with_claims


@click.command("scheduler", epilog="Example: dray scheduler --kubeconfig admin.conf --config scheduler.yaml")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="KubeSchedulerConfiguration."
)
@click.option("--policy", type=click.Choice(sorted(POLICIES)), help="Pack devices instead of spreading pods.")
@click.option(
    "--mix",
    "mix_files",
    multiple=True,
    metavar="FILE|DIR",
    help="Dump with pods to expect; the policy counts them, and those that enter the queue.",
)
@click.option("--leader-elect/--no-leader-elect", default=None, help="Overrides the configuration file.")
@component_options(secure_port=10259)
def scheduler(
    component: Component,
    config: Path | None,
    policy: str | None,
    mix_files: tuple[str, ...],
    leader_elect: bool | None,
) -> None:
    """Find a node, and devices, for every pod that waits."""
    chosen = _config(config, component.gates, leader_elect)
    if mix_files and not policy:
        raise click.UsageError("--mix needs --policy")
    if policy:
        mix = pods_with_claims(read_dump(mix_files).world(), component.gates) if mix_files else ()
        chosen = with_policy(chosen, policy, mix)
    run_as_leader(lambda: _run(component, chosen))


def _config(path: Path | None, gates: FeatureGates, leader_elect: bool | None) -> SchedulerConfig:
    try:
        config = load(path, gates) if path is not None else SchedulerConfig()
    except ConfigError as error:
        raise click.UsageError(f"{path}: {error}") from None
    if leader_elect is not None:
        config = replace(config, leader_election=replace(config.leader_election, leader_elect=leader_elect))
    return config


async def _run(component: Component, config: SchedulerConfig) -> None:
    client = component.client("dray-scheduler")
    try:
        try:
            service = SchedulerService(client, config=config, gates=component.gates)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        spare_the_collector()
        async with component.health(service.metrics.registry, {"ping": lambda: True}):
            await until_signalled(_lead(client, config.leader_election, service))
    finally:
        await client.close()


async def _lead(client: Client, election: LeaderElectionConfig, service: SchedulerService) -> None:
    if not election.leader_elect:
        await service.run()
        return
    timing = LeaseTiming(election.lease_duration_s, election.renew_deadline_s, election.retry_period_s)
    await lead(client, election.name, timing, service.run, election.namespace)
