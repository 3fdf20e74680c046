"""Prints results for programs (JSON, YAML), and the progress line of long commands."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import msgspec
import yaml

# Redrawing the line at every step would cost more than the work.
REDRAW_EVERY_S = 0.1
# Work that ends sooner shows no line.
SHOW_AFTER_S = 0.5
WIDTH = 24


def write_document(document: Any, output: str) -> None:
    """`json` or `yaml` on standard output."""
    if output == "json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    else:
        text = yaml.safe_dump(document, sort_keys=False).rstrip()
    sys.stdout.write(text + "\n")


class ProgressLine:
    """One line on a terminal that says how far long work has come; nothing in a pipe."""

    def __init__(self, what: str, *, unit: str) -> None:
        self._what = what
        self._unit = unit
        self._is_shown = sys.stderr.isatty()
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._has_line = False
        self._done = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, amount: int) -> None:
        self._done += amount
        self._draw(f"{self._done:,} {self._unit}")

    def step(self) -> None:
        self.add(1)

    def at(self, done: int, total: int) -> None:
        if not self._is_shown:
            return
        filled = WIDTH * done // total if total else WIDTH
        self._draw(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done:,} of {total:,} {self._unit}")

    def _draw(self, text: str) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._started < SHOW_AFTER_S or now - self._drawn_at < REDRAW_EVERY_S:
            return
        self._drawn_at = now
        self._has_line = True
        sys.stderr.write(f"\r\x1b[K{self._what} {text}")
        sys.stderr.flush()
