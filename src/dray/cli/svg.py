"""Small plots as inline SVG: bars, stacked bars, and a map of squares. Colours are CSS classes, so a page decides them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

ROW = 22
LABEL = 190
BAR = 460
VALUE = 150


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a bar: how long, which CSS class, and what it says when pointed at."""

    amount: float
    css: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    parts: tuple[Part, ...]
    value: str = ""


def bars(rows: Sequence[Bar], total: float | None = None) -> str:
    """Horizontal bars, one below the other; `total` is the full width, by default the longest bar."""
    if not rows:
        return '<p class="none">nothing to show</p>'
    longest = total or max((sum(part.amount for part in row.parts) for row in rows), default=1) or 1
    height, width = ROW * len(rows) + 4, LABEL + BAR + VALUE
    out = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for index, row in enumerate(rows):
        top = index * ROW
        out.append(f'<text class="label" x="{LABEL - 8}" y="{top + 15}" text-anchor="end">{_cut(row.label, 28)}</text>')
        out.append(f'<rect class="rail" x="{LABEL}" y="{top + 4}" width="{BAR}" height="{ROW - 8}" rx="2"/>')
        left = float(LABEL)
        for part in row.parts:
            length = BAR * min(part.amount / longest, 1.0)
            if length > 0:
                title = f"<title>{escape(part.title)}</title>" if part.title else ""
                out.append(
                    f'<rect class="{part.css}" x="{left:.1f}" y="{top + 4}" width="{length:.1f}" '
                    f'height="{ROW - 8}">{title}</rect>'
                )
                left += length
        out.append(f'<text class="value" x="{LABEL + BAR + 8}" y="{top + 15}">{_cut(row.value, 24)}</text>')
    return "".join([*out, "</svg>"])


@dataclass(frozen=True, slots=True)
class Square:
    """`level` from 0 (empty) to 4 (full); -1 is absent."""

    level: int
    title: str


def square_map(squares: Sequence[Square], per_row: int = 50) -> str:
    if not squares:
        return '<p class="none">nothing to show</p>'
    per_row = min(per_row, len(squares))
    rows = -(-len(squares) // per_row)
    out = [f'<svg viewBox="0 0 {per_row * 16} {rows * 16}" role="img" style="max-width:{per_row * 16}px">']
    for index, square in enumerate(squares):
        x, y = index % per_row * 16, index // per_row * 16
        css = "absent" if square.level < 0 else f"level{square.level}"
        out.append(
            f'<rect class="{css}" x="{x + 1}" y="{y + 1}" width="14" height="14" rx="2">'
            f"<title>{escape(square.title)}</title></rect>"
        )
    return "".join([*out, "</svg>"])


def columns_plot(counts: Sequence[tuple[str, int]], css: str = "taken") -> str:
    """Upright columns with their numbers, for distributions."""
    if not counts:
        return '<p class="none">nothing to show</p>'
    most = max(count for _, count in counts) or 1
    step = 44
    out = [
        f'<svg viewBox="0 0 {step * len(counts) + 10} 170" role="img" style="max-width:{step * len(counts) + 10}px">'
    ]
    for index, (label, count) in enumerate(counts):
        height = 120 * count / most
        x = index * step + 8
        out.append(
            f'<rect class="{css}" x="{x}" y="{140 - height:.1f}" width="{step - 14}" height="{height:.1f}" rx="2">'
            f"<title>{escape(label)}: {count}</title></rect>"
            f'<text class="value" x="{x + 15}" y="{134 - height:.1f}" text-anchor="middle">{count}</text>'
            f'<text class="label" x="{x + 15}" y="158" text-anchor="middle">{escape(label)}</text>'
        )
    return "".join([*out, "</svg>"])


def _cut(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")
