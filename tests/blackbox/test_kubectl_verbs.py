"""Every verb of kubectl that a user may try, over a running cluster: it works, or it says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.conftest import one_request_template, script_pod, with_claim
from tests.builders.manifests import a_class
from tests.kubectl import Kubectl
from tests.waiting import eventually_blocking

DRA_KINDS = (
    "deviceclasses",
    "resourceslices",
    "resourceclaims",
    "resourceclaimtemplates",
    "devicetaintrules",
    "resourcepoolstatusrequests",
)


@pytest.fixture(scope="module")
def claimant(kubectl: Kubectl) -> str:
    """A pod that runs with a device."""
    kubectl.apply(one_request_template("one"), script_pod("claimant", "sleep 1000", **with_claim("one")))
    kubectl.run("wait", "--for=condition=Ready", "pod/claimant", "--timeout=60s")
    return "claimant"


def test_what_there_is(kubectl: Kubectl) -> None:
    resources = kubectl.run("api-resources", "-o", "name")
    assert {f"{kind}.resource.k8s.io" for kind in DRA_KINDS} <= set(resources.split())
    assert {"resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"} <= set(
        kubectl.run("api-versions").split()
    )
    assert "control plane is running at" in kubectl.run("cluster-info")
    assert "Server Version: v1.37" in kubectl.run("version")
    assert kubectl.run("get", "--raw", "/readyz") == "ok"


@pytest.mark.parametrize("kind", DRA_KINDS)
def test_explain_knows_every_kind(kubectl: Kubectl, kind: str) -> None:
    out = kubectl.run("explain", kind, "--recursive")
    assert "GROUP:      resource.k8s.io" in out
    assert "metadata\t<ObjectMeta>" in out


def test_claims_seen_in_many_ways(kubectl: Kubectl, claimant: str) -> None:
    rows = kubectl.run("get", "resourceclaims", "--no-headers").splitlines()
    assert any("allocated,reserved" in row for row in rows)
    names = kubectl.run("get", "resourceclaims", "--sort-by=.metadata.name", "-o", "name").split()
    assert names == sorted(names)
    device = "jsonpath={.items[0].status.allocation.devices.results[0].driver}"
    assert kubectl.run("get", "resourceclaims", "-o", device) == "gpu.example.com"
    columns = "custom-columns=NAME:.metadata.name,POD:.status.reservedFor[0].name"
    assert claimant in kubectl.run("get", "resourceclaims", "-o", columns)
    assert "Device Class Name:  gpu" in kubectl.run("describe", "resourceclaims")
    watched = kubectl.run("get", "resourceclaims", "--watch", "--request-timeout=1s")
    assert "allocated,reserved" in watched


def test_events_tell_what_happened(kubectl: Kubectl, claimant: str) -> None:
    assert "Successfully assigned" in kubectl.run("events", "--for", f"pod/{claimant}")
    assert "Scheduled" in kubectl.run("get", "events", "--field-selector", f"involvedObject.name={claimant}")
    assert "Successfully assigned" in kubectl.run("describe", "pod", claimant)


def test_describe_tells_why_a_claim_was_not_created(kubectl: Kubectl) -> None:
    kubectl.apply(script_pod("claimless", **with_claim("nowhere")))
    eventually_blocking(
        lambda: "FailedResourceClaimCreation" in kubectl.run("describe", "pod", "claimless"), "the event"
    )
    assert 'resource claim template "nowhere"' in kubectl.run("describe", "pod", "claimless")
    kubectl.run("delete", "pod", "claimless", "--force", "--grace-period=0")


def test_labels_annotations_and_patches(kubectl: Kubectl) -> None:
    kubectl.apply(a_class("plain"))
    kubectl.run("label", "deviceclass", "plain", "tier=one")
    assert "already has a value" in kubectl.run("label", "deviceclass", "plain", "tier=two", fails=True)
    kubectl.run("label", "deviceclass", "plain", "tier=two", "--overwrite")
    kubectl.run("annotate", "deviceclass", "plain", "note=x")
    kubectl.run("patch", "deviceclass", "plain", "-p", '{"metadata":{"labels":{"a":"strategic"}}}')
    kubectl.run("patch", "deviceclass", "plain", "--type=merge", "-p", '{"metadata":{"labels":{"b":"merge"}}}')
    operations = '[{"op":"add","path":"/metadata/labels/c","value":"json"}]'
    kubectl.run("patch", "deviceclass", "plain", "--type=json", "-p", operations)
    found = kubectl.json("deviceclass", "plain")["metadata"]["labels"]
    assert found == {"tier": "two", "a": "strategic", "b": "merge", "c": "json"}
    kubectl.run("label", "deviceclass", "plain", "tier-")
    kubectl.run("delete", "deviceclass", "plain")


def test_diff_replace_and_apply(kubectl: Kubectl) -> None:
    template = one_request_template("changing")
    kubectl.apply(template)
    labelled: dict[str, Any] = {**template, "metadata": {"name": "changing", "labels": {"a": "b"}}}
    assert "+    a: b" in kubectl.run("diff", "-f", "-", stdin=json.dumps(labelled), fails=True)
    kubectl.run("diff", "-f", "-", stdin=json.dumps(template))
    other = one_request_template("changing", count=2)
    assert "immutable" in kubectl.run("apply", "-f", "-", stdin=json.dumps(other), fails=True)
    kubectl.run("replace", "--force", "-f", "-", stdin=json.dumps(other))
    request = kubectl.json("resourceclaimtemplate", "changing")["spec"]["spec"]["devices"]["requests"][0]
    assert request["exactly"]["count"] == 2
    dry = kubectl.run("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=json.dumps(labelled), fails=True)
    assert "conflict" in dry
    kubectl.run("delete", "resourceclaimtemplate", "changing", "--cascade=foreground")


def test_a_node_is_taken_out_and_put_back(kubectl: Kubectl) -> None:
    kubectl.apply(script_pod("passenger", "sleep 1000", nodeName="node-2"))
    kubectl.run("wait", "--for=condition=Ready", "pod/passenger", "--timeout=60s")
    kubectl.run("taint", "node", "node-2", "a=b:PreferNoSchedule")
    kubectl.run("taint", "node", "node-2", "a-")
    out = kubectl.run("drain", "node-2", "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s")
    assert "pod/passenger evicted" in out
    assert "SchedulingDisabled" in kubectl.run("get", "node", "node-2")
    kubectl.run("uncordon", "node-2")
    assert "Allocated resources:" in kubectl.run("describe", "node", "node-2")


def test_a_drain_waits_for_the_disruption_budget(kubectl: Kubectl) -> None:
    """Two replicas of which one may be missing: the second eviction waits until the replacement of the first runs."""
    kubectl.run("taint", "node", "node-1", "elsewhere=only:NoSchedule")
    labels = {"app": "guarded"}
    pod = script_pod("x", "sleep 1000")["spec"]
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    kubectl.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "guarded"}, "spec": spec})
    kubectl.run("create", "poddisruptionbudget", "guarded", "--selector=app=guarded", "--min-available=50%")
    kubectl.run("rollout", "status", "deployment/guarded", "--timeout=60s")
    allowed = "jsonpath={.status.disruptionsAllowed}"
    eventually_blocking(lambda: kubectl.run("get", "pdb", "guarded", "-o", allowed) == "1", "one disruption")
    kubectl.run("patch", "pdb", "guarded", "--type=merge", "-p", '{"spec":{"minAvailable":2}}')
    eventually_blocking(lambda: kubectl.run("get", "pdb", "guarded", "-o", allowed) == "0", "no disruption")
    refused = kubectl.run("drain", "node-2", "--pod-selector=app=guarded", "--timeout=1s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    kubectl.run("taint", "node", "node-1", "elsewhere-")
    kubectl.run("patch", "pdb", "guarded", "--type=merge", "-p", '{"spec":{"minAvailable":1}}')
    out = kubectl.run("drain", "node-2", "--pod-selector=app=guarded", "--timeout=50s")
    assert out.count(" evicted") == 2
    kubectl.run("uncordon", "node-2")
    kubectl.run("delete", "deployment,pdb", "guarded")


def test_who_am_i_and_what_may_i(kubectl: Kubectl) -> None:
    assert "kubernetes-admin" in kubectl.run("auth", "whoami")
    kubectl.run("create", "clusterrolebinding", "viewers", "--clusterrole=view", "--user=vera")
    assert kubectl.run("auth", "can-i", "list", "resourceclaims", "--as=vera").strip() == "yes"
    for verb, what in (("create", "resourceclaims"), ("list", "deviceclasses"), ("update", "resourceclaims/status")):
        assert kubectl.run("auth", "can-i", verb, what, "--as=vera", fails=True).split()[0] == "no"
    refused = kubectl.run("delete", "resourceclaims", "--all", "--as=vera", fails=True)
    assert 'User "vera" cannot delete resource "resourceclaims"' in refused
    kubectl.run("create", "serviceaccount", "robot")
    token = kubectl.run("create", "token", "robot", "--duration=10m").strip()
    # The administrator's certificate would come first.
    server = kubectl.run("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    words = ("--kubeconfig=/dev/null", f"--server={server}", "--insecure-skip-tls-verify", f"--token={token}")
    assert "system:serviceaccount:default:robot" in kubectl.run("auth", "whoami", *words)


def test_run_logs_and_delete(kubectl: Kubectl) -> None:
    kubectl.run("run", "quick", "--image=image", "--restart=Never", "--command", "--", "sh", "-c", "echo hello")
    kubectl.run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/quick", "--timeout=60s")
    assert kubectl.run("logs", "quick").strip() == "hello"
    kubectl.run("delete", "pod", "quick", "--now")
    kubectl.run("wait", "--for=delete", "pod/quick", "--timeout=60s")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("exec", "claimant", "--", "no-such-program"), "no-such-program"),
        (("top", "nodes"), "Metrics API not available"),
        (("get", "widgets"), "doesn't have a resource type"),
        (("scale", "deployment", "none", "--replicas=2"), "not found"),
        (("rollout", "status", "deployment/none"), "not found"),
        (("get", "resourceclaim", "none"), 'resourceclaims.resource.k8s.io "none" not found'),
        (("get", "resourceclaims", "--field-selector", "spec.x=y"), "is not a known field selector"),
        (("get", "resourceclaims", "-l", "a in"), "unable to parse requirement"),
    ],
)
def test_what_cannot_be_says_why(kubectl: Kubectl, claimant: str, words: tuple[str, ...], expected: str) -> None:
    assert expected in kubectl.run(*words, fails=True)


def test_a_directory_of_everything(kubectl: Kubectl, tmp_path: Path) -> None:
    documents = [
        a_class("dir"),
        one_request_template("dir"),
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "dir"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "dir"}}]}},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "dir"},
            "spec": {"deviceSelector": {"device": "none"}, "taint": {"key": "k", "effect": "NoSchedule"}},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "dir"},
            "spec": {
                "driver": "other.example.com",
                "allNodes": True,
                "pool": {"name": "dir", "generation": 1, "resourceSliceCount": 1},
            },
        },
    ]
    for document in documents:
        (tmp_path / f"{document['kind']}.json").write_text(json.dumps(document))
    for words, done in (
        (("apply", "--dry-run=server"), "created (server dry run)"),
        (("apply",), "created"),
        # Lists with spelled-out defaults are sent again, as to any server, and change nothing.
        (("apply",), "k8s.io/dir "),
        (("apply", "--server-side", "--force-conflicts"), "serverside-applied"),
        (("delete", "--cascade=background"), "deleted"),
    ):
        out = kubectl.run(*words, "-f", str(tmp_path))
        assert out.count(done) == len(documents), out
