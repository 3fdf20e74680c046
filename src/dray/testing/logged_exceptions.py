"""Python exceptions in the output of a process: what was raised, and where in the author's own code."""

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import dray

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")
_HEADER = "Traceback (most recent call last):"
# Between the tracebacks of a chain; the last one is what was raised in the end.
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Code that no driver author wrote.
_OTHERS = (str(Path(dray.__file__).parent), *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True, slots=True)
class LoggedException:
    """`text` is the traceback's last line without the exception's module, such as `KeyError: 'speed'`."""

    text: str
    file: str
    line: int
    function: str = ""

    @property
    def where(self) -> str:
        place = f"{_shown(self.file)}, line {self.line}"
        return f"{place}, in {self.function}" if self.function else place

    def __str__(self) -> str:
        return f"{self.text} ({self.where})"

    def is_like(self, other: "LoggedException") -> bool:
        """Raised by the same line, whatever the values were."""
        return (self.file, self.line, _kind(self.text)) == (other.file, other.line, _kind(other.text))


def exceptions_in(output: str) -> list[LoggedException]:
    """In the order of their appearance; of exceptions that led to each other only the last."""
    found: list[LoggedException] = []
    frames: list[re.Match[str]] = []
    goes_on = False
    for line in output.splitlines():
        if line == _HEADER:
            frames = []
        elif line in _CHAINS:
            goes_on = True
        elif (frame := _FRAME.fullmatch(line)) is not None:
            frames.append(frame)
        elif frames and line and not line[0].isspace():
            if goes_on:
                del found[-1:]
            found.append(_exception(line, frames))
            frames, goes_on = [], False
    return found


def _exception(text: str, frames: list[re.Match[str]]) -> LoggedException:
    """At the innermost line of the author's own code, if there is one."""
    own = [frame for frame in frames if not frame["file"].startswith((*_OTHERS, "<"))]
    frame = (own or frames)[-1]
    return LoggedException(_MODULE.sub("", text), frame["file"], int(frame["line"]), frame["function"] or "")


def _kind(text: str) -> str:
    return text.partition(":")[0]


def _shown(file: str) -> str:
    """As a person in this directory would name it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
