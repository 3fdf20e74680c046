"""`dray cel`: a device selector over real slices: what matches, what misses and why, what fails, and the cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from dray.allocator.devices import DeviceKind, KindTable
from dray.api.resource import ResourceSlice
from dray.cel import (
    COST_LIMIT,
    MAX_EXPRESSION_LENGTH,
    CelDevice,
    CelRuntimeError,
    CompileFailure,
    Environment,
    Explanation,
    Program,
    compile_selector,
    explain,
)
from dray.cel.explain import Missing, shown
from dray.cli.columns import columns, write_document
from dray.cli.dump import fetch_dump, read_dump, source_options
from dray.cli.main import EXIT_NO

_WORDS = {True: "match", False: "miss"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the expression said about one device."""

    device: str
    explanation: Explanation

    @property
    def result(self) -> str:
        return _WORDS.get(self.explanation.value, "error")

    @property
    def reason(self) -> str:
        value = self.explanation.value
        if isinstance(value, CelRuntimeError) and not any(
            isinstance(reason.value, CelRuntimeError) for reason in self.explanation.reasons
        ):
            return "; ".join([value.message, *map(str, self.explanation.reasons)])
        return str(self.explanation)

    def document(self) -> dict[str, Any]:
        value = self.explanation.value
        document: dict[str, Any] = {"device": self.device, "result": self.result, "cost": self.explanation.cost}
        if isinstance(value, CelRuntimeError):
            document["error"] = value.message
        document["reasons"] = [
            {
                "expression": reason.expression,
                "value": shown(reason.value),
                "seen": [{"expression": seen.expression, "value": shown(seen.value)} for seen in reason.seen],
            }
            for reason in self.explanation.reasons
        ]
        document["notPublished"] = [str(each) for each in self.explanation.missing]
        return document


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
        write_document(_document(expression, program, refusal, verdicts), output)
    else:
        _print(program, refusal, verdicts, with_misses, wide=output == "wide")
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


def _document(expression: str, program: Program, refusal: str | None, verdicts: list[Verdict]) -> dict[str, Any]:
    document: dict[str, Any] = {"expression": expression, "estimate": program.estimate}
    if refusal:
        document["refused"] = refusal
    document["summary"] = _counts(verdicts)
    document["devices"] = [verdict.document() for verdict in verdicts]
    return document


def _counts(verdicts: list[Verdict]) -> dict[str, int]:
    results = [verdict.result for verdict in verdicts]
    return {word: results.count(word) for word in ("match", "miss", "error")}


def _print(program: Program, refusal: str | None, verdicts: list[Verdict], with_misses: bool, *, wide: bool) -> None:
    rows = [_row(each, wide) for each in verdicts if with_misses or each.result != "miss"]
    rows = rows if wide else _folded(rows)
    if rows:
        click.echo(columns(("DEVICE", "RESULT", "COST", "WHY"), rows))
    for hint in _hints(verdicts):
        click.echo(f"hint: {hint}")
    counts = _counts(verdicts)
    click.echo(
        f"{counts['match']} of {len(verdicts)} devices match, {counts['miss']} miss, {counts['error']} fail; "
        f"worst-case cost {program.estimate} of {COST_LIMIT}"
    )
    if refusal:
        click.echo(f"The API server would refuse this expression: {refusal}", err=True)


Row = tuple[str, str, str, str]


def _row(verdict: Verdict, wide: bool) -> Row:
    cost = "" if verdict.explanation.cost is None else str(verdict.explanation.cost)
    return (verdict.device, verdict.result, cost, verdict.reason if verdict.result != "match" or wide else "")


def _folded(rows: list[Row]) -> list[Row]:
    """Devices that miss or fail for the same reason share a row, where the first of them stood."""
    alike: dict[Row, list[str]] = {}
    for device, result, cost, why in rows:
        alike.setdefault((device if result == "match" else "", result, cost, why), []).append(device)
    return [
        (devices[0] if len(devices) == 1 else f"{devices[0]} and {len(devices) - 1} more", result, cost, why)
        for (_, result, cost, why), devices in alike.items()
    ]


def _hints(verdicts: list[Verdict]) -> Iterator[str]:
    """What nobody publishes, with the likeliest correction; what some publish, where the others fail for lack of it."""
    best: dict[str, Missing] = {}
    for verdict in verdicts:
        for each in verdict.explanation.missing:
            if each.what not in best or each.likeness > best[each.what].likeness:
                best[each.what] = each
    total = len(verdicts)
    for hint in best.values():
        lacking = [verdict for verdict in verdicts if _lacks(verdict, hint.what)]
        is_domain = hint.what.endswith("]")
        if len(lacking) == total or (hint.nearest and not is_domain):
            yield f"{hint} ({len(lacking)} of {total} devices)"
        elif any(verdict.result == "error" for verdict in lacking):
            yield f"only {total - len(lacking)} of {total} devices publish {hint.what}; guard it, so that the others miss"


def _lacks(verdict: Verdict, what: str) -> bool:
    """The name itself, or the domain that it is in."""
    return any(what.startswith(each.what) for each in verdict.explanation.missing)
