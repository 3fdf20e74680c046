"""cgroup v2 values for pods and containers, and for the parent groups of QoS classes, written where this process may write them.

The tree is that of a kubelet: pods that are Guaranteed lie directly in our group, all others in the group of their class.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dray.accounting import CgroupValues
from dray.kubelet.runtime.interface import ContainerSpec

log = logging.getLogger(__name__)

CONTROLLERS = {"cpu", "memory", "hugetlb"}
# The parent group of a pod, below our own.
PARENTS = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
MOUNT = Path("/sys/fs/cgroup")


def pod_folder(pod_uid: str, values: CgroupValues) -> str:
    """Where the pod's group lies below ours."""
    parent = PARENTS[values.qos_class]
    return f"{parent}/pod{pod_uid}" if parent else f"pod{pod_uid}"


def parent_files(pods: Iterable[CgroupValues]) -> Mapping[str, Mapping[str, str]]:
    """Files of our group and of the groups of classes, by group.

    A class weighs what its pods weigh together, BestEffort nearly nothing. The kernel protects the memory of a pod only as far as
    each group above it is protected, so these have the sum.
    """
    pods = list(pods)
    burstable = [values for values in pods if values.qos_class == "Burstable"]
    weight = CgroupValues(sum(values.cpu_shares for values in burstable) or BEST_EFFORT.cpu_shares).cpu_weight
    return {
        "": {"memory.min": _memory_min(pods)},
        "burstable": {"cpu.weight": str(min(weight, 10_000)), "memory.min": _memory_min(burstable)},
        "besteffort": {"cpu.weight": str(BEST_EFFORT.cpu_weight), "memory.min": "0"},
    }


BEST_EFFORT = CgroupValues(2)


def _memory_min(pods: Iterable[CgroupValues]) -> str:
    return str(sum(values.memory_min for values in pods))


class CgroupTree:
    """A cgroup of ours, the groups of QoS classes in it, one group per pod and one in it per container."""

    def __init__(self, root: Path, mount: Path = MOUNT) -> None:
        self._root = root
        self._mount = mount
        self._pods: dict[str, CgroupValues] = {}

    @classmethod
    def open(cls, name: str, mount: Path = MOUNT) -> "CgroupTree | None":
        """The tree, or None where cgroup v2 is not there or not ours to write."""
        root = mount / name
        try:
            if not (mount / "cgroup.controllers").exists():
                raise OSError(f"{mount} is not cgroup v2")
            for folder in (root, *(root / parent for parent in PARENTS.values() if parent)):
                folder.mkdir(exist_ok=True)
                _enable(folder)
        except OSError as error:
            log.info("cgroup v2 is not writable (%s): limits are computed and shown, not applied", error)
            return None
        return cls(root, mount)

    def apply_pod(self, pod_uid: str, values: CgroupValues) -> None:
        folder = self._root / pod_folder(pod_uid, values)
        self._pods[pod_uid] = values
        try:
            folder.mkdir(exist_ok=True)
            _enable(folder)
            _write(folder, values.files())
            self._apply_parents()
        except OSError as error:
            log.warning("cgroup of pod %s: %s", pod_uid, error)

    def path_of(self, pod_uid: str) -> str:
        """The pod's group as container runtimes name a parent: from the mount on. Empty for a pod that is not known."""
        values = self._pods.get(pod_uid)
        return f"/{(self._root / pod_folder(pod_uid, values)).relative_to(self._mount)}" if values else ""

    def apply_container(self, pod_uid: str, spec: ContainerSpec, pid: int) -> None:
        try:
            folder = self._folder_of(pod_uid) / spec.name
            folder.mkdir(exist_ok=True)
            if spec.cgroup is not None:
                _write(folder, spec.cgroup.files())
            (folder / "cgroup.procs").write_text(str(pid))
            if spec.oom_score_adj is not None:
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(spec.oom_score_adj))
        except OSError as error:
            log.warning("cgroup of container %s of pod %s: %s", spec.name, pod_uid, error)

    def members_file(self, pod_uid: str, container: str) -> str:
        """The file that moves a process which writes its number there into the container's group; empty if there is no group."""
        try:
            return str(self._folder_of(pod_uid) / container / "cgroup.procs")
        except FileNotFoundError:
            return ""

    def memory_of(self, pod_uid: str) -> int | None:
        """Bytes that the pod uses now and that the kernel cannot simply take back; None where the kernel does not say."""
        try:
            folder = self._folder_of(pod_uid)
            used = int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            return None
        return max(0, used - int(stat.get("inactive_file", 0)))

    def remove_pod(self, pod_uid: str) -> None:
        self._pods.pop(pod_uid, None)
        with contextlib.suppress(FileNotFoundError):
            folder = self._folder_of(pod_uid)
            for each in [*folder.glob("*/"), folder]:
                _remove(each)
        with contextlib.suppress(OSError):
            self._apply_parents()

    def _folder_of(self, pod_uid: str) -> Path:
        """The pod's group, also that of an earlier life of this agent."""
        for parent in PARENTS.values():
            folder = self._root / parent / f"pod{pod_uid}"
            if folder.is_dir():
                return folder
        raise FileNotFoundError(f"pod {pod_uid} has no group")

    def _apply_parents(self) -> None:
        for group, files in parent_files(self._pods.values()).items():
            _write(self._root / group, files)


def _remove(folder: Path) -> None:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.info("cgroup %s stays: %s", folder, error)


def _enable(folder: Path) -> None:
    controllers = set((folder / "cgroup.controllers").read_text().split()) & CONTROLLERS
    if controllers:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in sorted(controllers)))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        if path.exists():
            path.write_text(content)
