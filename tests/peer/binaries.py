"""The folder with Kubernetes' programs, and how to start one of them."""

import os
from pathlib import Path

from tests.e2e.processes import Process

FOLDER = Path(os.environ["KUBE"]) if os.environ.get("KUBE") else None


def why_not(*names: str) -> str:
    """Why these programs cannot be used; empty if they can."""
    if FOLDER is None:
        return "KUBE names no folder with Kubernetes' programs"
    missing = [name for name in names if not os.access(FOLDER / name, os.X_OK)]
    return f"not in {FOLDER}: {', '.join(missing)}" if missing else ""


def program(name: str) -> str:
    assert FOLDER is not None
    return str(FOLDER / name)


class Binary(Process):
    """One of Kubernetes' programs; its output goes to a file."""

    def __init__(self, folder: Path, name: str, file: str, *arguments: str) -> None:
        super().__init__(folder, name, *arguments)
        self.program = (program(file),)
