"""Groups of pods below the groups of their QoS class, with an imitation of the kernel's files."""

from dray.accounting import CgroupValues
from dray.kubelet.runtime.cgroup import CgroupTree, parent_files

MI = 2**20
GUARANTEED = CgroupValues(1024, memory_min=64 * MI)
BURSTABLE = CgroupValues(2048, memory_min=32 * MI, qos_class="Burstable")
BEST_EFFORT = CgroupValues(2, qos_class="BestEffort")


def test_a_class_weighs_what_its_pods_weigh_and_protects_their_memory():
    files = parent_files([GUARANTEED, BURSTABLE, BURSTABLE, BEST_EFFORT])
    assert files == {
        "": {"memory.min": str(128 * MI)},
        "burstable": {"cpu.weight": str(CgroupValues(4096).cpu_weight), "memory.min": str(64 * MI)},
        "besteffort": {"cpu.weight": "1", "memory.min": "0"},
    }
    assert parent_files([])["burstable"] == {"cpu.weight": "1", "memory.min": "0"}


def test_pods_lie_in_the_group_of_their_class(cgroup_mount):
    tree = CgroupTree.open("ours", cgroup_mount)
    for uid, values in (("g", GUARANTEED), ("b", BURSTABLE), ("e", BEST_EFFORT)):
        tree.apply_pod(uid, values)
    assert [tree.path_of(uid) for uid in "gbe"] == ["/ours/podg", "/ours/burstable/podb", "/ours/besteffort/pode"]
    root = cgroup_mount / "ours"
    assert (root / "memory.min").read_text() == str(96 * MI)
    assert (root / "burstable/podb/memory.min").read_text() == str(32 * MI)
    assert (root / "burstable/cpu.weight").read_text() == str(BURSTABLE.cpu_weight)
    assert (root / "burstable/cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_pod_that_leaves_takes_its_part_along(cgroup_mount):
    tree = CgroupTree.open("ours", cgroup_mount)
    tree.apply_pod("b", BURSTABLE)
    tree.remove_pod("b")
    assert not (cgroup_mount / "ours/burstable/podb").exists()
    assert (cgroup_mount / "ours/memory.min").read_text() == "0"
    assert tree.path_of("b") == ""


def test_used_memory_leaves_out_what_the_kernel_may_take_back(cgroup_mount):
    tree = CgroupTree.open("ours", cgroup_mount)
    assert tree.memory_of("b") is None
    tree.apply_pod("b", BURSTABLE)
    folder = cgroup_mount / "ours/burstable/podb"
    (folder / "memory.current").write_text("1000\n")
    (folder / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    assert tree.memory_of("b") == 700


def test_without_cgroup_v2_there_is_no_tree_and_no_trace(tmp_path):
    assert CgroupTree.open("ours", tmp_path) is None
    assert list(tmp_path.iterdir()) == []
