"""The explanation of a pod as text: the answer first, then the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dray.explain.reason_codes import CODES
from dray.explain.request_counts import STAGES
from dray.explain.text_columns import columns
from dray.explain.verdicts import NodeVerdict, PodVerdict
from dray.visible_text import visible_on_one_line

NODES_SHOWN = 8
_MOST_TEXT = 160


def text_of(verdict: PodVerdict, *, wide: bool = False, nodes: Sequence[str] = ()) -> str:
    lines = [verdict.headline, *(f"  {line}" for line in _essentials(verdict))]
    lines += [f"  note:    {note}" for note in verdict.notes]
    parts = [visible_on_one_line(line) for line in lines]
    shown = verdict.nodes if wide or nodes else verdict.nodes[:NODES_SHOWN]
    if shown:
        parts += ["", _node_table(shown, wide=wide)]
        hidden = len(verdict.nodes) - len(shown)
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


def _node_table(shown: Sequence[NodeVerdict], *, wide: bool) -> str:
    rows = []
    for verdict in shown:
        codes = ", ".join(dict.fromkeys(refusal.code for refusal in verdict.refusals)) or verdict.code
        why = verdict.message if not verdict.fits else ", ".join(verdict.chosen)
        rows.append((verdict.node, codes, why if wide or len(why) <= _MOST_TEXT else f"{why[: _MOST_TEXT - 3]}..."))
    return columns(("NODE", "VERDICT", "WHY"), rows)


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
