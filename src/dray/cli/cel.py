"""`dray cel`: a device selector over real slices: what matches, what misses and why, what fails, and the cost."""

from __future__ import annotations

import sys

import click

from dray.api.resource import DeviceClass, ResourceSlice
from dray.cel import CompileFailure, Environment, compile_selector
from dray.cli.cluster_source import LiveCluster, load_dump, source_options
from dray.cli.main import EXIT_NO
from dray.cli.name_completion import ObjectName
from dray.cli.options import output_option
from dray.cli.output import show_text, write_document
from dray.explain.dump import Dump
from dray.explain.selector_results import answer_counts, document_of, evaluate_selector, refusal_of, result_lines

KINDS = ("ResourceSlice", "DeviceClass")


@click.command()
@click.argument("expression", required=False)
@source_options
@click.option(
    "--class", "class_name", metavar="NAME", type=ObjectName("DeviceClass"), help="The selectors of this class instead."
)
@click.option("--stored", is_flag=True, help="Judge it as one that is stored already: every gate counts as on.")
@click.option("--no-list-attributes", is_flag=True, help="As with DRAListTypeAttributes off.")
@click.option("--no-consumable-capacity", is_flag=True, help="As with DRAConsumableCapacity off.")
@click.option(
    "--misses/--no-misses", "with_misses", default=True, help="Show devices that do not match, with the reason."
)
@output_option("wide shows every device, and also explains the matches.")
def cel(
    expression: str | None,
    files: tuple[str, ...],
    live: LiveCluster,
    class_name: str | None,
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
      dray cel --class gpu.example.com                                what a class selects
    """
    if (expression is None) == (class_name is None):
        raise click.UsageError("name either an expression or a --class")
    dump: Dump | None = None
    if class_name is not None:
        dump = load_dump(files, live, kinds=KINDS)
        expression = _expression_of(dump, class_name)
    assert expression is not None
    environment = Environment.devices(
        stored=stored, list_attributes=not no_list_attributes, consumable_capacity=not no_consumable_capacity
    )
    program = compile_selector(expression, environment)
    refusal = refusal_of(expression, program, stored)
    if isinstance(program, CompileFailure):
        _refuse(refusal or program.message, output)
        return
    dump = dump or load_dump(files, live, kinds=KINDS)
    slices = dump.of(ResourceSlice)
    results = list(evaluate_selector(program, slices))
    if output in ("json", "yaml"):
        write_document(document_of(expression, program, refusal, results), output)
    else:
        show_text("\n".join(result_lines(program, results, with_misses, wide=output == "wide")))
        if refusal:
            show_text(f"The API server would refuse this expression: {refusal}", err=True)
    answers = {answer.result for answer in answer_counts(results)}
    if refusal or "error" in answers or "match" not in answers:
        sys.exit(EXIT_NO)


def _expression_of(dump: Dump, class_name: str) -> str:
    """All selectors of the class in one expression; a class without any selects every device."""
    found = dump.find(DeviceClass, class_name)
    if found is None:
        raise click.ClickException(f"no device class named {class_name}")
    written = [each.cel.expression for each in found.spec.selectors if each.cel is not None]
    return written[0] if len(written) == 1 else " && ".join(f"({each})" for each in written) or "true"


def _refuse(message: str, output: str) -> None:
    if output in ("json", "yaml"):
        write_document({"refused": message}, output)
    else:
        show_text(message, err=True)
    sys.exit(EXIT_NO)
