"""`dray devices`: what is published, taken and free, and by whom."""

from __future__ import annotations

import click

from dray.api.dra.device_use import IS_HELD
from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.name_completion import nodes_option
from dray.cli.options import output_option
from dray.cli.output import write_document
from dray.explain.device_table import NOT_HELD, DeviceTable, devices_text


@click.command()
@source_options
@nodes_option("Only devices of this node; may be repeated.")
@click.option(
    "--driver", "drivers", multiple=True, metavar="NAME", help="Only devices of this driver; may be repeated."
)
@click.option("--free", is_flag=True, help="Only devices that nobody holds.")
@click.option("--taken", is_flag=True, help="Only devices that somebody holds.")
@output_option("wide shows every device with attributes and taints.")
def devices(
    files: tuple[str, ...],
    live: LiveCluster,
    nodes: tuple[str, ...],
    drivers: tuple[str, ...],
    free: bool,
    taken: bool,
    output: str,
) -> None:
    """What is published: where it is, whether it is free, and which claims and pods hold it.

    Devices of a pool that nobody holds and that offer the same share a row.

    \b
    Examples:
      dray devices                         the cluster of your kubeconfig
      dray devices -f dump.yaml --free     free devices of a dump
      dray devices --node gpu-7 -o wide    one node, with attributes and taints
    """
    if free and taken:
        raise click.UsageError("--free and --taken exclude each other")
    table = DeviceTable(load_dump(files, live).world(), nodes, drivers)
    wanted = NOT_HELD if free else IS_HELD if taken else None
    if output in ("json", "yaml"):
        write_document({"devices": [row.document() for row in table.rows(wanted)], "summary": table.summary()}, output)
        return
    wide = output == "wide"
    rows = ((row, 0) for row in table.rows(wanted)) if wide else table.folded_rows(wanted)
    click.echo(devices_text(rows, wide=wide))
    click.echo(table.summary_text())
