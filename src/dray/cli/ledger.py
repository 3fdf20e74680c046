"""`dray ledger`: per node, what it can give, what pods were given by spec and by claim, and what is left."""

from __future__ import annotations

import click

from dray.accounting import NodeLedger
from dray.accounting.ledger_rows import lines_of
from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.name_completion import nodes_option
from dray.cli.options import output_option
from dray.cli.output import show_line, write_document
from dray.explain.node_ledgers import NodeLedgers, ledgers_document, ledgers_of, nodes_table, rows_table


@click.command()
@source_options
@click.option(
    "--why", metavar="RESOURCE", help="Every row behind the requested amount: pod, container or claim, device."
)
@nodes_option("Only this node; may be repeated.")
@output_option("wide shows every resource.")
def ledger(files: tuple[str, ...], live: LiveCluster, why: str | None, nodes: tuple[str, ...], output: str) -> None:
    """What each node can give, what pods ask of it by spec and by claim, and what is free.

    \b
    Examples:
      dray ledger                             the cluster of your kubeconfig
      dray ledger -f dump.yaml --why cpu      the rows behind the cpu column, from a dump
    """
    ledgers = ledgers_of(load_dump(files, live))
    chosen = _chosen(ledgers, nodes)
    if output in ("json", "yaml"):
        write_document(ledgers_document(ledgers, chosen, why), output)
    elif why:
        click.echo(rows_table(chosen, why))
        if not any(each.why(why) for each in chosen):
            show_line(_nothing_taken(chosen, why), err=True)
    else:
        click.echo(nodes_table(chosen, wide=output == "wide"))
    for warning in ledgers.warnings:
        show_line(f"warning: {warning}", err=True)


def _nothing_taken(chosen: list[NodeLedger], resource: str) -> str:
    offered = sorted({line.resource for each in chosen for line in lines_of(each)})
    if resource in offered:
        return f"nobody takes any {resource}"
    return f"no node has a resource {resource}; there are: {', '.join(offered) or 'none'}"


def _chosen(ledgers: NodeLedgers, names: tuple[str, ...]) -> list[NodeLedger]:
    known = ledgers.sorted()
    unknown = set(names) - {each.name for each in known}
    if unknown:
        raise click.UsageError(f"no node named {', '.join(sorted(unknown))}")
    return [each for each in known if not names or each.name in names]
