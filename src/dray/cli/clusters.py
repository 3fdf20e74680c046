"""`dray list` and `dray down`: the clusters of `dray up` on this machine."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from dray.cli.main import EXIT_NO, BrokenWorld
from dray.cli.options import output_option
from dray.cli.output import show_line, write_document
from dray.explain.text_columns import columns
from dray.sim.running_clusters import ClusterNameError, ListedCluster, RunningClusters, cluster_name


@click.command("list", epilog="Example: dray list -o wide")
@output_option("wide adds process, dashboard, data and log.")
def list_clusters(output: str) -> None:
    """The clusters that dray up runs on this machine, for this user."""
    found = RunningClusters.of_user().list()
    if output in ("json", "yaml"):
        write_document({"clusters": [_document(each) for each in found]}, output)
        return
    if not found:
        click.echo("no cluster is running; dray up starts one")
        return
    click.echo(_table(found, is_wide=output == "wide"))


@click.command(epilog="Example: dray down lab")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="Every cluster that dray list shows.")
def down(names: tuple[str, ...], every: bool) -> None:
    """End clusters of dray up, by default the only one, and wait until they have ended.

    Their contexts are taken out of the kubeconfig. What was kept with --data stays.
    """
    running = RunningClusters.of_user()
    if every and names:
        raise click.UsageError("--all ends every cluster; leave out the names")
    try:
        chosen = [each.record.name for each in running.list()] if every else _chosen(running, names)
        for name in chosen:
            running.end(name)
            show_line(f"{name} has ended")
    except ClusterNameError as error:
        raise click.ClickException(str(error)) from None
    except (TimeoutError, PermissionError) as error:
        raise BrokenWorld(str(error)) from None


def _chosen(running: RunningClusters, names: tuple[str, ...]) -> list[str]:
    if names:
        return [cluster_name(name) for name in names]
    found = [each.record.name for each in running.list()]
    if len(found) > 1:
        raise click.UsageError(f"which one? {', '.join(found)}, or --all")
    if not found:
        click.echo("no cluster is running", err=True)
        sys.exit(EXIT_NO)
    return found


def _table(found: list[ListedCluster], *, is_wide: bool) -> str:
    now = datetime.now(UTC)
    head = ["NAME", "STATE", "NODES", "AGE", "SERVER", "KUBECONFIG"]
    rows = []
    for each in found:
        record = each.record
        row = [record.name, each.state, str(record.nodes), _age(record.started, now), record.url, record.kubeconfig]
        more = [str(record.process), record.dashboard, record.data, record.log]
        rows.append(row + more if is_wide else row)
    return columns([*head, "PROCESS", "DASHBOARD", "DATA", "LOG"] if is_wide else head, rows)


def _age(started: str, now: datetime) -> str:
    seconds = int((now - datetime.fromisoformat(started)).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _document(each: ListedCluster) -> dict[str, object]:
    record = each.record
    return {
        "name": record.name,
        "context": record.name,
        "state": each.state,
        "nodes": record.nodes,
        "started": record.started,
        "server": record.url,
        "dashboard": record.dashboard,
        "kubeconfig": record.kubeconfig,
        "data": record.data,
        "log": record.log,
        "process": record.process,
    }
