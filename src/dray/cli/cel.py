"""`dray cel`: a device selector over real slices: what matches, what misses and why, what fails, and the cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from dray.allocator.device_kinds import DeviceKind, KindTable
from dray.api.resource import ResourceSlice
from dray.cel import (
    COST_LIMIT,
    MAX_EXPRESSION_LENGTH,
    CelDevice,
    CompileFailure,
    Environment,
    Explanation,
    Program,
    compile_selector,
    explain,
)
from dray.cli.cel_view import Verdict, document_of, print_verdicts
from dray.cli.columns import write_document
from dray.cli.dump import fetch_dump, read_dump, source_options
from dray.cli.main import EXIT_NO


@click.command()
@click.argument("expression")
@source_options
@click.option("--stored", is_flag=True, help="Judge it as one that is stored already: every gate counts as on.")
@click.option("--no-list-attributes", is_flag=True, help="As with DRAListTypeAttributes off.")
@click.option("--no-consumable-capacity", is_flag=True, help="As with DRAConsumableCapacity off.")
@click.option(
    "--misses/--no-misses", "with_misses", default=True, help="Show devices that do not match, with the reason."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "json", "yaml"]),
    help="wide shows every device, and also explains the matches.",
)
def cel(
    expression: str,
    files: tuple[str, ...],
    kubeconfig: str | None,
    stored: bool,
    no_list_attributes: bool,
    no_consumable_capacity: bool,
    with_misses: bool,
    output: str | None,
) -> None:
    """Evaluate a device selector over ResourceSlices: matches, misses with the deciding part, errors, cost.

    Exit code 0: something matches and nothing fails. 1: no match, an error, or the expression is refused.

    \b
    Examples:
      dray cel 'device.attributes["gpu.example.com"].model == "a100"' -f slices.yaml
      dray cel 'device.driver == "gpu.example.com"'                   the cluster of your kubeconfig
    """
    if files and kubeconfig:
        raise click.UsageError("-f and --kubeconfig exclude each other")
    environment = Environment.devices(
        stored=stored, list_attributes=not no_list_attributes, consumable_capacity=not no_consumable_capacity
    )
    program = compile_selector(expression, environment)
    refusal = _refusal(expression, program, stored)
    if isinstance(program, CompileFailure):
        _refuse(refusal or program.message, output)
        return
    slices = (read_dump(files) if files else fetch_dump(kubeconfig)).of(ResourceSlice)
    verdicts = list(_verdicts(program, slices))
    if output in ("json", "yaml"):
        write_document(document_of(expression, program, refusal, verdicts), output)
    else:
        print_verdicts(program, refusal, verdicts, with_misses, wide=output == "wide")
    results = {verdict.result for verdict in verdicts}
    if refusal or "error" in results or "match" not in results:
        sys.exit(EXIT_NO)


def _refusal(text: str, program: Program | CompileFailure, stored: bool) -> str | None:
    """Why the API server would not store it."""
    if len(text.encode(errors="surrogatepass")) > MAX_EXPRESSION_LENGTH:
        return f"longer than {MAX_EXPRESSION_LENGTH} bytes"
    if isinstance(program, CompileFailure):
        return program.message
    if not stored and program.estimate > COST_LIMIT:
        return f"too complex, exceeds cost limit: estimated {program.estimate}, allowed {COST_LIMIT}"
    return None


def _refuse(message: str, output: str | None) -> None:
    if output in ("json", "yaml"):
        write_document({"refused": message}, output)
    else:
        click.echo(message, err=True)
    sys.exit(EXIT_NO)


def _verdicts(program: Program, slices: list[ResourceSlice]) -> Iterator[Verdict]:
    """Of every device of the newest generation of each pool. Devices of one kind are judged once."""
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        key = (each.spec.driver, each.spec.pool.name)
        newest[key] = max(newest.get(key, 0), each.spec.pool.generation)
    table = KindTable()
    judged: dict[DeviceKind, Explanation] = {}
    for each in slices:
        spec = each.spec
        if spec.pool.generation != newest[(spec.driver, spec.pool.name)]:
            continue
        for device, kind in zip(spec.devices, table.kinds_of(spec.driver, spec.devices, skips=False), strict=True):
            if kind not in judged:
                judged[kind] = explain(program, CelDevice.of(spec.driver, device))
            yield Verdict(f"{spec.driver}/{spec.pool.name}/{device.name}", judged[kind])
