"""cgroup v2 values for pods and containers, written where this process may write them."""

import logging
import os
from pathlib import Path

from dray.accounting import CgroupValues
from dray.kubelet.runtime.interface import ContainerSpec

log = logging.getLogger(__name__)


class CgroupTree:
    """A cgroup of ours with one child per pod and one grandchild per container."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def open(cls, name: str, mount: Path = Path("/sys/fs/cgroup")) -> "CgroupTree | None":
        """The tree, or None where cgroup v2 is not there or not ours to write."""
        root = mount / name
        try:
            root.mkdir(exist_ok=True)
            controllers = set((root / "cgroup.controllers").read_text().split())
            _enable(root, controllers & {"cpu", "memory", "hugetlb"})
        except OSError as error:
            log.info("cgroup v2 is not writable (%s): limits are computed and shown, not applied", error)
            return None
        return cls(root)

    def apply_pod(self, pod_uid: str, values: CgroupValues) -> None:
        folder = self._root / f"pod{pod_uid}"
        try:
            folder.mkdir(exist_ok=True)
            _enable(folder, set((folder / "cgroup.controllers").read_text().split()) & {"cpu", "memory", "hugetlb"})
            _write(folder, values)
        except OSError as error:
            log.warning("cgroup of pod %s: %s", pod_uid, error)

    def apply_container(self, pod_uid: str, spec: ContainerSpec, pid: int) -> None:
        folder = self._root / f"pod{pod_uid}" / spec.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if spec.cgroup is not None:
                _write(folder, spec.cgroup)
            (folder / "cgroup.procs").write_text(str(pid))
            if spec.oom_score_adj is not None:
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(spec.oom_score_adj))
        except OSError as error:
            log.warning("cgroup of container %s of pod %s: %s", spec.name, pod_uid, error)

    def remove_pod(self, pod_uid: str) -> None:
        folder = self._root / f"pod{pod_uid}"
        for each in [*folder.glob("*/"), folder]:
            try:
                os.rmdir(each)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.info("cgroup %s stays: %s", each, error)


def _enable(folder: Path, controllers: set[str]) -> None:
    if controllers:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in sorted(controllers)))


def _write(folder: Path, values: CgroupValues) -> None:
    for name, content in values.files().items():
        path = folder / name
        if path.exists():
            path.write_text(content)
