"""Changes one token of Dray at a time and sees whether the room's own tests notice (`make mutants`).

A mutant is the source with one comparison turned, one condition negated or one call left out. A fixed seed draws the same mutants from the same source.
A mutant is killed when a test fails, fails again, and passes without the change. Survivors are either gaps in the tests or equivalent: the latter stand in
`scripts/mutants.toml` with the reason, and do not count.

With `--defences` the edits are those of `scripts/defences.toml`: each takes one defence away, and the test that it names must fail.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
DESCRIPTION = Path(__file__).with_suffix(".toml")
DEFENCES = DESCRIPTION.with_name("defences.toml")
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
# What such a call leaves undone is only seen by people who read logs.
SPOKEN_ONLY = {"debug", "info", "warning", "exception", "error", "log"}
FAILED = "FAILED "
PYTEST = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "--no-header",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "-m",
    "not torture",
)


@dataclass(frozen=True)
class Room:
    """Sources that are mutated together, and the tests that belong to them. In a `strict` room every survivor is a failure."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    strict: bool


@dataclass(frozen=True)
class Mutant:
    """One edit of one file: `old` at `start` becomes `new`."""

    room: Room
    path: Path
    line: int
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        shown = " ".join(self.old.split())
        return f"{self.path.relative_to(ROOT)}:{self.line}: {shown[:90]}  ->  {' '.join(self.new.split())[:90]}"

    def applied(self) -> str:
        text = self.path.read_text()
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


@dataclass(frozen=True)
class Failure:
    """What was seen, and the tests that have to pass without the change: the one that failed, or all where none is named."""

    what: str
    tests: list[str]
    names_a_test: bool


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str | None
    seconds: float


class Offsets:
    """The place of a syntax node in the text; `ast` counts columns in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def mutants_of(room: Room, path: Path) -> Iterator[Mutant]:
    text = path.read_text()
    offsets = Offsets(text)
    for node, new in edits(ast.parse(text)):
        start, end = offsets.span(node)
        yield Mutant(room, path, node.lineno, start, text[start:end], new)


def edits(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            turned = copy.deepcopy(node)
            turned.ops = [TURNED[type(node.ops[0])]()]
            yield node, f"({ast.unparse(turned)})"
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.Constant):
            if ast.unparse(node.test) != "TYPE_CHECKING":
                yield node.test, f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.Expr) and called(node.value) not in {None, *SPOKEN_ONLY}:
            yield node, "pass"


def called(value: ast.expr) -> str | None:
    """The last name of the function that a statement calls."""
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return None
    return value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "?")


def drawn(room: Room, count: int, seed: int) -> list[Mutant]:
    files = sorted(file for source in room.sources for file in ROOT.glob(source))
    every = [mutant for file in files for mutant in mutants_of(room, file)]
    return random.Random(f"{seed}/{room.name}").sample(every, min(count, len(every)))


class Workplace:
    """A copy of the sources that one mutant at a time is written into."""

    def __init__(self, folder: Path) -> None:
        self.src = folder / "src"
        shutil.copytree(ROOT / "src", self.src, ignore=shutil.ignore_patterns("__pycache__"))

    def judge(self, mutant: Mutant, tests: list[str], limit_s: float) -> Verdict:
        target = self.src / mutant.path.relative_to(ROOT / "src")
        began = time.monotonic()
        target.write_text(mutant.applied())
        try:
            failure = self.first_failure(tests, limit_s)
            if failure is not None and failure.names_a_test:
                failure = self.first_failure(failure.tests, limit_s)  # By chance it fails once, hardly twice.
        finally:
            target.write_text(mutant.path.read_text())
        if failure is not None and self.first_failure(failure.tests, limit_s) is not None:
            failure = None  # It is the same without the change, so nothing was noticed.
        return Verdict(mutant, failure.what if failure is not None else None, time.monotonic() - began)

    def first_failure(self, tests: list[str], limit_s: float) -> Failure | None:
        environment = {**os.environ, "PYTHONPATH": str(self.src), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *PYTEST, *tests]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return Failure(f"no end within {limit_s:.0f} s", tests, names_a_test=False)
        if process.returncode == 0:
            return None
        failures = [line for line in output.splitlines() if line.startswith((FAILED, "ERROR "))]
        if not failures:
            return Failure(f"pytest ended with {process.returncode}", tests, names_a_test=False)
        name = failures[0].split(" ", 1)[1].split(" - ")[0]
        return Failure(name, [name], names_a_test=True)


def nearest_first(room: Room, mutant: Mutant) -> list[str]:
    """The room's test files; those that speak of the mutated module come first, so that most mutants die at once."""
    files = sorted({file for test in room.tests for file in ROOT.glob(test)})
    module = ".".join(mutant.path.relative_to(ROOT / "src").with_suffix("").parts)
    words = {word for word in mutant.path.stem.split("_") if len(word) > 3}
    ranked = sorted(
        files, key=lambda file: (module not in file.read_text(), not words & set(file.stem.split("_")), str(file))
    )
    return [str(file.relative_to(ROOT)) for file in ranked]


