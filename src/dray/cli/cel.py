"""`dray cel`: a device selector over real slices: what matches, what misses and why, what fails, and the cost."""

from __future__ import annotations

import sys

import click

from dray.api.resource import ResourceSlice
from dray.cel import CompileFailure, Environment, compile_selector
from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.main import EXIT_NO
from dray.cli.options import output_option
from dray.cli.output import write_document
from dray.explain.selector_results import document_of, evaluate_selector, refusal_of, result_lines


@click.command()
@click.argument("expression")
@source_options
@click.option("--stored", is_flag=True, help="Judge it as one that is stored already: every gate counts as on.")
@click.option("--no-list-attributes", is_flag=True, help="As with DRAListTypeAttributes off.")
@click.option("--no-consumable-capacity", is_flag=True, help="As with DRAConsumableCapacity off.")
@click.option(
    "--misses/--no-misses", "with_misses", default=True, help="Show devices that do not match, with the reason."
)
@output_option("wide shows every device, and also explains the matches.")
def cel(
    expression: str,
    files: tuple[str, ...],
    live: LiveCluster,
    stored: bool,
    no_list_attributes: bool,
    no_consumable_capacity: bool,
    with_misses: bool,
    output: str,
) -> None:
    """Evaluate a device selector over ResourceSlices: matches, misses with the deciding part, errors, cost.

    Exit code 0: something matches and nothing fails. 1: no match, an error, or the expression is refused.

    \b
    Examples:
      dray cel 'device.attributes["gpu.example.com"].model == "a100"' -f slices.yaml
      dray cel 'device.driver == "gpu.example.com"'                   the cluster of your kubeconfig
    """
    environment = Environment.devices(
        stored=stored, list_attributes=not no_list_attributes, consumable_capacity=not no_consumable_capacity
    )
    program = compile_selector(expression, environment)
    refusal = refusal_of(expression, program, stored)
    if isinstance(program, CompileFailure):
        _refuse(refusal or program.message, output)
        return
    slices = load_dump(files, live).of(ResourceSlice)
    results = list(evaluate_selector(program, slices))
    if output in ("json", "yaml"):
        write_document(document_of(expression, program, refusal, results), output)
    else:
        click.echo("\n".join(result_lines(program, results, with_misses, wide=output == "wide")))
        if refusal:
            click.echo(f"The API server would refuse this expression: {refusal}", err=True)
    answers = {result.result for result in results}
    if refusal or "error" in answers or "match" not in answers:
        sys.exit(EXIT_NO)


def _refuse(message: str, output: str) -> None:
    if output in ("json", "yaml"):
        write_document({"refused": message}, output)
    else:
        click.echo(message, err=True)
    sys.exit(EXIT_NO)
