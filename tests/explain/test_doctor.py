"""One trap is set in each cluster; the doctor names it, and names nothing in a healthy one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.api.core import NodeSelector
from dray.cli.doctor import doctor
from dray.explain import unreachable_slices
from tests.builders.manifests import a_class
from tests.explain.manifests import DRIVER, Cluster, gpu, gpu_claim, gpu_node, gpu_pod, gpu_request, gpu_slice, held
from tests.explain.test_alike_nodes import world_of


def findings(cluster: Cluster, path: Path, *options: str) -> list[dict[str, str]]:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(doctor, ["-f", str(file), "-o", "json", *options])
    found: list[dict[str, str]] = json.loads(result.stdout)["findings"]
    assert result.exit_code == (1 if found else 0)
    return found


def test_a_healthy_cluster_has_no_findings(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.add(held(gpu_claim("used"), "gpu-0", pod="runner"), gpu_pod("runner", "used", nodeName="node-1"))
    assert findings(cluster, tmp_path) == []


def test_an_empty_dump_is_not_called_healthy(tmp_path: Path) -> None:
    result = CliRunner().invoke(doctor, ["-f", str(tmp_path)])
    assert result.stdout == "there are no objects to look at\n"


def stuck_finalizer(c: Cluster) -> None:
    gone = gpu_claim("gone", deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["example.com/cleanup"])
    c.add(gone)


def own_finalizer_stuck(c: Cluster) -> None:
    finalizer = "resource.kubernetes.io/delete-protection"
    c.add(gpu_claim("gone", deletionTimestamp="2024-01-01T00:00:00Z", finalizers=[finalizer]))


def orphan(c: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "left", "uid": "uid-left", "controller": True}
    c.add(gpu_claim("left-gpu", ownerReferences=[owner]))


def stale_reservation(c: Cluster) -> None:
    c.add(held(gpu_claim("taken"), "gpu-0", pod="left"))


def reservation_of_finished_pod(c: Cluster) -> None:
    pod = gpu_pod("left", "taken", nodeName="node-1")
    pod["status"] = {"phase": "Succeeded"}
    c.add(held(gpu_claim("taken"), "gpu-0", pod="left"), pod)


def idle(c: Cluster) -> None:
    c.add(held(gpu_claim("taken"), "gpu-0", pod=""))


def double(c: Cluster) -> None:
    for name in ("a", "b"):
        c.add(held(gpu_claim(name), "gpu-0", pod=f"pod-{name}"), gpu_pod(f"pod-{name}", name, nodeName="node-1"))


def gone_device(c: Cluster) -> None:
    c.add(held(gpu_claim("taken"), "gpu-9", pod="runner"), gpu_pod("runner", "taken", nodeName="node-1"))


def unready(c: Cluster) -> None:
    claim = held(gpu_claim("taken"), "gpu-0", pod="runner")
    claim["status"]["devices"] = [
        {
            "driver": DRIVER,
            "pool": "node-1",
            "device": "gpu-0",
            "conditions": [{"type": "Ready", "status": "False", "reason": "Hot", "message": "too hot"}],
        }
    ]
    c.add(claim, gpu_pod("runner", "taken", nodeName="node-1"))


def missing_class(c: Cluster) -> None:
    c.request["deviceClassName"] = "gpus"


def missing_node(c: Cluster) -> None:
    c.add(gpu_slice("node-8"))


def unready_node(c: Cluster) -> None:
    c.node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def incomplete(c: Cluster) -> None:
    c.slice["spec"]["pool"]["resourceSliceCount"] = 2


def invalid(c: Cluster) -> None:
    second = gpu_slice(devices=[gpu("gpu-0")])
    second["metadata"]["name"] = "second"
    for each in (c.slice, second):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    c.add(second)


def old_generation(c: Cluster) -> None:
    old = gpu_slice(devices=[gpu("gpu-7")])
    old["metadata"]["name"] = "old"
    c.slice["spec"]["pool"]["generation"] = 2
    c.add(old)


def idle_class(c: Cluster) -> None:
    c.add(a_class("tpu", 'device.driver == "tpu.example.com"'))


def idle_rule(c: Cluster) -> None:
    c.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "typo"},
            "spec": {"deviceSelector": {"driver": "gpu.exmaple.com"}, "taint": {"key": "a", "effect": "NoSchedule"}},
        }
    )


def overdrawn(c: Cluster) -> None:
    c.slice["spec"]["devices"] = [gpu("gpu-0", allowMultipleAllocations=True)]
    for number in (1, 2):
        share = {
            "shareID": f"{number}1111111-1111-4111-8111-111111111111",
            "consumedCapacity": {"memory": "30Gi"},
        }
        claim = gpu_claim(f"share-{number}", gpu_request(capacity={"requests": {"memory": "30Gi"}}))
        c.add(held(claim, "gpu-0", pod=f"pod-{number}", **share))
        c.add(gpu_pod(f"pod-{number}", f"share-{number}", nodeName="node-1"))


def missing_template(c: Cluster) -> None:
    pod = gpu_pod("other")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "none"}]
    c.add(pod)
    c.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "some", "namespace": "default"},
            "spec": {"spec": c.claim["spec"]},
        }
    )


def missing_claim(c: Cluster) -> None:
    c.add(gpu_pod("other", "nowhere"))


def test_many_of_a_kind_are_one_finding(tmp_path: Path) -> None:
    cluster = Cluster()
    unready_node(cluster)
    second = gpu_slice(devices=[gpu("gpu-2")], slices=2)
    second["metadata"]["name"] = "node-1-more"
    cluster.slice["spec"]["pool"]["resourceSliceCount"] = 2
    held(cluster.claim, "gpu-0")
    users = [{"resource": "pods", "name": f"gone-{n}", "uid": f"uid-gone-{n}"} for n in range(3)]
    cluster.claim["status"]["reservedFor"] = users
    cluster.add(second)
    found = findings(cluster, tmp_path)
    assert [row["code"] for row in found].count("driver-on-unready-node") == 1
    (stale,) = [row for row in found if row["code"] == "stale-reservation"]
    assert stale["message"] == (
        "is reserved for pod gone-0 (uid-gone-0), which is gone, and for 2 more that are gone or have ended"
    )


def test_a_template_that_is_named_as_a_claim(tmp_path: Path) -> None:
    cluster = Cluster()
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    metadata = {"name": "one", "namespace": "default"}
    cluster.add({**template, "metadata": metadata, "spec": {"spec": cluster.claim["spec"]}})
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
    (found,) = [row for row in findings(cluster, tmp_path) if row["code"] == "missing-claim"]
    assert found["message"] == "uses claim one, which does not exist; one is a claim template"
    assert "with resourceClaimTemplateName: one instead of resourceClaimName: one" in found["fix"]


def test_only_a_claim_from_a_template_is_made_again(tmp_path: Path) -> None:
    cluster = Cluster()
    missing_claim(cluster)
    pod = gpu_pod("third", "")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "third-gpu-x"}]}
    cluster.add(pod)
    fixes = {row["subject"]: row["fix"] for row in findings(cluster, tmp_path) if row["code"] == "missing-claim"}
    assert fixes == {
        "pod default/other": "create claim nowhere in namespace default",
        "pod default/third": "see that the claim controller runs (dray controller-manager); it makes the claim again",
    }


def without_devices(c: Cluster) -> None:
    c.pod["spec"]["nodeName"] = "node-1"


def bound(c: Cluster) -> None:
    c.pod["spec"]["nodeName"] = "node-1"
    c.pod["status"] = {"phase": "Pending"}
    held(c.claim, "gpu-0", pod="train")


def driver_is_dead(c: Cluster) -> None:
    bound(c)
    c.slice["spec"]["driver"] = "other.example.com"


def on_missing_node(c: Cluster) -> None:
    c.add(gpu_pod("lost", "", nodeName="node-9"))


def overcommitted(c: Cluster) -> None:
    c.add(gpu_pod("a", "", cpu="5", nodeName="node-1"), gpu_pod("b", "", cpu="5", nodeName="node-1"))


def node_operations(c: Cluster) -> None:
    c.slice["spec"]["skipNodeOperations"] = ["*"]


def old_spelling(c: Cluster) -> None:
    c.devices[0]["nativeResourceMappings"] = {"cpu": {"quantityFrom": {"perInstanceQuantity": "1"}}}


def not_valid(c: Cluster) -> None:
    c.add(gpu_claim("Not_A_Name"))


def selected_nowhere(c: Cluster) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["b"]}
    c.slice["spec"].pop("nodeName")
    c.slice["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}


def device_of_a_missing_node(c: Cluster) -> None:
    c.slice["spec"].pop("nodeName")
    c.slice["spec"]["perDeviceNodeSelection"] = True
    for device, node in zip(c.devices, ("node-1", "node-9"), strict=True):
        device["nodeName"] = node


def crashing(c: Cluster) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=c"}
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "reading flags\nbad flag -x\n"}}
    row = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 4}
    c.pod["spec"]["nodeName"] = "node-1"
    c.pod["status"] = {
        "phase": "Running",
        "containerStatuses": [{**row, "state": {"waiting": waiting}, "lastState": ended}],
    }
    held(c.claim, "gpu-0", pod="train")


Trap = Callable[[Cluster], None]
TRAPS: list[tuple[Trap, str, str, str]] = [
    (stuck_finalizer, "stuck-finalizer", "claim default/gone", "example.com/cleanup"),
    (own_finalizer_stuck, "stuck-finalizer", "claim default/gone", "claim controller"),
    (orphan, "orphan-claim", "claim default/left-gpu", "kubectl delete resourceclaim/left-gpu -n default"),
    (stale_reservation, "stale-reservation", "claim default/taken", "pod left"),
    (reservation_of_finished_pod, "stale-reservation", "claim default/taken", "Succeeded"),
    (idle, "idle-allocation", "claim default/taken", "no pod uses it"),
    (double, "double-allocation", f"device {DRIVER}/node-1/gpu-0", "default/a and by default/b"),
    (gone_device, "gone-device", "claim default/taken", "node-1/gpu-9"),
    (unready, "device-not-ready", "claim default/taken", "too hot"),
    (missing_class, "missing-class", "claim default/train-gpu", "one of: gpu"),
    (missing_node, "slice-of-missing-node", "slice node-8-gpus", "node-8, which is gone"),
    (
        selected_nowhere,
        "slice-of-no-node",
        "slice node-1-gpus",
        "has 2 devices that no node can reach: node selector zone In b",
    ),
    (
        device_of_a_missing_node,
        "slice-of-no-node",
        "slice node-1-gpus",
        "1 device that no node can reach: node name node-9",
    ),
    (crashing, "container-fails", "pod default/train", "ends again and again with exit code 3; it said bad flag -x"),
    (unready_node, "driver-on-unready-node", "slice node-1-gpus", "node-1 is not ready"),
    (incomplete, "incomplete-pool", f"pool {DRIVER}/node-1", "1 of 2 slices"),
    (invalid, "invalid-pool", f"pool {DRIVER}/node-1", "duplicate device name gpu-0"),
    (old_generation, "old-generation", "slice old", "generation 1, the pool is at 2"),
    (idle_class, "class-matches-nothing", "class tpu", "none of 2"),
    (idle_rule, "taint-rule-matches-nothing", "taint rule typo", "no published device"),
    (overdrawn, "capacity-overdrawn", f"device {DRIVER}/node-1/gpu-0", "40Gi"),
    (missing_template, "missing-template", "pod default/other", "template none"),
    (missing_claim, "missing-claim", "pod default/other", "claim nowhere"),
    (without_devices, "pod-without-devices", "pod default/train", "has no devices"),
    (bound, "pod-not-started", "pod default/train", f"driver {DRIVER} says: kubectl describe pod/train -n default"),
    (driver_is_dead, "dead-driver", "pod default/train", f"waits on node node-1 for driver {DRIVER}"),
    (on_missing_node, "pod-on-missing-node", "pod default/lost", "node-9"),
    (overcommitted, "node-overcommitted", "node node-1", "Insufficient cpu"),
    (node_operations, "gate-mismatch", "slice node-1-gpus", "DRAOptionalNodeOperations"),
    (old_spelling, "old-spelling", "ResourceSlice node-1-gpus", "nodeAllocatableResourceMappings"),
    (not_valid, "invalid-object", "ResourceClaim default/Not_A_Name", "metadata.name"),
]


@pytest.mark.parametrize(("trap", "code", "subject", "said"), TRAPS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_trap_is_found(trap: Trap, code: str, subject: str, said: str, tmp_path: Path) -> None:
    cluster = Cluster()
    trap(cluster)
    found = [row for row in findings(cluster, tmp_path) if row["code"] == code]
    assert found, f"no finding {code}"
    assert found[0]["subject"] == subject
    assert said in found[0]["message"] + found[0]["fix"]
    assert found[0]["fix"]


def test_fields_of_switched_off_gates(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["capacity"] = {"requests": {"memory": "1Gi"}}
    found = findings(cluster, tmp_path, "--emulate", "1.34")
    assert {"gate-off", "pod-waits"} == {row["code"] for row in found}
    assert "DRAConsumableCapacity" in found[0]["message"]


def test_lost_and_stale_cdi_files(tmp_path: Path) -> None:
    cluster = Cluster()
    runner: dict[str, Any] = gpu_pod("runner", "used", nodeName="node-1")
    runner["status"] = {"phase": "Running"}
    cluster.add(held(gpu_claim("used"), "gpu-0", pod="runner"), runner)
    directory = tmp_path / "cdi"
    directory.mkdir()
    (directory / f"{DRIVER}-uid-nobody.json").write_text("{}")
    (directory / "vendor.json").write_text("{}")
    found = findings(cluster, tmp_path, "--cdi-dir", str(directory))
    assert [(row["code"], row["subject"]) for row in found] == [
        ("lost-cdi-file", "claim default/used"),
        ("stale-cdi-file", f"file {DRIVER}-uid-nobody.json"),
    ]
    (directory / f"{DRIVER}-uid-used.json").write_text("{}")
    assert [row["code"] for row in findings(cluster, tmp_path, "--cdi-dir", str(directory))] == ["stale-cdi-file"]
    elsewhere = findings(cluster, tmp_path, "--cdi-dir", str(directory), "--node", "node-2")
    assert [row["code"] for row in elsewhere] == ["stale-cdi-file"]


def test_one_line_each_with_the_fix(tmp_path: Path) -> None:
    cluster = Cluster()
    orphan(cluster)
    cluster.add(gpu_node("node-2"))
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(doctor, ["-f", str(file)])
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "error: claim default/left-gpu was made for pod left, which is gone [orphan-claim]; fix: "
    )
    assert lines[-1].startswith("1 error, 0 warnings (")


def test_a_pod_that_fits_nowhere_is_explained(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    (found,) = [each for each in findings(cluster, tmp_path) if each["code"] == "pod-waits"]
    assert found["subject"] == "pod default/train"
    assert "wants 3: 2 exist" in found["message"]
    assert found["fix"] == "ask for 2 instead of 3 in request gpu (then node-1 fits)"


def test_the_selector_of_a_slice_is_put_in_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    worded = []

    def in_words(selector: NodeSelector) -> str:
        worded.append(selector)
        return "zone In b"

    monkeypatch.setattr(unreachable_slices, "_in_words", in_words)
    cluster = Cluster()
    cluster.slice["spec"]["devices"] = [gpu(f"gpu-{number}") for number in range(9)]
    selected_nowhere(cluster)
    (found,) = unreachable_slices.unreachable_slices(world_of(cluster))
    assert (found.devices, len(worded)) == (9, 1)


def test_a_pod_without_claims_on_a_missing_node_keeps_no_claims_taken(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.add(gpu_pod("plain", "", nodeName="node-9"), gpu_pod("holds", "some", nodeName="node-9"))
    messages = {each["subject"]: each["message"] for each in findings(cluster, tmp_path)}
    assert messages["pod default/plain"] == "is bound to node node-9, which is gone"
    assert messages["pod default/holds"] == "is bound to node node-9, which is gone; its claims stay taken"


def test_of_many_classes_those_are_named_that_are_spelled_alike(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["deviceClassName"] = "gpuu"
    cluster.add(*(a_class(f"class-{number}") for number in range(20)))
    fix = next(each["fix"] for each in findings(cluster, tmp_path) if each["code"] == "missing-class")
    assert fix.startswith("create the class, or use one of: gpu, ")
    assert fix.endswith(" and 16 more")


def test_a_node_that_is_not_ready_is_told_with_the_pods_that_look_as_if_they_ran(tmp_path: Path) -> None:
    cluster = Cluster()
    lost = gpu_node("node-2")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    running = [gpu_pod(name, "", nodeName="node-2") | {"status": {"phase": "Running"}} for name in ("a", "b")]
    cluster.add(lost, *running)
    (found,) = findings(cluster, tmp_path)
    assert (found["code"], found["subject"]) == ("unready-node", "node node-2")
    assert found["message"] == "is not ready, and 2 pods on it may not run any more: pod default/a, ..."
