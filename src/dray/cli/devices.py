"""`dray devices`: what is published, taken and free, and by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import click

from dray.cli.columns import columns, write_document
from dray.cli.dump import fetch_dump, read_dump, source_options
from dray.explain.device_table import DeviceRow, device_rows

# Devices that are alike share a row from here on.
WORTH_FOLDING = 6


@click.command()
@source_options
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only devices of this node; may be repeated.")
@click.option(
    "--driver", "drivers", multiple=True, metavar="NAME", help="Only devices of this driver; may be repeated."
)
@click.option("--free", is_flag=True, help="Only devices that nobody holds.")
@click.option("--taken", is_flag=True, help="Only devices that somebody holds.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml"]),
    help="wide shows every device with attributes and taints.",
)
def devices(
    files: tuple[str, ...],
    kubeconfig: str | None,
    nodes: tuple[str, ...],
    drivers: tuple[str, ...],
    free: bool,
    taken: bool,
    output: str | None,
) -> None:
    """What is published: where it is, whether it is free, and which claims and pods hold it.

    Devices of a pool that nobody holds and that offer the same share a row.

    \b
    Examples:
      dray devices                         the cluster of your kubeconfig
      dray devices -f dump.yaml --free     free devices of a dump
      dray devices --node gpu-7 -o wide    one node, with attributes and taints
    """
    if files and kubeconfig:
        raise click.UsageError("-f and --kubeconfig exclude each other")
    if free and taken:
        raise click.UsageError("--free and --taken exclude each other")
    rows = device_rows((read_dump(files) if files else fetch_dump(kubeconfig)).world())
    rows = [
        row
        for row in rows
        if (not nodes or row.node in nodes)
        and (not drivers or row.device_id.driver in drivers)
        and (not free or row.state == "free")
        and (not taken or row.state not in ("free", "blocked"))
    ]
    if output in ("json", "yaml"):
        counts = Counter(row.state for row in rows)
        write_document({"devices": [row.document() for row in rows], "summary": dict(counts)}, output)
        return
    click.echo(table_of(rows, wide=output == "wide"))
    click.echo(_summary(rows))


def table_of(rows: list[DeviceRow], *, wide: bool) -> str:
    header = ["DRIVER", "POOL", "DEVICE", "NODE", "STATE", "CAPACITY", "CLAIMS", "PODS"]
    if wide:
        header += ["ATTRIBUTES", "TAINTS"]
    table = []
    for row, more in [(row, 0) for row in rows] if wide else _folded(rows):
        claims = ", ".join(f"{holder.claim}{' (admin)' if holder.has_admin_access else ''}" for holder in row.holders)
        pods = ", ".join(dict.fromkeys(pod for holder in row.holders for pod in holder.pods))
        driver, pool, name = row.device_id
        name = f"{name} and {more} more" if more else name
        cells = [driver, pool, name, row.node, row.state, _capacity(row), claims, pods]
        if wide:
            cells += [", ".join(f"{name}={value}" for name, value in row.attributes.items()), ", ".join(row.taints)]
        table.append(cells)
    return columns(header, table)


def _folded(rows: list[DeviceRow]) -> list[tuple[DeviceRow, int]]:
    """Devices of a pool that nobody holds and that offer the same share a row; a card has dozens of partitions."""
    alike: dict[Hashable, list[DeviceRow]] = {}
    for row in rows:
        is_plain = not row.holders and not row.taints
        key = (row.device_id[:2], row.node, row.state, _capacity(row)) if is_plain else row.device_id
        alike.setdefault(key, []).append(row)
    shown: list[tuple[DeviceRow, int]] = []
    for found in alike.values():
        shown += [(found[0], len(found) - 1)] if len(found) >= WORTH_FOLDING else [(row, 0) for row in found]
    return shown


def _capacity(row: DeviceRow) -> str:
    parts = []
    for name, value in row.capacity.items():
        short = name.rpartition("/")[2]
        parts.append(f"{short} {row.consumed[name]} of {value}" if name in row.consumed else f"{short} {value}")
    return ", ".join(parts)


def _summary(rows: list[DeviceRow]) -> str:
    counts = Counter(row.state for row in rows)
    words = ", ".join(
        f"{counts[state]} {state}" for state in ("free", "blocked", "taken", "shared", "gone") if counts[state]
    )
    return f"{len(rows)} devices: {words}" if rows else "no devices"
