"""`dray devices`: what is published, taken and free, and by whom."""

from __future__ import annotations

import click

from dray.api.dra.device_use import IS_HELD
from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.name_completion import nodes_option
from dray.cli.options import output_option
from dray.cli.output import show_line, write_document
from dray.explain.cluster_objects import ClusterObjects
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
    world = load_dump(files, live).world()
    _check_names(world, nodes)
    table = DeviceTable(world, nodes, drivers)
    wanted = NOT_HELD if free else IS_HELD if taken else None
    if output in ("json", "yaml"):
        write_document({"devices": [row.document() for row in table.rows(wanted)], "summary": table.summary()}, output)
        return
    wide = output == "wide"
    rows = ((row, 0) for row in table.rows(wanted)) if wide else table.folded_rows(wanted)
    click.echo(devices_text(rows, wide=wide))
    click.echo(table.summary_text())
    _name_other_drivers(world, drivers)


def _check_names(world: ClusterObjects, nodes: tuple[str, ...]) -> None:
    """A misspelt node would look like one without devices. Slices may outlive their node, and a dump may have no nodes."""
    known = world.nodes_by_name.keys() | {each.spec.node_name for each in world.slices}
    unknown = [name for name in nodes if name not in known]
    if unknown and world.nodes:
        raise click.UsageError(f"no node named {', '.join(unknown)}")


def _name_other_drivers(world: ClusterObjects, drivers: tuple[str, ...]) -> None:
    publishing = {each.spec.driver for each in world.slices}
    silent = [name for name in drivers if name not in publishing]
    if silent:
        others = ", ".join(sorted(publishing)) or "none"
        show_line(f"no slices of driver {', '.join(silent)}; drivers that publish some: {others}", err=True)
