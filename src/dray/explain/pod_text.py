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


def _essentials(verdict: PodVerdict) -> list[str]:
    nearest = verdict.nodes[0] if verdict.nodes else None
    miss = nearest.devices.nearest if nearest is not None and nearest.devices is not None else None
    lines = [*(f"hint:    {hint}" for hint in (miss.hints if miss is not None else ())), *verdict.details]
    code = CODES.get(verdict.code)
    if verdict.code not in ("fits", "scheduled"):
        lines.append(f"code:    {verdict.code} ({code.meaning})" if code is not None else f"code:    {verdict.code}")
    if miss is not None:
        lines.append(f"nearest: {miss.sentence()}")
    if verdict.helps:
        lines += [f"helps:   {row.text}" for row in verdict.helps]
    elif code is not None and verdict.code not in ("fits", "scheduled"):
        lines.append(f"usually: {code.remedy}")
    return lines


def text_of_many(verdicts: Sequence[PodVerdict], width: int | None = None) -> str:
    """Waiting pods by cause, the most frequent cause first; of each pod its headline and what helps first."""
    by_code: dict[str, list[PodVerdict]] = {}
    for verdict in verdicts:
        by_code.setdefault(verdict.code, []).append(verdict)
    parts = []
    for code, alike in sorted(by_code.items(), key=lambda row: -len(row[1])):
        meaning = f" ({CODES[code].meaning})" if code in CODES else ""
        lines = [f"{len(alike)} {'pod' if len(alike) == 1 else 'pods'}: {code}{meaning}"]
        for verdict in alike[:PODS_SHOWN]:
            lines.append(f"  {verdict.headline}")
            lines += [f"    helps: {remedy.text}" for remedy in verdict.helps[:1]]
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
