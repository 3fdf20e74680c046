"""What a page tells its reader to do: files to save, commands to run, and what they print."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

PROGRAMS = ("dray", "kubectl", "export", "make", ".", "python", "eval", "cd")
_FILE_NAME = re.compile(r"# ([\w.-]+\.\w+)")


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    line: str


@dataclass(frozen=True, slots=True)
class Output:
    """Each line of it is in what the commands before have printed."""

    lines: tuple[str, ...]


def steps(page: str) -> Iterator[File | Command | Output]:
    """In the order of the page. Indented blocks are commands, or output of those before; a fenced block that starts with
    `# name` is a file, and one without is for reading only."""
    for fence, block in re.findall(r"^```\w*\n(.*?)^```$|((?:^    [^\n]*\n(?:\n(?=    ))?)+)", page, re.M | re.S):
        if fence:
            name = _FILE_NAME.match(fence)
            if name:
                yield File(name[1], fence)
            continue
        for part in re.split(r"\n\s*\n", block.strip("\n")):
            yield from _indented(part)


def _indented(part: str) -> Iterator[Command | Output]:
    lines = [line.strip() for line in part.splitlines() if line.strip()]
    if lines[0].split()[0] in PROGRAMS:
        yield from (Command(re.sub(r"\s+# .*", "", line)) for line in lines)
    else:
        yield Output(tuple(lines))
