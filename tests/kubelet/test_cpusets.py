"""Containers stay on the CPUs of their claims and all others off them: with this machine's own CPU sets, and an imitation of cgroup v2."""

import json
import os
import sys
import uuid
from pathlib import Path

import pytest

from dray.accounting import CgroupValues
from dray.api.cdi import ContainerEdits
from dray.api.core import Pod
from dray.api.cpuset import parse_cpu_list
from dray.api.meta import ObjectMeta
from dray.clock import RealClock
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.cgroup import MOUNT, CgroupTree, CpusetTree, is_version_2, open_cpusets
from dray.kubelet.runtime.process import ProcessRuntime
from tests.kubelet.test_process_runtime import a_spec

POD = CgroupValues(2048, qos_class="Burstable")


def cpus(folder: Path) -> set[int]:
    return parse_cpu_list((folder / "cpuset.cpus").read_text())


# --- cgroup v2


@pytest.fixture
def tree(cpuset_mount):
    tree = CgroupTree.open("ours", cpuset_mount)
    assert open_cpusets("ours", tree, cpuset_mount) is tree
    for uid in ("a", "b"):
        tree.apply_pod(uid, POD)
    return tree


def test_with_cgroup_v2_containers_are_placed_in_the_groups_of_their_pods(tree, cpuset_mount):
    pods = cpuset_mount / "ours/burstable"
    assert (cpuset_mount / "cgroup.subtree_control").read_text() == "+cpuset"
    assert tree.place("a", "main", set(), set()) == str(pods / "poda/main/cgroup.procs")
    assert tree.place("b", "main", {1, 2}, {0}) == str(pods / "podb/main.pinned/cgroup.procs")
    assert tree.members_file("b", "main") == str(pods / "podb/main.pinned/cgroup.procs")
    assert (cpus(pods / "poda/main"), cpus(pods / "podb/main.pinned")) == ({0, 3}, {1, 2})
    again = CgroupTree.open("ours", cpuset_mount)
    again.place("a", "late", set(), set())
    assert cpus(pods / "poda/late") == {0, 3}, "the next agent finds out from the groups"
    again.remove_pod("b")
    assert cpus(pods / "poda/main") == {0, 1, 2, 3}


def test_with_cgroup_v2_the_last_cpus_are_not_given_away(tree, cpuset_mount):
    tree.place("a", "main", set(), set())
    with pytest.raises(OSError, match="no CPU would remain"):
        tree.place("b", "main", {0, 1, 2, 3}, set())
    assert not (cpuset_mount / "ours/burstable/podb/main.pinned").exists()
    assert cpus(cpuset_mount / "ours/burstable/poda/main") == {0, 1, 2, 3}


# --- the kernel's own


def why_not(*, needs_version_1: bool) -> str:
    mount = MOUNT if is_version_2() else MOUNT / "cpuset"
    if not os.access(mount, os.W_OK) or os.geteuid() != 0:
        return f"{mount} cannot be written: run the tests as root to see this one"
    if is_version_2() and (needs_version_1 or "cpuset" not in (MOUNT / "cgroup.controllers").read_text()):
        return "this machine has no CPU sets of cgroup v1"
    return "" if len(os.sched_getaffinity(0)) > 1 else "this machine has only one CPU"


def needs(*, version_1: bool):
    return pytest.mark.skipif(
        bool(why_not(needs_version_1=version_1)), reason=why_not(needs_version_1=version_1) or "it can run"
    )


real_cpusets, version_1_only = needs(version_1=False), needs(version_1=True)
LOOK = """
import json, os, sys, time
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError:
    pass
seen, until = set(), time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    sum(range(2000))
    seen.add(int(open("/proc/self/stat").read().rpartition(")")[2].split()[36]))
    if os.path.exists(sys.argv[2]):
        break
print(json.dumps({"allowed": sorted(os.sched_getaffinity(0)), "seen": sorted(seen)}))
"""
"""Works until it is told to stop, and tells where it might run and where it ran; it tries to leave its CPUs first."""


