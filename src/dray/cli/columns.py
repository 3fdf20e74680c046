"""Tables as kubectl prints them, and the same for programs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import yaml


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, three blanks apart; an empty cell stays visible as `-`."""
    table = [list(header), *([cell or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join(lines)


def write_document(document: Any, output: str) -> None:
    """`json` or `yaml` on standard output."""
    if output == "json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    else:
        text = yaml.safe_dump(document, sort_keys=False).rstrip()
    sys.stdout.write(text + "\n")
