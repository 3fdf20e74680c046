"""What `dray cel` shows: one row per device or per kind of miss, hints, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from dray.cel import COST_LIMIT, CelRuntimeError, Explanation, Program
from dray.cel.explain import Missing, shown
from dray.cli.columns import columns

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


def document_of(expression: str, program: Program, refusal: str | None, verdicts: list[Verdict]) -> dict[str, Any]:
    document: dict[str, Any] = {"expression": expression, "estimate": program.estimate}
    if refusal:
        document["refused"] = refusal
    document["summary"] = _counts(verdicts)
    document["devices"] = [verdict.document() for verdict in verdicts]
    return document


def _counts(verdicts: list[Verdict]) -> dict[str, int]:
    results = [verdict.result for verdict in verdicts]
    return {word: results.count(word) for word in ("match", "miss", "error")}


def print_verdicts(
    program: Program, refusal: str | None, verdicts: list[Verdict], with_misses: bool, *, wide: bool
) -> None:
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
