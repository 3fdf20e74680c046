"""The table of the KEPs' statements: each is done, and its tests exist, or differs on purpose, and that is written down."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "kep-coverage.md"
DIFFERENCES = (ROOT / "docs" / "differences.md").read_text()

STATEMENTS = 385
TRIED = 50
VERDICTS = {"done", "differs"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Row(NamedTuple):
    kep: str
    number: str
    statement: str
    verdict: str
    by: str


def rows() -> list[Row]:
    found, kep = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            kep = line[3:]
        elif match := re.match(r"\| (\d+) \| .*? \| (.*) \| (\w+) \| (.*) \|$", line):
            found.append(Row(kep, *match.groups()))
    return found


ROWS = rows()


def test_every_statement_has_a_verdict() -> None:
    assert len(ROWS) == STATEMENTS
    assert {row.verdict for row in ROWS} <= VERDICTS


def test_the_counts_are_right() -> None:
    counts = Counter(row.verdict for row in ROWS)
    for verdict in VERDICTS:
        assert re.search(rf"^\| {verdict} \| .* \| {counts[verdict]} \|$", PAGE.read_text(), re.MULTILINE), verdict


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.verdict == "done"], ids=lambda row: f"{row.kep}-{row.number}"
)
def test_named_tests_exist(row: Row) -> None:
    check_names(row.by)


def check_names(by: str) -> None:
    names = re.findall(r"`(tests/[^`]+)`", by)
    assert names, "no test is named"
    for name in names:
        path, _, test = name.partition("::")
        function, _, case = test.rstrip("]").partition("[")
        assert function, f"{name}: which test of the file?"
        assert function in quick_tests(ROOT / path), f"{name}: is not there, or is left out of `make test`"
        assert not case or is_a_case(ROOT / path, case), name


@cache
def quick_tests(path: Path) -> set[str]:
    """The tests of a file, without those that are never part of a usual run."""
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS))
    return {
        node.name
        for node in functions
        if "pytest.mark.torture" not in {ast.unparse(mark) for mark in node.decorator_list}
    }


@cache
def is_a_case(test_file: Path, case: str) -> bool:
    """A case has its name in the test's file, or in the data beside it."""
    return any(case in file.read_text() for file in (test_file, *sorted(test_file.parent.glob("data/*.ndjson"))))


def test_everything_that_was_tried_is_a_test() -> None:
    _, _, table = PAGE.read_text().partition("\n## Tried on running clusters\n")
    tried = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", table, re.MULTILINE)
    assert [int(number) for number, _ in tried] == list(range(1, TRIED + 1))
    for _, by in tried:
        check_names(by)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.verdict == "differs"], ids=lambda row: f"{row.kep}-{row.number}"
)
def test_differences_are_written_down(row: Row) -> None:
    match = re.search(r'"(.+)"$', row.by)
    assert match, "the line of differences.md is not named"
    assert match.group(1) in DIFFERENCES
