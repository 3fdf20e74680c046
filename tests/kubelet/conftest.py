"""Fixtures of these tests."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from dray.kubelet.runtime import cgroup
from tests.short_paths import tmp_path as tmp_path

KERNEL_FILES = ("cgroup.subtree_control", "cpu.weight", "cpu.max", "memory.min", "memory.max", "cgroup.procs")


@pytest.fixture
def cgroup_mount(tmp_path, monkeypatch):
    """A folder in which the kernel would put its files into every new group, and take them along with it."""
    make = Path.mkdir

    def make_group(folder: Path, *args, **options) -> None:
        make(folder, *args, **options)
        if tmp_path in folder.parents:
            controllers = (tmp_path / "cgroup.controllers").read_text()
            (folder / "cgroup.controllers").write_text(controllers)
            if "cpuset" in controllers:
                for name in ("cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective"):
                    (folder / name).write_text((folder.parent / "cpuset.cpus.effective").read_text())
            for name in KERNEL_FILES:
                (folder / name).touch()

    monkeypatch.setattr(Path, "mkdir", make_group)
    monkeypatch.setattr(cgroup, "os", SimpleNamespace(rmdir=shutil.rmtree))
    (tmp_path / "cgroup.controllers").write_text("cpu io memory")
    return tmp_path


@pytest.fixture
def cpuset_mount(cgroup_mount):
    """The same with CPU sets, on a machine of four CPUs."""
    (cgroup_mount / "cgroup.controllers").write_text("cpu cpuset io memory")
    (cgroup_mount / "cgroup.subtree_control").touch()
    (cgroup_mount / "cpuset.cpus.effective").write_text("0-3")
    return cgroup_mount
