"""A device selector evaluated over published devices: results, reasons, hints and costs, as text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dray.allocator.device_kinds import DeviceKind, KindTable
from dray.api.dra.pools import newest_of_each_pool
from dray.api.resource import ResourceSlice
from dray.cel import (
    COST_LIMIT,
    MAX_EXPRESSION_LENGTH,
    CelDevice,
    CelRuntimeError,
    CompileFailure,
    MatchExplanation,
    Program,
    explain,
)
from dray.cel.explain import Missing, shown
from dray.explain.text_columns import columns

_WORDS = {True: "match", False: "miss"}


@dataclass(frozen=True, slots=True)
class SelectorResult:
    """The answer of the expression for one device: match, miss or error, with the deciding parts."""

    device: str
    explanation: MatchExplanation

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


def refusal_of(text: str, program: Program | CompileFailure, stored: bool) -> str | None:
    """Why the API server would refuse to store the expression; None if it would store it."""
    if len(text.encode(errors="surrogatepass")) > MAX_EXPRESSION_LENGTH:
        return f"longer than {MAX_EXPRESSION_LENGTH} bytes"
    if isinstance(program, CompileFailure):
        return program.message
    if not stored and program.estimate > COST_LIMIT:
        return f"too complex, exceeds cost limit: estimated {program.estimate}, allowed {COST_LIMIT}"
    return None


def evaluate_selector(program: Program, slices: Sequence[ResourceSlice]) -> Iterator[SelectorResult]:
    """Evaluates the selector on every device of the newest generation of each pool, once for each kind of device."""
    table = KindTable()
    explained: dict[DeviceKind, MatchExplanation] = {}
    # The table of kinds forgets lists that nobody holds, and would compile them again for the next node.
    lists: dict[int, object] = {}
    for each in newest_of_each_pool(slices):
        spec = each.spec
        kinds = table.kinds_of(spec.driver, spec.devices, skips=False)
        lists[id(kinds)] = kinds
        for device, kind in zip(spec.devices, kinds, strict=True):
            if kind not in explained:
                explained[kind] = explain(program, CelDevice.of(spec.driver, device))
            yield SelectorResult(f"{spec.driver}/{spec.pool.name}/{device.name}", explained[kind])


def document_of(
    expression: str, program: Program, refusal: str | None, results: list[SelectorResult]
) -> dict[str, Any]:
    document: dict[str, Any] = {"expression": expression, "estimate": program.estimate}
    if refusal:
        document["refused"] = refusal
    document["summary"] = _counts(results)
    document["devices"] = [result.document() for result in results]
    return document


def _counts(results: list[SelectorResult]) -> dict[str, int]:
    words = [result.result for result in results]
    return {word: words.count(word) for word in ("match", "miss", "error")}


def result_lines(program: Program, results: list[SelectorResult], with_misses: bool, *, wide: bool) -> list[str]:
    """A table, hints and a summary. Devices that miss for the same reason share a row unless it is `wide`."""
    rows = [_row(each, wide) for each in results if with_misses or each.result != "miss"]
    rows = rows if wide else _folded(rows)
    lines = [columns(("DEVICE", "RESULT", "COST", "WHY"), rows)] if rows else []
    lines += [f"hint: {hint}" for hint in _hints(results)]
    counts = _counts(results)
    lines.append(
        f"{counts['match']} of {len(results)} devices match, {counts['miss']} miss, {counts['error']} fail; "
        f"worst-case cost {program.estimate} of {COST_LIMIT}"
    )
    return lines


Row = tuple[str, str, str, str]


def _row(result: SelectorResult, wide: bool) -> Row:
    cost = "" if result.explanation.cost is None else str(result.explanation.cost)
    return (result.device, result.result, cost, result.reason if result.result != "match" or wide else "")


def _folded(rows: list[Row]) -> list[Row]:
    """Devices that miss or fail for the same reason share a row, where the first of them stood."""
    alike: dict[Row, list[str]] = {}
    for device, result, cost, why in rows:
        alike.setdefault((device if result == "match" else "", result, cost, why), []).append(device)
    return [
        (devices[0] if len(devices) == 1 else f"{devices[0]} and {len(devices) - 1} more", result, cost, why)
        for (_, result, cost, why), devices in alike.items()
    ]


def _hints(results: list[SelectorResult]) -> Iterator[str]:
    """Names that no device publishes, with the likeliest correction; names that only some publish, where the others fail."""
    best: dict[str, Missing] = {}
    for result in results:
        for each in result.explanation.missing:
            if each.what not in best or each.likeness > best[each.what].likeness:
                best[each.what] = each
    total = len(results)
    for hint in best.values():
        lacking = [result for result in results if _lacks(result, hint.what)]
        is_domain = hint.what.endswith("]")
        if len(lacking) == total or (hint.nearest and not is_domain):
            yield f"{hint} ({len(lacking)} of {total} devices)"
        elif any(result.result == "error" for result in lacking):
            yield f"only {total - len(lacking)} of {total} devices publish {hint.what}; guard it, so that the others miss"


def _lacks(result: SelectorResult, what: str) -> bool:
    """The name itself, or the domain that it is in."""
    return any(what.startswith(each.what) for each in result.explanation.missing)
