"""The second run of `make test` names the tests that passed only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
from pathlib import Path

def test_unsteady():
    marker = Path(__file__).with_name("ran-once")
    ran_before = marker.exists()
    marker.touch()
    assert ran_before

def test_broken():
    assert False

def test_steady():
    pass
"""


def _pytest(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", f"--rootdir={folder}", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_only_a_test_that_fails_and_then_passes_is_listed(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_three.py").write_text(TESTS)
    first = _pytest(tmp_path)
    assert "2 failed, 1 passed" in first
    assert "second try" not in first

    second = _pytest(tmp_path, "--last-failed", "-p", "tests.second_try")
    heading, _, listed = second.partition("passed only at the second try: 1 ")
    assert heading != second
    assert "test_unsteady" in listed
    assert "test_broken" not in listed.partition("short test summary")[0]
    assert "test_steady" not in listed
