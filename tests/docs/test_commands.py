"""The README and the first steps, followed to the letter in a new directory: every command runs, and prints what the page says."""

import shutil

import pytest

from tests.docs.documented import Command, File, Output, steps
from tests.docs.reader import ROOT, Reader


@pytest.mark.timeout(400)  # many small processes: half a minute alone, minutes on a busy machine
@pytest.mark.parametrize(("page", "at_least"), [("README.md", 10), ("docs/getting-started.md", 20)])
def test_the_page_works_as_written(page, at_least, tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    reader = Reader(tmp_path)
    try:
        assert len(reader.follow((ROOT / page).read_text())) >= at_least
    finally:
        reader.end()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "a\n\n    dray up   # starts\n    kubectl get x\n\nb\n",
            [Command("dray up"), Command("kubectl get x")],
            id="commands",
        ),
        pytest.param("    dray up\n\n    ready\n", [Command("dray up"), Output(("ready",))], id="command-then-output"),
        pytest.param("```python\n# t.py\nx = 1\n```\n", [File("t.py", "# t.py\nx = 1\n")], id="file"),
        pytest.param("```python\nx = 1\n```\n", [], id="for-reading-only"),
    ],
)
def test_what_a_page_tells_its_reader(text, expected):
    assert list(steps(text)) == expected
