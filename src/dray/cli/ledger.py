"""`dray ledger`: per node, what it can give, what pods were given by spec and by claim, and what is left."""

from __future__ import annotations

import click

from dray.accounting import NodeLedger
from dray.accounting.ledger_rows import Line, lines_of
from dray.cli.columns import columns, write_document
from dray.cli.dump import fetch_dump, read_dump, source_options
from dray.cli.ledger_view import LedgerView, ledger_of, node_document, row_document, sorted_ledgers

_ALWAYS_SHOWN = ("cpu", "memory")


@click.command()
@source_options
@click.option(
    "--why", metavar="RESOURCE", help="Every row behind the requested amount: pod, container or claim, device."
)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node; may be repeated.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml"]), help="wide shows every resource.")
def ledger(
    files: tuple[str, ...], kubeconfig: str | None, why: str | None, nodes: tuple[str, ...], output: str | None
) -> None:
    """What each node can give, what pods ask of it by spec and by claim, and what is free.

    \b
    Examples:
      dray ledger                             the cluster of your kubeconfig
      dray ledger -f dump.yaml --why cpu      the rows behind the cpu column, from a dump
    """
    if files and kubeconfig:
        raise click.UsageError("-f and --kubeconfig exclude each other")
    view = ledger_of(read_dump(files) if files else fetch_dump(kubeconfig))
    chosen = _chosen(view, nodes)
    if output in ("json", "yaml"):
        _write_documents(view, chosen, why, output)
    elif why:
        click.echo(_rows_table(chosen, why))
    else:
        click.echo(_nodes_table(chosen, wide=output == "wide"))
    for warning in view.warnings:
        click.echo(f"warning: {warning}", err=True)


def _chosen(view: LedgerView, names: tuple[str, ...]) -> list[NodeLedger]:
    ledgers = sorted_ledgers(view.cluster)
    unknown = set(names) - {each.name for each in ledgers}
    if unknown:
        raise click.UsageError(f"no node named {', '.join(sorted(unknown))}")
    return [each for each in ledgers if not names or each.name in names]


def _write_documents(view: LedgerView, chosen: list[NodeLedger], why: str | None, output: str) -> None:
    document: dict[str, object] = {"nodes": [node_document(each) for each in chosen], "warnings": view.warnings}
    if why:
        document["why"] = {why: [row_document(each.name, row) for each in chosen for row in each.why(why)]}
    write_document(document, output)


def _nodes_table(chosen: list[NodeLedger], *, wide: bool) -> str:
    header = ("NODE", "RESOURCE", "ALLOCATABLE", "BY SPEC", "BY CLAIMS", "REQUESTED", "FREE")
    rows = []
    for each in chosen:
        for line in lines_of(each):
            if wide or line.resource in _ALWAYS_SHOWN or line.requested:
                rows.append((each.name, line.resource, *_texts(line)))
        if wide:
            pods, allowed = each.pod_count, each.allocatable("pods")
            rows.append((each.name, "pods", str(allowed), str(pods), "0", str(pods), str(allowed - pods)))
    return columns(header, rows)


def _texts(line: Line) -> list[str]:
    return list(line.texts().values())


def _rows_table(chosen: list[NodeLedger], resource: str) -> str:
    header = ("NODE", "POD", "KIND", "CONTAINER", "CLAIM", "DEVICE", "AMOUNT", "POLICY")
    rows = []
    for each in chosen:
        for row in each.why(resource):
            pods = ", ".join(map(str, row.pods))
            rows.append(
                (each.name, pods, row.kind, row.container, row.claim, row.device, str(row.quantity), str(row.policy))
            )
    return columns(header, rows)
