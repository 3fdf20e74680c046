"""cgroup v2 values for pods and containers, and for the parent groups of QoS classes, written where this process may write them.

The tree is that of a kubelet: pods that are Guaranteed lie directly in our group, all others in the group of their class.

CPU sets keep containers on the CPUs of their claims and all others off them, with cgroup v2 in the same tree, with cgroup v1 in
one of their own. The groups themselves say which CPUs are taken, so this outlives the agent.
"""

import contextlib
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from dray.accounting import CgroupValues
from dray.api.cpuset import format_cpu_list, parse_cpu_list
from dray.kubelet.runtime.interface import ContainerSpec

log = logging.getLogger(__name__)

CONTROLLERS = {"cpu", "cpuset", "memory", "hugetlb"}
# The parent group of a pod, below our own.
PARENTS = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
MOUNT = Path("/sys/fs/cgroup")
ISOLATED_CPUS = Path("/sys/devices/system/cpu/isolated")
# Containers have no dots in their names.
PINNED = ".pinned"
SHARED = "shared"
CPUS, MEMORY_NODES, MEMBERS = "cpuset.cpus", "cpuset.mems", "cgroup.procs"


def is_version_2(mount: Path = MOUNT) -> bool:
    return (mount / "cgroup.controllers").exists()


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
            if not is_version_2(mount):
                raise OSError(f"{mount} is not cgroup v2")
            with contextlib.suppress(OSError):
                _enable(mount, {"cpuset"})
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
            folder = self._container_folder(pod_uid, spec.name)
            folder.mkdir(exist_ok=True)
            if spec.cgroup is not None:
                _write(folder, spec.cgroup.files())
            (folder / MEMBERS).write_text(str(pid))
            if spec.oom_score_adj is not None:
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(spec.oom_score_adj))
        except OSError as error:
            log.warning("cgroup of container %s of pod %s: %s", spec.name, pod_uid, error)

    def members_file(self, pod_uid: str, container: str) -> str:
        """The file that moves a process which writes its number there into the container's group; empty if there is no group."""
        try:
            return str(self._container_folder(pod_uid, container) / MEMBERS)
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
        if self.has_cpusets:
            with contextlib.suppress(OSError):
                self._share_rest()

    # --- CPU sets

    @property
    def has_cpusets(self) -> bool:
        return (self._root / CPUS).exists()

    def place(self, pod_uid: str, container: str, cpus: set[int], memory_nodes: set[int]) -> str:
        folder = self._folder_of(pod_uid) / (f"{container}{PINNED}" if cpus else container)
        folder.mkdir(exist_ok=True)
        if memory_nodes:
            (folder / MEMORY_NODES).write_text(format_cpu_list(memory_nodes))
        if cpus:
            (folder / CPUS).write_text(format_cpu_list(cpus))
        try:
            self._share_rest()
        except OSError:
            if cpus:
                _remove(folder)
            raise
        return str(folder / MEMBERS)

    def _share_rest(self) -> None:
        """Gives the containers without CPUs of their own what the others leave."""
        groups = [path for pattern in ("pod*/*/", "*/pod*/*/") for path in self._root.glob(pattern)]
        pinned = [path for path in groups if path.name.endswith(PINNED)]
        rest = cpus_left(_cpus(self._root, "cpuset.cpus.effective"), pinned)
        for path in groups:
            if path not in pinned:
                (path / CPUS).write_text(format_cpu_list(rest))

    def _container_folder(self, pod_uid: str, container: str) -> Path:
        pod = self._folder_of(pod_uid)
        pinned = pod / f"{container}{PINNED}"
        return pinned if pinned.is_dir() else pod / container

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


class Cpusets(Protocol):
    """Keeps containers on the CPUs and memory nodes of their claims, and all other containers off these CPUs."""

    def place(self, pod_uid: str, container: str, cpus: set[int], memory_nodes: set[int]) -> str:
        """Makes the container's group; the answer is the file through which a process enters it.

        OSError if the kernel does not allow it, or if no CPU would remain for the other containers.
        """
        ...

    def remove_pod(self, pod_uid: str) -> None: ...


