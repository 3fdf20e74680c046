"""An image of Dray out of what is installed here, as `deploy/Containerfile` makes one out of a registry's packages."""

import importlib.metadata
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.e2e.containerd import add_folders, write_archive

ROOT = Path(__file__).parents[2]
EXTRAS = ("pyroute2", "nvidia-ml-py")
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "ensurepip", "__pycache__"}


def make_dray_image(path: Path, image: str) -> None:
    python = Path(sys.executable).resolve()
    packages = Path(importlib.metadata.distribution("click").locate_file(""))
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        add_folders(tar)
        files = [python, *_standard_library(), *_installed()]
        for file in (*files, *_libraries(files)):
            tar.add(file, str(file).lstrip("/"), recursive=False)
        tar.add(ROOT / "src/dray", "opt/dray/dray", filter=_without_caches)
    environment = ["PATH=/bin", f"PYTHONPATH=/opt/dray:{packages}", "PYTHONUNBUFFERED=1"]
    command = {"Env": environment, "Entrypoint": [str(python), "-m", "dray"], "User": "65532:65532"}
    write_archive(path, image, layer.getvalue(), command)


def _standard_library() -> Iterator[Path]:
    folder = Path(sys.base_prefix) / f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    for file in folder.rglob("*"):
        if file.is_file() and not _LEFT_OUT & set(file.relative_to(folder).parts):
            yield file


def _installed() -> Iterator[Path]:
    """The packages of `requirements.lock` and those of the drivers of real devices."""
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    for name in (*locked, *EXTRAS):
        for file in importlib.metadata.distribution(name).files or ():
            found = Path(file.locate()).resolve()
            if found.is_file() and not {"__pycache__", "bin"} & set(file.parts):
                yield found


def _libraries(files: Iterable[Path]) -> set[Path]:
    """The shared libraries that programs and modules need, under the names by which they are looked for."""
    binaries = [str(file) for file in files if ".so" in file.name or file.parent.name == "bin"]
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return {Path(name) for name in re.findall(r"(/\S+) \(0x", listed)}


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry
