"""Pods of one group on one device, from end to end."""

from __future__ import annotations

from typing import Any

from tests.blackbox.conftest import one_request_template, script_pod
from tests.builders.manifests import a_pod_group
from tests.kubectl import Kubectl


def a_member(name: str, group: str, entry: dict[str, Any]) -> dict[str, Any]:
    pod = script_pod(name, "sleep 1000", schedulingGroup={"podGroupName": group}, resourceClaims=[entry])
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": entry["name"]}]}
    return pod


def test_pods_of_a_group_share_one_claim_until_the_group_is_gone(kubectl: Kubectl) -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "shared"}
    kubectl.apply(one_request_template("shared"), a_pod_group("team", entry, namespace=""))
    names = ["team-a", "team-b", "team-c"]
    kubectl.apply(*(a_member(name, "team", entry) for name in names))
    kubectl.run("wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), "--timeout=40s")
    (status,) = kubectl.json("podgroup", "team")["status"]["resourceClaimStatuses"]
    for name in names:
        assert kubectl.json("pod", name)["status"]["resourceClaimStatuses"] == [status]
    claim = kubectl.json("resourceclaim", status["resourceClaimName"])
    (user,) = claim["status"]["reservedFor"]
    assert (user["apiGroup"], user["resource"], user["name"]) == ("scheduling.k8s.io", "podgroups", "team")
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 1
    kubectl.run("delete", "pod", *names, "--now")
    # The group may still get new pods: its devices stay with it.
    assert kubectl.json("resourceclaim", status["resourceClaimName"])["status"]["allocation"]
    kubectl.run("delete", "podgroup", "team")
    kubectl.run("wait", "--for=delete", f"resourceclaim/{status['resourceClaimName']}", "--timeout=30s")


def test_a_member_waits_for_its_group(kubectl: Kubectl) -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "shared"}
    kubectl.apply(one_request_template("shared"), a_member("early", "late", entry))
    kubectl.until("FailedResourceClaimCreation", "describe", "pod", "early")
    kubectl.apply(a_pod_group("late", entry, namespace=""))
    kubectl.run("wait", "--for=condition=Ready", "pod/early", "--timeout=40s")
    kubectl.run("delete", "pod", "early", "--now")
    kubectl.run("delete", "podgroup", "late")