@pytest.fixture
def cpusets():
    """In this machine's own cgroups, of whichever version."""
    name = f"dray-test-{uuid.uuid4().hex[:8]}"
    yield open_cpusets(name, CgroupTree.open(name))
    for folder in sorted((MOUNT / ("" if is_version_2() else "cpuset") / name).glob("**/"), reverse=True):
        os.rmdir(folder)


def a_runtime(tmp_path, cpusets):
    cgroups = cpusets if isinstance(cpusets, CgroupTree) else None
    return ProcessRuntime(tmp_path / "n", RealClock(), cgroups, cpusets=cpusets)


async def start(runtime, spec, name="p"):
    """In a pod of its own, which has the same name and UID."""
    pod = Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=name))
    return await runtime.start_container(pod, await runtime.start_pod(pod, POD), spec)


def a_worker(tmp_path, number, seconds, **fields):
    return a_spec(tmp_path, sys.executable, "-c", LOOK, str(seconds), str(tmp_path / "stop"), attempt=number, **fields)


def told_by(spec):
    return json.loads(spec.log_path.read_text())


@real_cpusets
async def test_a_process_with_cpus_of_its_own_has_no_neighbours_there(cpusets, tmp_path):
    """The neighbour runs before the claim comes, and is under load all the time."""
    runtime = a_runtime(tmp_path, cpusets)
    mine = max(os.sched_getaffinity(0))
    early, late = a_worker(tmp_path, 1, 20), a_worker(tmp_path, 2, 20)
    pins = ContainerEdits(env=(f"DRA_CPUSET_claim={mine}",))
    pinned = a_worker(tmp_path, 3, 0.5, edits=pins)
    others = [await start(runtime, early, "early")]
    container = await start(runtime, pinned, "p")
    # Where the first neighbour was before the claim came does not count; the second one comes after it.
    others.append(await start(runtime, late, "late"))
    await container.wait()
    (tmp_path / "stop").touch()
    for each in others:
        await each.wait()
    assert told_by(pinned) == {"allowed": [mine], "seen": [mine]}
    assert mine not in told_by(early)["allowed"]
    assert mine not in told_by(late)["seen"]
    await runtime.stop_pod("p")
    last = a_worker(tmp_path, 4, 0.01)
    await (await start(runtime, last, "last")).wait()
    assert mine in told_by(last)["allowed"], "given back with the pod"
    for name in ("early", "late", "last"):
        await runtime.stop_pod(name)


@version_1_only
def test_the_groups_outlive_the_agent_and_leftovers_are_swept(cpusets):
    name, mine = cpusets._root.name, max(os.sched_getaffinity(0))
    child = os.fork()
    if child == 0:
        os.execvp("sleep", ["sleep", "60"])
    Path(cpusets.place("alive", "main", {mine}, set())).write_text(str(child))
    again = CpusetTree.open(name)
    assert mine not in cpus(again._root / "shared")
    again.remove_pod("alive")
    assert mine not in cpus(again._root / "shared"), "its process still runs"
    os.kill(child, 9)
    os.waitpid(child, 0)
    third = CpusetTree.open(name)
    assert mine in cpus(third._root / "shared")


@version_1_only
async def test_the_last_cpu_is_not_given_away(cpusets, tmp_path):
    runtime = a_runtime(tmp_path, cpusets)
    everything = (cpusets._root / "cpuset.cpus").read_text().strip()
    edits = ContainerEdits(env=(f"DRA_CPUSET_claim={everything}",))
    with pytest.raises(ContainerError, match=f"CPUs {everything}: no CPU would remain for containers"):
        await start(runtime, a_spec(tmp_path, "true", edits=edits))
    assert cpus(cpusets._root / "shared") == parse_cpu_list(everything)


@version_1_only
def test_containers_with_memory_nodes_only_stay_with_the_others(cpusets):
    mine = max(os.sched_getaffinity(0))
    group = Path(cpusets.place("m", "main", set(), {0})).parent
    cpusets.place("p", "main", {mine}, {0})
    assert cpus(group) == cpus(cpusets._root / "shared") == cpus(cpusets._root) - {mine}
    cpusets.remove_pod("p")
    assert cpus(group) == cpus(cpusets._root)
    cpusets.remove_pod("m")
