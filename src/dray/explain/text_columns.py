"""Tables as kubectl prints them."""

from collections.abc import Iterable, Sequence

from dray.visible_text import visible_on_one_line


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, three blanks apart; an empty cell stays visible as `-`."""
    table = [list(header), *([visible_on_one_line(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(lines)
