"""Small plots for a page: bars, columns, and a map of squares. Colours are CSS classes, so the page decides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

NOTHING = '<p class="none">nothing to show</p>'
MOST_COLUMNS = 12


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
    """Horizontal bars, one below the other; `total` is the full width, by default the longest bar.

    Boxes and not a drawing: on a narrow screen the words keep their size and the bars give way.
    """
    if not rows:
        return NOTHING
    longest = total or max((sum(part.amount for part in row.parts) for row in rows), default=1) or 1
    return f'<div class="bars">{"".join(_bar(row, longest) for row in rows)}</div>'


def _bar(row: Bar, longest: float) -> str:
    parts = "".join(
        f'<i class="{part.css}" style="width:{100 * min(part.amount / longest, 1.0):.2f}%" title="{escape(part.title)}"></i>'
        for part in row.parts
        if part.amount > 0
    )
    label = escape(row.label)
    return (
        f'<span class="label" title="{label}">{label}</span><span class="rail">{parts}</span>'
        f'<span class="value">{escape(row.value)}</span>'
    )


@dataclass(frozen=True, slots=True)
class Square:
    """`level` from 0 (empty) to 4 (full); -1 is absent."""

    level: int
    title: str


def square_map(squares: Sequence[Square], per_row: int = 50) -> str:
    if not squares:
        return NOTHING
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
        return NOTHING
    most = max(count for _, count in counts) or 1
    step = 44 if all(len(label) < 5 for label, _ in counts) else 66
    width = step * len(counts) + 10
    out = [f'<div class="wide"><svg viewBox="0 0 {width} 170" role="img" style="width:{width}px">']
    for index, (label, count) in enumerate(counts):
        height = 120 * count / most
        x = index * step + 8
        out.append(
            f'<rect class="{css}" x="{x}" y="{140 - height:.1f}" width="{step - 14}" height="{height:.1f}" rx="2">'
            f"<title>{escape(label)}: {count}</title></rect>"
            f'<text class="value" x="{x + (step - 14) / 2}" y="{134 - height:.1f}" text-anchor="middle">{count}</text>'
            f'<text class="label" x="{x + (step - 14) / 2}" y="158" text-anchor="middle">{escape(label)}</text>'
        )
    return "".join([*out, "</svg></div>"])


def distribution(amounts: Mapping[int, int]) -> list[tuple[str, int]]:
    """How often each number occurs, from 0 to the largest; many different numbers share columns."""
    largest = max(amounts, default=0)
    width = -(-(largest + 1) // MOST_COLUMNS)
    return [
        (
            str(low) if width == 1 else f"{low}–{low + width - 1}",
            sum(amounts.get(number, 0) for number in range(low, low + width)),
        )
        for low in range(0, largest + 1, width)
    ]