def described() -> tuple[list[Room], dict[tuple[str, str], str]]:
    """The rooms, and for each equivalent mutant (file and old text) why no test can see it."""
    read = tomllib.loads(DESCRIPTION.read_text())
    rooms = [
        Room(name, tuple(each["sources"]), tuple(each["tests"]), each.get("strict", False))
        for name, each in read["rooms"].items()
    ]
    return rooms, {(each["file"], each["old"]): each["reason"] for each in read.get("equivalent", [])}


@dataclass(frozen=True)
class Defence:
    """An attack, the edit that takes away what stops it, and the test that tries it."""

    attack: str
    edit: Mutant
    test: str


def defences() -> list[Defence]:
    found = []
    for each in tomllib.loads(DEFENCES.read_text())["defence"]:
        path = ROOT / each["file"]
        text, old = path.read_text(), each["old"]
        if text.count(old) != 1:
            raise SystemExit(f"{each['file']} has {text.count(old)} times, not once: {old}")
        start = text.index(old)
        room = Room(each["attack"], (each["file"],), (each["test"].partition("::")[0],), strict=True)
        edit = Mutant(room, path, text.count("\n", 0, start) + 1, start, old, each["new"])
        found.append(Defence(each["attack"], edit, each["test"]))
    return found


def judged(mutants: list[Mutant], workers: int, limit_s: float) -> Iterator[Verdict]:
    yield from judged_by(
        [(mutant, nearest_first(mutant.room, mutant)) for mutant in mutants], workers=workers, limit_s=limit_s
    )


def judged_by(work: list[tuple[Mutant, list[str]]], *, workers: int, limit_s: float) -> Iterator[Verdict]:
    """Each mutant by its tests, in the order of the list."""
    with tempfile.TemporaryDirectory(prefix="dray-mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        free: SimpleQueue[Workplace] = SimpleQueue()
        for number in range(workers):
            free.put(Workplace(Path(folder) / str(number)))

        def judge(asked: tuple[Mutant, list[str]]) -> Verdict:
            workplace = free.get()
            try:
                return workplace.judge(*asked, limit_s)
            finally:
                free.put(workplace)

        yield from pool.map(judge, work)


def report(verdicts: list[Verdict], least: float) -> int:
    missed = 0
    for name in dict.fromkeys(verdict.mutant.room.name for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.mutant.room.name == name]
        killed = sum(verdict.killed_by is not None for verdict in own)
        strict = own[0].mutant.room.strict
        missed += len(own) - killed if strict else 0
        print(f"{name}: {killed} of {len(own)} killed{' (every one must be)' if strict else ''}")
    share = sum(verdict.killed_by is not None for verdict in verdicts) / max(len(verdicts), 1)
    print(f"all: {share:.1%} of {len(verdicts)} killed; at least {least:.0%} are asked for")
    return 1 if missed or share < least else 0


def check_defences(wanted: str, workers: int, limit_s: float) -> int:
    """Tells of each defence whether its test fails without it."""
    chosen = [each for each in defences() if wanted in f"{each.attack} {each.edit.path} {each.test}"]
    missed = 0
    verdicts = judged_by([(each.edit, [each.test]) for each in chosen], workers=workers, limit_s=limit_s)
    for each, verdict in zip(chosen, verdicts, strict=True):
        missed += verdict.killed_by is None
        held = "held by " if verdict.killed_by else "NOT HELD BY"
        print(f"{verdict.seconds:4.0f} s  {each.attack}: {held} {each.test}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} attacks are noticed when their defence is gone")
    return 1 if missed or not chosen else 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("rooms", nargs="*", help="names of rooms in scripts/mutants.toml; all of them without")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=12, help="mutants a room")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--limit", type=float, default=400, help="seconds for one mutant")
    options.add_argument("--least", type=float, default=0.9, help="share to be killed")
    options.add_argument("--list", action="store_true", help="only show the mutants")
    options.add_argument(
        "--defences", nargs="?", const="", metavar="TEXT", help="take defences away, all or those with TEXT"
    )
    asked = options.parse_args()
    if asked.defences is not None:
        return check_defences(asked.defences, asked.workers, asked.limit)
    rooms, equivalent = described()
    sample = [
        mutant
        for room in rooms
        if room.name in (asked.rooms or [room.name])
        for mutant in drawn(room, asked.count, asked.seed)
    ]
    skipped = [mutant for mutant in sample if (str(mutant.path.relative_to(ROOT)), mutant.old) in equivalent]
    for mutant in skipped:
        print(f"equivalent: {mutant}: {equivalent[str(mutant.path.relative_to(ROOT)), mutant.old]}")
    sample = [mutant for mutant in sample if mutant not in skipped]
    if asked.list:
        print(*sample, sep="\n")
        return 0
    verdicts = []
    for verdict in judged(sample, asked.workers, asked.limit):
        verdicts.append(verdict)
        print(
            f"{'killed  ' if verdict.killed_by else 'SURVIVED'} {verdict.seconds:4.0f} s  {verdict.mutant}  {verdict.killed_by or ''}",
            flush=True,
        )
    return report(verdicts, asked.least)


if __name__ == "__main__":
    sys.exit(main())
