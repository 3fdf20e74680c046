"""The README and the first steps, followed to the letter in a new directory: every command runs, and prints what the page says."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.documented import Command, File, Output, steps

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
# These install things; `make` itself is what runs this test.
SET_UP = re.compile(r"make\b|\. \.venv/bin/activate")
# A pod waits, and that is what the exit code says.
ENDS_WITH_ONE = re.compile(r"dray (explain pod/too-many|simulate -f dump.yaml)")


class Reader:
    """Somebody who does what the page says, in one terminal for the cluster and one for the rest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]), "HOME": str(folder)}
        self._environment.pop("KUBECONFIG", None)
        self._cluster = None
        self.printed = ""

    def follow(self, page: str) -> int:
        count = 0
        self.printed = ""
        for step in steps(page):
            match step:
                case File(name, text):
                    (self._folder / name).write_text(text)
                case Output(lines):
                    self._expect(lines)
                case Command(line) if not SET_UP.match(line):
                    self.printed += self._run(line)
                    count += 1
        return count

    def _expect(self, lines):
        printed = " ".join(self.printed.split())
        missing = [line for line in lines if " ".join(line.split()) not in printed]
        assert not missing, f"not printed: {missing}\nprinted: {self.printed[-3000:]}"
        self.printed = ""

    def _run(self, line: str) -> str:
        if line.startswith("dray up"):
            return self._start_cluster(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._environment[name] = value.replace("$PWD", str(self._folder))
            return ""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=90
        )
        expected = 1 if ENDS_WITH_ONE.match(line) else 0
        assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"
        return done.stdout

    def _start_cluster(self, line: str) -> str:
        log = (self._folder / "up.log").open("w")
        self._cluster = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self._folder, env=self._environment, stdout=log, stderr=log
        )
        deadline = time.monotonic() + 90
        while "Ctrl-C ends it" not in (self._folder / "up.log").read_text():
            assert time.monotonic() < deadline, (self._folder / "up.log").read_text()
            time.sleep(0.05)
        return ""

    def end(self) -> None:
        if self._cluster is not None:
            self._cluster.send_signal(signal.SIGINT)
            assert self._cluster.wait(20) == 0
            text = (self._folder / "up.log").read_text()
            assert "Traceback" not in text, text


@pytest.mark.timeout(400)  # many small processes: half a minute alone, minutes on a busy machine
@pytest.mark.parametrize(("page", "at_least"), [("README.md", 10), ("docs/getting-started.md", 20)])
def test_the_page_works_as_written(page, at_least, tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    reader = Reader(tmp_path)
    try:
        assert reader.follow((ROOT / page).read_text()) >= at_least
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
