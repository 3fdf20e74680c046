"""Pure rooms read no clock, open no file and change nothing that belongs to the whole process.

The import contracts in `pyproject.toml` forbid modules; this test forbids the calls that need no forbidden import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dray"
PURE_ROOMS = ("api", "cel", "validation", "allocator", "accounting", "explain")
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "breakpoint", "__import__"}
# `sys.intern` and the like only answer; everything that sets or reads the state of the process is forbidden.
ALLOWED_OF_SYS = {"intern", "maxsize", "version_info", "float_info", "getsizeof"}
FORBIDDEN_ATTRIBUTES = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "gc": {"collect", "disable", "enable", "freeze", "set_threshold"},
    "warnings": {"simplefilter", "filterwarnings"},
    "locale": {"setlocale"},
    "decimal": {"setcontext", "getcontext"},
    "builtins": {"open"},
}
# `exec` runs the code that a CEL expression is compiled to; it touches nothing but the new function.
COMPILES_PYTHON = {"cel"}


def impure_calls(source: str, room: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            if node.func.id == "exec" and room in COMPILES_PYTHON:
                continue
            yield f"{node.lineno}: {node.func.id}()"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "sys" and node.attr not in ALLOWED_OF_SYS:
                yield f"{node.lineno}: sys.{node.attr}"
            elif node.attr in FORBIDDEN_ATTRIBUTES.get(node.value.id, ()):
                yield f"{node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            yield from (f"{node.lineno}: sys.{name.name}" for name in node.names if name.name not in ALLOWED_OF_SYS)


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_changes_nothing_of_the_process(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{call}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for call in impure_calls(path.read_text(), room)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import sys\nsys.setrecursionlimit(9)", id="recursion-limit"),
        pytest.param("from sys import setrecursionlimit", id="imported-recursion-limit"),
        pytest.param("open('file')", id="file"),
        pytest.param("from datetime import datetime\ndatetime.now()", id="clock"),
    ],
)
def test_the_check_finds_impure_calls(source: str) -> None:
    assert list(impure_calls(source, "api"))