class CpusetTree:
    """CPU sets with cgroup v1: a group for each container with CPUs of its own, and one for all others.

    A container that has memory nodes only gets a group in that of the others.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shared = root / SHARED
        # Groups of pods that are gone, with processes that the kernel has not ended yet.
        self._leaving: set[Path] = set()

    @classmethod
    def open(cls, name: str, mount: Path = MOUNT) -> "CpusetTree | None":
        """The tree, or None where cgroup v1 has no CPU sets or they are not ours to write."""
        root = mount / "cpuset" / name
        try:
            if not (root.parent / CPUS).exists():
                return None
            for folder in (root, root / SHARED):
                folder.mkdir(exist_ok=True)
                for file in (CPUS, MEMORY_NODES):
                    if folder == root or not (folder / file).read_text().strip():
                        (folder / file).write_text((folder.parent / file).read_text())
            tree = cls(root)
            tree._leaving = {path for path in tree._groups() if not (path / MEMBERS).read_text()}
            tree._share_rest()
        except OSError as error:
            log.info(
                "cgroup v1 has CPU sets that cannot be written (%s): containers choose their CPUs themselves", error
            )
            return None
        return tree

    def place(self, pod_uid: str, container: str, cpus: set[int], memory_nodes: set[int]) -> str:
        if not cpus and not memory_nodes:
            return str(self._shared / MEMBERS)
        parent = self._root if cpus else self._shared
        folder = parent / f"{pod_uid}.{container}"
        folder.mkdir(exist_ok=True)
        self._leaving.discard(folder)
        try:
            nodes = format_cpu_list(memory_nodes) or (parent / MEMORY_NODES).read_text()
            (folder / MEMORY_NODES).write_text(nodes)
            (folder / CPUS).write_text(format_cpu_list(cpus) or (parent / CPUS).read_text())
            self._share_rest()
        except OSError:
            _remove(folder)
            raise
        return str(folder / MEMBERS)

    def remove_pod(self, pod_uid: str) -> None:
        self._leaving.update(path for path in self._groups() if path.name.startswith(f"{pod_uid}."))
        try:
            self._share_rest()
        except OSError as error:
            log.warning("CPUs of pod %s: %s", pod_uid, error)

    def _groups(self) -> list[Path]:
        return [path for pattern in ("*.*/", f"{SHARED}/*.*/") for path in self._root.glob(pattern)]

    def _share_rest(self) -> None:
        """Gives the group of the others the CPUs that the rest leaves. A group contains the groups in it at each moment."""
        for path in list(self._leaving):
            _remove(path)
        self._leaving = {path for path in self._leaving if path.exists()}
        inner = [path for path in self._groups() if path.parent == self._shared]
        pinned = [path for path in self._groups() if path.parent == self._root]
        rest = cpus_left(_cpus(self._root, CPUS), pinned)
        (self._shared / CPUS).write_text(format_cpu_list(rest | _cpus(self._shared, CPUS)))
        for path in inner:
            (path / CPUS).write_text(format_cpu_list(rest))
        (self._shared / CPUS).write_text(format_cpu_list(rest))


def open_cpusets(name: str, cgroups: CgroupTree | None, mount: Path = MOUNT) -> Cpusets | None:
    """The CPU sets of this machine: in the tree of cgroup v2, or in that of cgroup v1."""
    return cgroups if cgroups is not None and cgroups.has_cpusets else CpusetTree.open(name, mount)


def cpus_left(all_cpus: set[int], pinned: Iterable[Path]) -> set[int]:
    """What groups with CPUs of their own leave to all others: neither these CPUs nor those that the kernel keeps isolated."""
    isolated = _cpus(ISOLATED_CPUS.parent, ISOLATED_CPUS.name) if ISOLATED_CPUS.exists() else set()
    left = all_cpus - isolated - set().union(*(_cpus(path, CPUS) for path in pinned))
    if not left:
        raise OSError("no CPU would remain for containers without CPUs of their own: reserve some (--reserved-cpus)")
    return left


def _cpus(folder: Path, file: str) -> set[int]:
    return parse_cpu_list((folder / file).read_text())


def _remove(folder: Path) -> None:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.info("cgroup %s stays: %s", folder, error)


def _enable(folder: Path, wanted: Collection[str] = CONTROLLERS) -> None:
    controllers = set((folder / "cgroup.controllers").read_text().split()) & set(wanted)
    if controllers:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in sorted(controllers)))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        if path.exists():
            path.write_text(content)
