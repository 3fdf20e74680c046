"""The explanation of a pod as text: the answer first, then the evidence. A `Paint` adds colours for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from dray.explain.overview import natural
from dray.explain.placement import device_names
from dray.explain.request_counts import STAGES
from dray.explain.text_columns import columns
from dray.explain.verdicts import NodeVerdict, PodVerdict
from dray.visible_text import visible_on_one_line

Paint = Callable[[str, str], str]
"""From a role and a text without line breaks to what a terminal gets. Roles: headline, remedy, label, header, good, bad."""


def plain(role: str, text: str) -> str:
    return text


NODES_SHOWN = 8
SCORES_SHOWN = 3
PODS_SHOWN = 5
# Under the word behind `helps:`.
_MARGIN = " " * 11
_MOST_TEXT = 160


def text_of(
    verdict: PodVerdict,
    *,
    wide: bool = False,
    nodes: Sequence[str] = (),
    width: int | None = None,
    paint: Paint = plain,
) -> str:
    """Lines longer than `width` are wrapped; -o wide shows a row for every node."""
    parts = [_headline(verdict.headline, width, paint)]
    lines = [*_essentials(verdict), *(f"note:    {note}" for note in verdict.notes)]
    parts += [_labelled(f"  {line}", width, _MARGIN, paint) for line in lines]
    rows = [[row] for row in verdict.nodes] if wide or nodes else _alike(verdict.nodes)
    shown = rows if wide or nodes else rows[:NODES_SHOWN]
    if shown:
        parts += ["", _node_table(shown, wide, width, paint)]
        hidden = sum(map(len, rows[len(shown) :]))
        if hidden:
            parts.append(f"... and {hidden} more nodes; -o wide shows them")
    if any(row.scores for row in verdict.nodes):
        parts += ["", *_score_lines(verdict, rows, wide, width, paint)]
    for row in _with_requests(verdict, nodes):
        parts += ["", *_request_lines(row, width, paint)]
    return "\n".join(parts)


def _headline(text: str, width: int | None, paint: Paint) -> str:
    lines = _wrapped(visible_on_one_line(text), width, _MARGIN).splitlines()
    return "\n".join(paint("headline", line) for line in lines)


def _labelled(line: str, width: int | None, margin: str, paint: Paint) -> str:
    """The line, wrapped, with its label painted."""
    text = _wrapped(visible_on_one_line(line), width, margin)
    label = re.match(r" *([a-z]+:)", text)
    if label is None:
        return text
    role = "remedy" if label[1] in ("helps:", "fix:", "usually:") else "label"
    return f"{text[: label.start(1)]}{paint(role, label[1])}{text[label.end(1) :]}"


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
    lines = [*_what_to_do(verdict), *_cause(verdict), *map(_aligned, verdict.details)]
    if miss is not None:
        lines += [
            f"nearest: {miss.sentence()}",
            *(f"hint:    {hint}" for hint in miss.hints if hint not in verdict.headline),
        ]
    return lines


def _aligned(detail: str) -> str:
    label, _, text = detail.partition(": ")
    return f"{label + ':':<8} {text}"


def _cause(verdict: PodVerdict) -> list[str]:
    return [] if verdict.is_well else [f"code:    {verdict.cause}"]


def _what_to_do(verdict: PodVerdict) -> list[str]:
    if verdict.fix or verdict.helps:
        fix = [f"fix:     {verdict.fix}"] if verdict.fix else []
        return [*fix, *(f"helps:   {row.text}" for row in verdict.helps)]
    return [f"usually: {verdict.usually}"] if verdict.usually and not verdict.is_well else []


def text_of_many(verdicts: Sequence[PodVerdict], width: int | None = None, paint: Paint = plain) -> str:
    """Waiting pods by cause, the most frequent cause first; of each pod its headline and what helps first."""
    by_code: dict[str, list[PodVerdict]] = {}
    for verdict in verdicts:
        by_code.setdefault(verdict.code, []).append(verdict)
    parts = []
    for alike in sorted(by_code.values(), key=lambda group: -len(group)):
        head = f"{len(alike)} {'pod' if len(alike) == 1 else 'pods'}: {alike[0].cause}"
        lines = []
        for verdict in alike[:PODS_SHOWN]:
            lines.append(f"  {verdict.headline}")
            lines += [f"    {line}" for line in _what_to_do(verdict)[:1]]
        if len(alike) > PODS_SHOWN:
            lines.append(f"  ... and {len(alike) - PODS_SHOWN} more")
        told = [_labelled(line, width, "    ", paint) for line in lines]
        parts.append("\n".join([_headline(head, width, paint), *told]))
    return "\n\n".join(parts)


def _alike(verdicts: Sequence[NodeVerdict]) -> list[list[NodeVerdict]]:
    """Nodes that refuse or fit for the same reasons in the same words, where the first of them stands."""
    groups: dict[tuple[object, ...], list[NodeVerdict]] = {}
    for verdict in verdicts:
        devices = tuple(name.rpartition("/")[2] for name in verdict.chosen)
        groups.setdefault((_codes(verdict), verdict.message, devices, verdict.scores), []).append(verdict)
    return list(groups.values())


def _codes(verdict: NodeVerdict) -> str:
    return ", ".join(dict.fromkeys(refusal.code for refusal in verdict.refusals)) or verdict.code


def _node_table(shown: Sequence[Sequence[NodeVerdict]], wide: bool, width: int | None, paint: Paint) -> str:
    rows = []
    for alike in shown:
        why = alike[0].message if not alike[0].fits else device_names(alike[0].chosen)
        short = why if wide or width or len(why) <= _MOST_TEXT else f"{why[: _MOST_TEXT - 3]}..."
        rows.append((_names(alike), _codes(alike[0]), short))
    header, *lines = columns(("NODE", "VERDICT", "WHY"), rows).splitlines()
    at = header.index("VERDICT")
    margin = " " * min(header.index("WHY"), width // 2 if width else 0)
    painted = [paint("header", header)]
    for line, alike in zip(lines, shown, strict=True):
        codes = _codes(alike[0])
        text = _wrapped(line, width, margin)
        if text[at:].startswith(codes):
            text = f"{text[:at]}{paint('good' if alike[0].fits else 'bad', codes)}{text[at + len(codes) :]}"
        painted.append(text)
    return "\n".join(painted)


def _score_lines(
    verdict: PodVerdict, rows: Sequence[Sequence[NodeVerdict]], wide: bool, width: int | None, paint: Paint
) -> list[str]:
    """The points of the best nodes, and of the one that the pod is on."""
    fitting = [alike for alike in rows if alike[0].scores]
    own = [alike for alike in fitting if any(row.node == verdict.node for row in alike)]
    shown = fitting if wide else fitting[:SCORES_SHOWN]
    shown = [*shown, *(alike for alike in own if alike not in shown)]
    plugins = [plugin for plugin, _ in shown[0][0].scores]
    cells = [
        (_names(alike), str(alike[0].score), *(str(dict(alike[0].scores).get(plugin, 0)) for plugin in plugins))
        for alike in shown
    ]
    return ["points of each plugin, by its weight:", *_table(("NODE", "POINTS", *plugins), cells, width, paint)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, paint: Paint) -> list[str]:
    """A table, or where it would be wider than the terminal a few lines for each row: its first cell, then the others by name."""
    titles, *lines = columns(header, rows).splitlines()
    if width is None or max(map(len, (titles, *lines))) <= width:
        return [paint("header", titles), *lines]
    return [
        _wrapped(visible_on_one_line(f"{row[0]}: " + ", ".join(map(_cell, header[1:], row[1:]))), width, "    ")
        for row in rows
    ]


def _cell(name: str, value: str) -> str:
    return f"{name} {value}"


def _names(alike: Sequence[NodeVerdict]) -> str:
    names = sorted((verdict.node for verdict in alike), key=natural)
    return ", ".join(names) if len(names) < 3 else f"{names[0]} … {names[-1]}, {len(names)} alike"


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


def _request_lines(verdict: NodeVerdict, width: int | None, paint: Paint) -> list[str]:
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
    said = f"devices on {visible_on_one_line(verdict.node)}, request by request (< marks where too few are left):"
    lines = [line.replace(" <", f" {paint('bad', '<')}") for line in _table(header, rows, width, paint)]
    return [_wrapped(said, width, "    "), *lines]


_TITLES = {
    "exist": "EXIST",
    "matchClass": "CLASS OK",
    "matchSelectors": "SELECTED",
    "free": "FREE",
    "tolerated": "TOLERATED",
    "fit": "FIT",
    "satisfy": "CONSTRAINTS",
}
