"""kubectl as a user calls it, with a kubeconfig and a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.waiting import eventually_blocking

KUBECTL = shutil.which("kubectl")
TIMEOUT_S = 60


class Kubectl:
    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(self, *words: str, fails: bool = False, stdin: str = "") -> str:
        assert KUBECTL is not None
        done = subprocess.run(
            [KUBECTL, *words], env=self.environment, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def apply(self, *documents: dict[str, Any]) -> str:
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        return self.run("apply", "-f", "-", stdin=items)

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", *words, "-o", "json"))
        return found

    def until(self, wanted: str, *words: str) -> str:
        """Ask again until the answer has the wanted text."""
        seen = ""

        def is_there() -> bool:
            nonlocal seen
            seen = self.run(*words)
            return wanted in seen

        eventually_blocking(
            is_there, lambda: f"{wanted!r} in the answer to kubectl {' '.join(words)}: {seen}", TIMEOUT_S / 2
        )
        return seen
