"""One set of builders: what `tests/builders` builds is built nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def defined(path: Path) -> set[str]:
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_other_module_defines_a_builder_of_the_same_name() -> None:
    folder = TESTS / "builders"
    shared = {name for path in folder.glob("*.py") for name in defined(path) if name.startswith(("a_", "an_"))}
    assert "a_claim" in shared
    others = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        if folder not in path.parents
        for name in defined(path) & shared
    }
    assert others == set()
