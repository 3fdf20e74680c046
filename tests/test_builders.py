"""One set of builders: what `tests/builders` and `tests/scheduler/world.py` build is built nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent


def defined(path: Path) -> set[str]:
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_other_module_defines_a_builder_of_the_same_name() -> None:
    folder = TESTS / "builders"
    homes = [*folder.glob("*.py"), TESTS / "scheduler" / "world.py"]
    shared = {name for path in homes for name in defined(path) if name.startswith(("a_", "an_"))}
    assert shared >= {"a_claim", "a_world"}
    others = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        if path not in homes
        for name in defined(path) & shared
    }
    assert others == set()
