"""Causes that others know: quotas, labels, conditions and events are read, by `dray explain` and by `dray doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.cli.doctor import doctor
from dray.cli.explain import explain
from tests.explain.manifests import DRIVER, RESOURCE, Cluster, Document, gpu_pod, held

LABEL = "resource.kubernetes.io/admin-access"


def run(command: Any, cluster: Cluster, path: Path, *options: str) -> Any:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(command, [*options, "-f", str(file), "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, json.loads(result.stdout)


def event(reason: str, message: str, **more: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"train.{reason.lower()}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "train", "uid": "uid-train"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 7,
        "lastTimestamp": "2024-01-01T00:07:00Z",
        **more,
    }


def from_template(cluster: Cluster) -> None:
    cluster.without.add("ResourceClaim")
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    metadata = {"name": "one", "namespace": "default"}
    spec = {"spec": cluster.claim["spec"]}
    cluster.add({"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})


def exceeded_quota(cluster: Cluster) -> None:
    from_template(cluster)
    amounts = {"gpu.deviceclass.resource.k8s.io/devices": "4"}
    cluster.add(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": "default"},
            "spec": {"hard": amounts},
            "status": {"hard": amounts, "used": amounts},
        }
    )


def quota_below_one_claim(cluster: Cluster) -> None:
    cluster.request["count"] = 5
    exceeded_quota(cluster)


def quota_that_only_an_event_knows(cluster: Cluster) -> None:
    from_template(cluster)
    said = 'PodResourceClaim gpu: resourceclaims "train-gpu-" is forbidden: exceeded quota: gpus, requested: 1, used: 4, limited: 4'
    cluster.add(event("FailedResourceClaimCreation", said))


def removed_admin_label(cluster: Cluster) -> None:
    cluster.request["adminAccess"] = True
    from_template(cluster)
    cluster.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})


def stuck_binding_condition(cluster: Cluster) -> None:
    conditions = {"bindingConditions": ["FabricReady"], "bindingFailureConditions": ["FabricBroken"]}
    held(cluster.claim, "gpu-0", pod="train", **conditions)


def reported_binding_condition(cluster: Cluster) -> None:
    stuck_binding_condition(cluster)
    row = {"type": "FabricReady", "status": "False", "reason": "Attaching", "message": "port 3 is down"}
    row["lastTransitionTime"] = "2024-01-01T00:00:00Z"
    device = {"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "conditions": [row]}
    cluster.claim["status"]["devices"] = [device]


def failed_binding(cluster: Cluster) -> None:
    reported_binding_condition(cluster)
    cluster.claim["status"]["devices"][0]["conditions"][0] |= {"type": "FabricBroken", "status": "True"}


WAITING: list[tuple[Callable[[Cluster], None], str, str, str, str]] = [
    (
        exceeded_quota,
        "quota-exceeded",
        "claim-refused",
        "quota gpus allows 4 gpu.deviceclass",
        "kubectl edit resourcequota/gpus",
    ),
    (
        quota_below_one_claim,
        "quota-exceeded",
        "claim-refused",
        "takes 5 more",
        "ask for fewer devices, or allow more: kubectl edit resourcequota/gpus",
    ),
    (
        quota_that_only_an_event_knows,
        "quota-exceeded",
        "claim-refused",
        "(7 times, last at 2024-01-01T00:07:00Z)",
        "message",
    ),
    (
        removed_admin_label,
        "admin-access-denied",
        "claim-refused",
        f"has no label {LABEL}=true",
        "kubectl label namespace default",
    ),
    (
        stuck_binding_condition,
        "binding-pending",
        "pod-waits-for-device",
        f"FabricReady is not reported by driver {DRIVER}",
        DRIVER,
    ),
    (
        reported_binding_condition,
        "binding-pending",
        "pod-waits-for-device",
        "FabricReady False (Attaching: port 3 is down)",
        DRIVER,
    ),
    (
        failed_binding,
        "binding-failed",
        "pod-waits-for-device",
        "failed: FabricBroken True (Attaching: port 3 is down)",
        DRIVER,
    ),
]


@pytest.mark.parametrize(
    ("breaks", "code", "finding", "message", "fix"), WAITING, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_waiting_pod(
    tmp_path: Path, breaks: Callable[[Cluster], None], code: str, finding: str, message: str, fix: str
) -> None:
    cluster = Cluster()
    breaks(cluster)
    exit_code, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert (exit_code, verdict["code"]) == (1, code)
    assert message in verdict["message"]
    assert fix in verdict["fix"]
    findings = run(doctor, cluster, tmp_path)[1]["findings"]
    (found,) = [each for each in findings if each["code"] == finding]
    assert message in found["message"]
    assert fix in found["fix"]
    assert "claim-not-created" not in {each["code"] for each in findings}


def on_its_node(cluster: Cluster) -> None:
    cluster.pod["spec"]["nodeName"] = "node-1"
    cluster.pod["status"] = {"phase": "Pending"}
    held(cluster.claim, "gpu-0", pod="train")


def prepare_fails(cluster: Cluster) -> None:
    on_its_node(cluster)
    said = "Failed to prepare dynamic resources: prepare dynamic resources: claim default/train-gpu: no /dev/gpu0"
    cluster.add(event("FailedPrepareDynamicResources", said))


def unregistered_driver(cluster: Cluster) -> None:
    on_its_node(cluster)
    said = f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {DRIVER} is not registered"
    cluster.add(event("FailedPrepareDynamicResources", said))


def silent_node(cluster: Cluster) -> None:
    prepare_fails(cluster)
    row = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    cluster.node["status"]["conditions"] = [row]


ON_ITS_NODE: list[tuple[Callable[[Cluster], None], str, str]] = [
    (
        prepare_fails,
        "prepare-failed",
        "preparing its devices on node node-1 fails (7 times, last at 2024-01-01T00:07:00Z): claim default/train-gpu: no /dev/gpu0",
    ),
    (unregistered_driver, "driver-not-registered", f"driver {DRIVER} is not registered with the node agent of node-1"),
    (silent_node, "node-not-ready", "its node node-1 is not ready (Kubelet stopped posting node status.)"),
]


@pytest.mark.parametrize(("breaks", "code", "message"), ON_ITS_NODE, ids=lambda value: getattr(value, "__name__", None))
def test_a_pod_on_its_node(tmp_path: Path, breaks: Callable[[Cluster], None], code: str, message: str) -> None:
    cluster = Cluster()
    breaks(cluster)
    exit_code, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert (exit_code, verdict["code"]) == (1, code)
    assert message in verdict["message"]
    assert "node-1" in verdict["fix"]
    findings = run(doctor, cluster, tmp_path)[1]["findings"]
    (found,) = [each for each in findings if each["code"] == "pod-held-up"]
    assert message in found["message"]
    assert "pod-not-started" not in {each["code"] for each in findings}


def container_waits(reason: str, message: str, **last_state: Any) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        # What was said about its devices before is over.
        prepare_fails(cluster)
        row = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "lastState": last_state}
        waiting = {"waiting": {"reason": reason, "message": message}}
        cluster.pod["status"]["containerStatuses"] = [{**row, "state": waiting}]

    return plant


def waits_for_volume(cluster: Cluster) -> None:
    on_its_node(cluster)
    cluster.add(event("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "nope" not found'))


def pull_backs_off(cluster: Cluster) -> None:
    container_waits("ImagePullBackOff", 'Back-off pulling image "i"')(cluster)
    cluster.add(event("Failed", 'Failed to pull image "i": not found'))


CONTAINERS: list[tuple[Callable[[Cluster], None], str, str, str]] = [
    (
        container_waits("CreateContainerConfigError", 'configmap "nope" not found'),
        "container-config",
        'container c does not start: CreateContainerConfigError: configmap "nope" not found',
        "create what is missing",
    ),
    (container_waits("StartError", "no such program"), "container-start", "no such program", "correct the command"),
    (container_waits("SomethingElse", ""), "container-start", "SomethingElse", "kubectl describe pod/train -n default"),
    (pull_backs_off, "image-pull", 'Failed to pull image "i": not found', "imagePullSecret"),
    (
        container_waits("CrashLoopBackOff", "back-off", terminated={"exitCode": 137, "reason": "OOMKilled"}),
        "container-fails",
        "container c ends again and again with exit code 137 (OOMKilled)",
        "kubectl logs pod/train -n default -c c --previous",
    ),
    (waits_for_volume, "volume-mount", 'secret "nope" not found (7 times', "create or correct what the volume names"),
]


@pytest.mark.parametrize(("breaks", "code", "message", "fix"), CONTAINERS)
def test_a_container_that_does_not_start(
    tmp_path: Path, breaks: Callable[[Cluster], None], code: str, message: str, fix: str
) -> None:
    cluster = Cluster()
    breaks(cluster)
    exit_code, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert (exit_code, verdict["code"]) == (1, code)
    assert message in verdict["message"]
    assert fix in verdict["fix"]
    (found,) = [each for each in run(doctor, cluster, tmp_path)[1]["findings"] if each["code"] == "pod-held-up"]
    assert message in found["message"]


def test_a_pod_without_devices_says_what_its_node_agent_says(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pod = gpu_pod(claim="")
    waits_for_volume(cluster)
    _, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert verdict["code"] == "volume-mount"


UNSCHEDULABLE = (
    "0/1 nodes are available: {}. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)
VOLUMES = [
    ('persistentvolumeclaim "data" not found', "create that PersistentVolumeClaim in namespace default"),
    ("pod has unbound immediate PersistentVolumeClaims", "kubectl describe pvc -n default"),
    ("1 node(s) didn't find available persistent volumes to bind", "create a PersistentVolume"),
    ("1 node(s) didn't match PersistentVolume's node affinity", "kubectl get pv -o yaml"),
    ("1 node(s) had volume node affinity conflict", "kubectl get pv -o yaml"),
    ('waiting for ephemeral volume controller to create the persistentvolumeclaim "a-b"', "controller manager"),
    (
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv-1"',
        "create that PersistentVolume again",
    ),
]


def said_by_scheduler(cluster: Cluster, clause: str) -> None:
    row = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": UNSCHEDULABLE.format(clause),
    }
    cluster.pod["status"] = {"phase": "Pending", "conditions": [row]}


@pytest.mark.parametrize(("clause", "fix"), VOLUMES)
def test_a_pod_that_waits_for_its_volumes(tmp_path: Path, clause: str, fix: str) -> None:
    """The devices are free: what the scheduler says of volumes is all that is in the way."""
    cluster = Cluster()
    said_by_scheduler(cluster, clause)
    exit_code, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert (exit_code, verdict["code"]) == (1, "volumes")
    assert clause.removeprefix("1 ") in verdict["message"]
    assert fix in verdict["fix"]
    (found,) = run(doctor, cluster, tmp_path)[1]["findings"]
    assert found["code"] == "pod-waits"
    assert clause.removeprefix("1 ") in found["message"]


def test_devices_come_before_volumes(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 3
    said_by_scheduler(cluster, "pod has unbound immediate PersistentVolumeClaims")
    _, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert verdict["code"] == "too-few-devices"
    assert "the scheduler says of its volumes: pod has unbound immediate PersistentVolumeClaims" in verdict["notes"]


def test_what_the_scheduler_said_of_other_things_is_asked_again(tmp_path: Path) -> None:
    cluster = Cluster()
    said_by_scheduler(cluster, "1 Insufficient cpu")
    exit_code, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert (exit_code, verdict["code"]) == (0, "fits")


def test_an_event_of_an_earlier_pod_of_the_same_name_is_not_read(tmp_path: Path) -> None:
    cluster = Cluster()
    prepare_fails(cluster)
    cluster.more[-1]["involvedObject"]["uid"] = "another"
    _, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert verdict["message"] == "default/train is on node node-1 with its devices, and has not started"


def test_a_pod_that_is_being_deleted_says_so(tmp_path: Path) -> None:
    cluster = Cluster()
    on_its_node(cluster)
    cluster.pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    cluster.pod["status"] = {"phase": "Running"}
    _, verdict = run(explain, cluster, tmp_path, "pod/train")
    assert verdict["message"] == "default/train is on node node-1 (Running, being deleted)"
