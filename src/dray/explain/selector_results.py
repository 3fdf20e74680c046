"""A device selector evaluated over published devices: results, reasons, hints and costs, as text and as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dray.allocator.device_kinds import DeviceKind, KindTable
from dray.api.dra.pools import newest_of_each_pool
from dray.api.resource import ResourceSlice
from dray.cel import (
    COST_LIMIT,
    MAX_EXPRESSION_LENGTH,
    CelDevice,
    CelRuntimeError,
    CompileFailure,
    Program,
)
from dray.cel.explain import MatchExplanation, Missing, explain, shown
from dray.explain.text_columns import columns

_WORDS = {True: "match", False: "miss"}


@dataclass(frozen=True, slots=True, eq=False)
class SelectorAnswer:
    """The answer of the expression for all devices of one kind: match, miss or error, with the deciding parts."""

    explanation: MatchExplanation
    result: str
    reason: str

    @classmethod
    def of(cls, explanation: MatchExplanation) -> SelectorAnswer:
        return cls(explanation, _WORDS.get(explanation.value, "error"), _reason_of(explanation))

    def cells(self, wide: bool) -> tuple[str, str, str]:
        """Result, cost and reason; of a match the reason is shown only where there is room."""
        cost = "" if self.explanation.cost is None else str(self.explanation.cost)
        return self.result, cost, self.reason if self.result != "match" or wide else ""


def _reason_of(explanation: MatchExplanation) -> str:
    value = explanation.value
    if isinstance(value, CelRuntimeError) and not any(
        isinstance(reason.value, CelRuntimeError) for reason in explanation.reasons
    ):
        return "; ".join([value.message, *map(str, explanation.reasons)])
    return str(explanation)


class SelectorResult(NamedTuple):
    """The answer for one device."""

    device: str
    answer: SelectorAnswer

    def document(self) -> dict[str, Any]:
        explanation = self.answer.explanation
        value = explanation.value
        document: dict[str, Any] = {"device": self.device, "result": self.answer.result, "cost": explanation.cost}
        if isinstance(value, CelRuntimeError):
            document["error"] = value.message
        document["reasons"] = [
            {
                "expression": reason.expression,
                "value": shown(reason.value),
                "seen": [{"expression": seen.expression, "value": shown(seen.value)} for seen in reason.seen],
            }
            for reason in explanation.reasons
        ]
        document["notPublished"] = [str(each) for each in explanation.missing]
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
    answers: dict[DeviceKind, SelectorAnswer] = {}
    # The table of kinds forgets lists that nobody holds, and would compile them again for the next node.
    lists: dict[int, object] = {}
    for each in newest_of_each_pool(slices):
        spec = each.spec
        kinds = table.kinds_of(spec.driver, spec.devices, skips=False)
        lists[id(kinds)] = kinds
        for device, kind in zip(spec.devices, kinds, strict=True):
            answer = answers.get(kind)
            if answer is None:
                answer = answers[kind] = SelectorAnswer.of(explain(program, CelDevice.of(spec.driver, device)))
            yield SelectorResult(f"{spec.driver}/{spec.pool.name}/{device.name}", answer)


def document_of(
    expression: str, program: Program, refusal: str | None, results: list[SelectorResult]
) -> dict[str, Any]:
    document: dict[str, Any] = {"expression": expression, "estimate": program.estimate}
    if refusal:
        document["refused"] = refusal
    document["summary"] = _counts(answer_counts(results))
    document["devices"] = [result.document() for result in results]
    return document


def answer_counts(results: Iterable[SelectorResult]) -> Counter[SelectorAnswer]:
    """How many devices have each answer; there are as many answers as kinds of devices."""
    return Counter(result.answer for result in results)


def _counts(answers: Counter[SelectorAnswer]) -> dict[str, int]:
    found = dict.fromkeys(("match", "miss", "error"), 0)
    for answer, count in answers.items():
        found[answer.result] += count
    return found


def result_lines(program: Program, results: list[SelectorResult], with_misses: bool, *, wide: bool) -> list[str]:
    """A table, hints and a summary. Devices that miss for the same reason share a row unless it is `wide`."""
    chosen = [each for each in results if with_misses or each.answer.result != "miss"]
    rows = [(each.device, *each.answer.cells(wide)) for each in chosen] if wide else _folded(chosen)
    lines = [columns(("DEVICE", "RESULT", "COST", "WHY"), rows)] if rows else []
    answers = answer_counts(results)
    lines += [f"hint: {hint}" for hint in _hints(answers)]
    counts = _counts(answers)
    lines.append(
        f"{counts['match']} of {len(results)} devices match, {counts['miss']} miss, {counts['error']} fail; "
        f"worst-case cost {program.estimate} of {COST_LIMIT}"
    )
    return lines


def _folded(results: list[SelectorResult]) -> list[tuple[str, str, str, str]]:
    """Devices that miss or fail for the same reason share a row, where the first of them stood."""
    cells = {answer: answer.cells(wide=False) for answer in answer_counts(results)}
    alike: dict[tuple[str, tuple[str, str, str]], list[str]] = {}
    for device, answer in results:
        alike.setdefault((device if answer.result == "match" else "", cells[answer]), []).append(device)
    return [
        (devices[0] if len(devices) == 1 else f"{devices[0]} and {len(devices) - 1} more", *shared)
        for (_, shared), devices in alike.items()
    ]


def _hints(answers: Counter[SelectorAnswer]) -> Iterator[str]:
    """Names that no device publishes, with the likeliest correction; names that only some publish, where the others fail."""
    best: dict[str, Missing] = {}
    for answer in answers:
        for each in answer.explanation.missing:
            if each.what not in best or each.likeness > best[each.what].likeness:
                best[each.what] = each
    total = answers.total()
    for hint in best.values():
        lacking = [answer for answer in answers if _lacks(answer, hint.what)]
        count = sum(answers[answer] for answer in lacking)
        is_domain = hint.what.endswith("]")
        if count == total or (hint.nearest and not is_domain):
            yield f"{hint} ({count} of {total} devices)"
        elif any(answer.result == "error" for answer in lacking):
            yield f"only {total - count} of {total} devices publish {hint.what}; guard it, so that the others miss"


def _lacks(answer: SelectorAnswer, what: str) -> bool:
    """The name itself, or the domain that it is in."""
    return any(what.startswith(each.what) for each in answer.explanation.missing)
