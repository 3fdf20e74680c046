"""Somebody who does what a page says: saves its files, runs its commands, and compares what they print."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.documented import Command, File, Output, steps
from tests.waiting import eventually_blocking

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
# These install things; `make` itself is what runs this test.
SET_UP = re.compile(r"make\b|\. \.venv/bin/activate")
# A pod waits, and that is what the exit code says.
ENDS_WITH_ONE = re.compile(r"dray (explain pod/too-many|simulate -f dump.yaml)")


class Reader:
    """One terminal for the cluster and one for the rest."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self._environment = {**os.environ, "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]), "HOME": str(folder)}
        self._environment.pop("KUBECONFIG", None)
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)
        self._cluster = None
        self.printed = ""

    def follow(self, page: str) -> list[str]:
        """The commands that were run."""
        commands = []
        self.printed = ""
        for step in steps(page):
            match step:
                case File(name, text):
                    (self.folder / name).write_text(text)
                case Output(lines):
                    self._expect(lines)
                case Command(line) if not SET_UP.match(line):
                    self.printed += self.run(line)
                    commands.append(line)
        return commands

    def _expect(self, lines):
        printed = " ".join(self.printed.split())
        missing = [line for line in lines if " ".join(line.split()) not in printed]
        assert not missing, f"not printed: {missing}\nprinted: {self.printed[-3000:]}"
        self.printed = ""

    def run(self, line: str, codes: tuple[int, ...] = ()) -> str:
        """What the command prints; its exit code has to be one of `codes`, by default as the page implies."""
        if line.startswith("dray up"):
            return self._start_cluster(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._environment[name] = value.replace("$PWD", str(self.folder))
            return ""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=90
        )
        expected = codes or ((1,) if ENDS_WITH_ONE.match(line) else (0,))
        assert done.returncode in expected, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"
        return done.stdout

    def _start_cluster(self, line: str) -> str:
        log = (self.folder / "up.log").open("w")
        self._cluster = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self._environment, stdout=log, stderr=log
        )
        log_file = self.folder / "up.log"
        eventually_blocking(lambda: "Ctrl-C ends it" in log_file.read_text(), log_file.read_text, within_s=90)
        return ""

    def end(self) -> None:
        if self._cluster is not None:
            self._cluster.send_signal(signal.SIGINT)
            assert self._cluster.wait(60) == 0
            text = (self.folder / "up.log").read_text()
            assert "Traceback" not in text, text
