"""The explanation of a pod as text: the answer first, then the evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dray.explain.overview import natural
from dray.explain.reason_codes import CODES
from dray.explain.request_counts import STAGES
from dray.explain.text_columns import columns
from dray.explain.verdicts import NodeVerdict, PodVerdict
from dray.visible_text import visible_on_one_line

NODES_SHOWN = 8
PODS_SHOWN = 5
# Under the word behind `helps:`.
_MARGIN = " " * 11
_MOST_TEXT = 160


def text_of(verdict: PodVerdict, *, wide: bool = False, nodes: Sequence[str] = (), width: int | None = None) -> str:
    """Lines longer than `width` are wrapped; -o wide shows a row for every node."""
    lines = [verdict.headline, *(f"  {line}" for line in _essentials(verdict))]
    lines += [f"  note:    {note}" for note in verdict.notes]
    parts = [_wrapped(visible_on_one_line(line), width, _MARGIN) for line in lines]
    rows = [[row] for row in verdict.nodes] if wide or nodes else _alike(verdict.nodes)
    shown = rows if wide or nodes else rows[:NODES_SHOWN]
    if shown:
        parts += ["", _node_table(shown, wide, width)]
        hidden = sum(map(len, rows[len(shown) :]))
        if hidden:
            parts.append(f"... and {hidden} more nodes; -o wide shows them")
    for row in _with_requests(verdict, nodes):
        parts += ["", *_request_lines(row)]
    return "\n".join(parts)


def short_text_of(verdict: PodVerdict) -> str:
    """The headline, what to do about it, and the cause: for a test that failed, or a story that is told."""
    lines = [
        verdict.headline,
        *(f"  {line}" for line in _what_to_do(verdict)),
        *(f"  {line}" for line in _cause(verdict)),
    ]
    return "\n".join(map(visible_on_one_line, lines))


def _essentials(verdict: PodVerdict) -> list[str]:
    nearest = verdict.nodes[0] if verdict.nodes and not verdict.is_well else None
    miss = nearest.devices.nearest if nearest is not None and nearest.devices is not None else None
    lines = [*_what_to_do(verdict), *_cause(verdict), *verdict.details]
    if miss is not None:
        lines += [f"nearest: {miss.sentence()}", *(f"hint:    {hint}" for hint in miss.hints)]
    return lines


def _cause(verdict: PodVerdict) -> list[str]:
    return [] if verdict.is_well else [f"code:    {verdict.cause}"]


def _what_to_do(verdict: PodVerdict) -> list[str]:
    if verdict.fix or verdict.helps:
        fix = [f"fix:     {verdict.fix}"] if verdict.fix else []
        return [*fix, *(f"helps:   {row.text}" for row in verdict.helps)]
    code = CODES.get(verdict.code)
    return [f"usually: {code.remedy}"] if code is not None and not verdict.is_well else []


def text_of_many(verdicts: Sequence[PodVerdict], width: int | None = None) -> str:
    """Waiting pods by cause, the most frequent cause first; of each pod its headline and what helps first."""
    by_code: dict[str, list[PodVerdict]] = {}
    for verdict in verdicts:
        by_code.setdefault(verdict.code, []).append(verdict)
    parts = []
    for alike in sorted(by_code.values(), key=lambda group: -len(group)):
        lines = [f"{len(alike)} {'pod' if len(alike) == 1 else 'pods'}: {alike[0].cause}"]
        for verdict in alike[:PODS_SHOWN]:
            lines.append(f"  {verdict.headline}")
            lines += [f"    {line}" for line in _what_to_do(verdict)[:1]]
        if len(alike) > PODS_SHOWN:
            lines.append(f"  ... and {len(alike) - PODS_SHOWN} more")
        parts.append("\n".join(_wrapped(visible_on_one_line(line), width, "    ") for line in lines))
    return "\n\n".join(parts)


def _alike(verdicts: Sequence[NodeVerdict]) -> list[list[NodeVerdict]]:
    """Nodes that refuse for the same reasons in the same words, where the first of them stands."""
    groups: dict[tuple[str, str], list[NodeVerdict]] = {}
    for verdict in verdicts:
        groups.setdefault((_codes(verdict), verdict.message if not verdict.fits else verdict.node), []).append(verdict)
    return list(groups.values())


def _codes(verdict: NodeVerdict) -> str:
    return ", ".join(dict.fromkeys(refusal.code for refusal in verdict.refusals)) or verdict.code


def _node_table(shown: Sequence[Sequence[NodeVerdict]], wide: bool, width: int | None) -> str:
    rows = []
    for alike in shown:
        why = alike[0].message if not alike[0].fits else ", ".join(alike[0].chosen)
        short = why if wide or width or len(why) <= _MOST_TEXT else f"{why[: _MOST_TEXT - 3]}..."
        rows.append((_names(alike), _codes(alike[0]), short))
    table = columns(("NODE", "VERDICT", "WHY"), rows)
    if width is None:
        return table
    margin = " " * min(table.index("WHY"), width // 2)
    return "\n".join(_wrapped(line, width, margin) for line in table.splitlines())


def _names(alike: Sequence[NodeVerdict]) -> str:
    names = sorted((verdict.node for verdict in alike), key=natural)
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}, {len(names)} alike"


def _wrapped(line: str, width: int | None, margin: str) -> str:
    if width is None or len(line) <= width:
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _with_requests(verdict: PodVerdict, nodes: Sequence[str]) -> list[NodeVerdict]:
    """The nearest node, or the ones that were asked for."""
    found = [row for row in verdict.nodes if row.devices is not None and row.devices.requests]
    return found if nodes else found[:1]


def _request_lines(verdict: NodeVerdict) -> list[str]:
    assert verdict.devices is not None
    header = ("REQUEST", "CLAIM", "CLASS", "WANTED", *(_TITLES[stage] for stage in STAGES))
    rows = [
        (
            counts.request,
            counts.claim,
            counts.device_class,
            "all" if counts.wants_all else str(counts.wanted),
            *(
                f"{counts.by_stage[stage]} <" if stage == counts.short_stage else str(counts.by_stage[stage])
                for stage in STAGES
            ),
        )
        for counts in verdict.devices.requests
    ]
    return [f"devices on {verdict.node}, request by request (< marks where too few are left):", columns(header, rows)]


_TITLES = {
    "exist": "EXIST",
    "matchClass": "CLASS OK",
    "matchSelectors": "SELECTED",
    "free": "FREE",
    "tolerated": "TOLERATED",
    "fit": "FIT",
    "satisfy": "CONSTRAINTS",
}
