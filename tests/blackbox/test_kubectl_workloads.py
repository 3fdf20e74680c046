"""What people do with kubectl every day: run, follow, roll out, look."""

from __future__ import annotations

from tests.blackbox.conftest import one_request_template, script_pod, with_claim
from tests.builders.manifests import a_class
from tests.kubectl import Kubectl


def test_following_logs_ends_with_the_container(kubectl: Kubectl) -> None:
    kubectl.apply(script_pod("talker", "echo first; sleep 1; echo last", restartPolicy="Never"))
    kubectl.run("wait", "--for=condition=Ready", "pod/talker", "--timeout=20s")
    assert kubectl.run("logs", "-f", "talker").split() == ["first", "last"]
    kubectl.until("Completed", "get", "pod", "talker")


def test_a_finished_pod_with_a_sidecar_is_completed(kubectl: Kubectl) -> None:
    sidecar = {"name": "side", "image": "image", "restartPolicy": "Always", "command": ["sleep", "100"]}
    kubectl.apply(script_pod("with-sidecar", "exit 0", restartPolicy="Never", initContainers=[sidecar]))
    kubectl.run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/with-sidecar", "--timeout=20s")
    assert kubectl.run("get", "pod", "with-sidecar", "--no-headers").split()[1:3] == ["0/2", "Completed"]


def test_a_crashed_container_restarts_at_once_the_first_time(kubectl: Kubectl) -> None:
    kubectl.apply(script_pod("crasher", "echo ran; exit 1"))
    kubectl.run("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/crasher", "--timeout=8s")
    assert kubectl.run("logs", "crasher", "--previous").strip() == "ran"
    kubectl.run("delete", "pod", "crasher", "--now")


def test_a_gated_pod_says_so(kubectl: Kubectl) -> None:
    kubectl.apply(script_pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    assert "SchedulingGated" in kubectl.run("get", "pod", "gated")
    (condition,) = kubectl.json("pod", "gated")["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    kubectl.run("patch", "pod", "gated", "--type=json", "-p", '[{"op":"remove","path":"/spec/schedulingGates"}]')
    kubectl.run("wait", "--for=condition=PodScheduled", "pod/gated", "--timeout=20s")


def test_rollouts_go_on_and_back(kubectl: Kubectl) -> None:
    kubectl.run("create", "deployment", "app", "--image=one", "--", "sleep", "1000")
    assert "RollingUpdate" in kubectl.run("describe", "deployment", "app")
    kubectl.run("rollout", "status", "deployment/app", "--timeout=30s")
    kubectl.run("set", "image", "deployment/app", "*=two")
    kubectl.run("rollout", "status", "deployment/app", "--timeout=30s")
    kubectl.run("rollout", "undo", "deployment/app")
    kubectl.run("rollout", "status", "deployment/app", "--timeout=30s")
    assert kubectl.json("deployment", "app")["spec"]["template"]["spec"]["containers"][0]["image"] == "one"
    assert len(kubectl.json("replicasets", "-l", "app=app")["items"]) == 2
    revisions = [
        line.split()[0] for line in kubectl.run("rollout", "history", "deployment/app").splitlines()[2:] if line
    ]
    assert revisions == ["2", "3"]
    kubectl.run("delete", "deployment", "app", "--cascade=foreground")
    assert not kubectl.json("replicasets", "-l", "app=app")["items"]


def test_a_claim_for_very_many_partitions_does_not_hold_up_anybody(kubectl: Kubectl) -> None:
    kubectl.apply(one_request_template("many", count=32), script_pod("hungry", **with_claim("many")))
    kubectl.run("wait", "--for=condition=PodScheduled", "pod/hungry", "--timeout=15s")
    kubectl.run("delete", "pod", "hungry", "--now")


def test_a_class_that_comes_later_serves_waiting_pods(kubectl: Kubectl) -> None:
    pod = script_pod("extended")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/late": "1"}}
    kubectl.apply(pod)
    kubectl.until("Insufficient example.com/late", "get", "pod", "extended", "-o", "yaml")
    kubectl.apply(a_class("late", extendedResourceName="example.com/late"))
    kubectl.run("wait", "--for=condition=Ready", "pod/extended", "--timeout=30s")
    kubectl.run("delete", "pod", "extended", "--now")
