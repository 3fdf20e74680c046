"""Prints: hidden characters shown, lines with colours, results for programs (JSON, YAML), and the progress line of long commands."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TextIO, cast

import click

from dray.visible_text import visible, visible_on_one_line

# Redrawing the line at every step would cost more than the work.
REDRAW_EVERY_S = 0.1
# Work that ends sooner shows no line.
SHOW_AFTER_S = 0.5
WIDTH = 24


@dataclass(frozen=True, slots=True)
class Coloured:
    """A word of a line that has a colour on a terminal."""

    text: str
    colour: str


class VisibleStream(io.TextIOBase):
    """Standard output or error that shows hidden characters instead of passing them on, whoever writes them.

    `terminal` is the stream below, for output that draws on the terminal itself. There is no `buffer`: bytes have no way around.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str | bytes) -> int:
        """click writes what it offers a shell for completion as bytes."""
        shown = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
        self.terminal.write(visible(shown))
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self.terminal.flush()

    def isatty(self) -> bool:
        return self.terminal.isatty()

    def fileno(self) -> int:
        return self.terminal.fileno()

    def close(self) -> None:
        self.terminal.close()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.terminal.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.terminal.errors


def show_hidden_characters() -> None:
    """From now on, in all this process prints."""
    sys.stdout = cast(TextIO, VisibleStream(sys.stdout))
    sys.stderr = cast(TextIO, VisibleStream(sys.stderr))


def terminal_of(stream: TextIO) -> TextIO:
    """The stream that draws: for own colours and cursor movements, never for text from elsewhere."""
    return stream.terminal if isinstance(stream, VisibleStream) else stream


def wants_colour(stream: TextIO) -> bool:
    """On a terminal that knows colours, unless the user does not want any (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_painted(text: str) -> None:
    """On standard output. The text has colours of its own, so whoever painted it has shown hidden characters before."""
    click.echo(without_backticks(text), file=terminal_of(sys.stdout), color=wants_colour(sys.stdout))


def without_backticks(text: str) -> str:
    """Texts mark code with backticks, as the docs and the dashboard want it; on a terminal it stands in quotes."""
    return re.sub(r"`([^`\n]*)`", "“\\1”", text)


def show_text(text: str, *, err: bool = False) -> None:
    click.echo(without_backticks(text), err=err)


def show_line(*parts: str | Coloured, err: bool = False) -> None:
    """One line on standard output or error, whatever the parts contain."""
    shown = (
        click.style(visible_on_one_line(part.text), fg=part.colour)
        if isinstance(part, Coloured)
        else visible_on_one_line(without_backticks(part))
        for part in parts
    )
    stream = terminal_of(sys.stderr if err else sys.stdout)
    click.echo("".join(shown), file=stream, color=wants_colour(stream))


def counted(number: int, word: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def write_document(document: Any, output: str) -> None:
    """`json` or `yaml` on standard output."""
    if output == "json":
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    else:
        import yaml

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
            self._write("\r\x1b[K")

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
        self._write(f"\r\x1b[K{self._what} {text}")

    @staticmethod
    def _write(text: str) -> None:
        terminal = terminal_of(sys.stderr)
        terminal.write(text)
        terminal.flush()
