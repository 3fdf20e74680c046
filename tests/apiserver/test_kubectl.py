"""kubectl against the server, over all DRA kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.apiserver import manifests
from tests.apiserver.conftest import Live
from tests.kubectl import KUBECTL, Kubectl

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

PLURALS = (
    "deviceclasses,resourceslices,resourceclaims,resourceclaimtemplates,devicetaintrules,resourcepoolstatusrequests,"
    "pods,nodes"
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("manifests") / "everything.yaml"
    path.write_text(yaml.safe_dump_all(manifests.everything()))
    return path


@pytest.fixture(scope="module")
def kubectl(live: Live, manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    tool = Kubectl(live.kubeconfig, tmp_path_factory.mktemp("home"))
    tool.run("apply", "-f", str(manifest))
    return tool


def test_apply_again_changes_nothing_but_spelled_out_defaults(kubectl: Kubectl, manifest: Path) -> None:
    before = kubectl.json("resourceslice", "slice-1")["metadata"]
    out = kubectl.run("apply", "-f", str(manifest))
    assert "resourceslice.resource.k8s.io/slice-1 unchanged" in out
    assert kubectl.json("resourceslice", "slice-1")["metadata"]["resourceVersion"] == before["resourceVersion"]


def test_server_side_apply_takes_over(kubectl: Kubectl, manifest: Path) -> None:
    out = kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(manifest))
    assert out.count("serverside-applied") == len(manifests.everything())
    deprecated = "resource.k8s.io/v1alpha3 ResourcePoolStatusRequest is deprecated in v1.39+, unavailable in v1.42+"
    assert [line for line in out.splitlines() if "Warning" in line] == [f"Warning: {deprecated}"]
    rule = kubectl.json("devicetaintrule", "rule-1")
    assert rule["spec"]["deviceSelector"] == {"driver": "gpu.example.com"}


def test_get_wide(kubectl: Kubectl) -> None:
    out = kubectl.run("get", PLURALS, "-A", "-o", "wide")
    for text in ("DRIVER", "POOL", "STATE", "pending", "TIMEADDED", "NOMINATED NODE", "CONTAINER-RUNTIME", "ERRORS"):
        assert text in out, out


@pytest.mark.parametrize("kind", PLURALS.split(","))
def test_describe(kubectl: Kubectl, kind: str) -> None:
    out = kubectl.run("describe", kind, "-A")
    assert "Name:" in out


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("resourceclaim.spec.devices.requests.exactly", ("deviceClassName", "tolerations")),
        ("resourceslice.spec.devices", ("capacity", "consumesCounters")),
        ("deviceclass.spec", ("selectors", "extendedResourceName")),
        ("resourceclaimtemplate.spec.spec", ("devices",)),
        ("devicetaintrule.spec", ("deviceSelector", "taint")),
        ("pod.spec.resourceClaims", ("resourceClaimTemplateName",)),
    ],
)
def test_explain(kubectl: Kubectl, path: str, words: tuple[str, ...]) -> None:
    out = kubectl.run("explain", path)
    assert all(word in out for word in words), out


def test_explain_recursive(kubectl: Kubectl) -> None:
    assert "allocationTimestamp" in kubectl.run("explain", "resourceclaim", "--recursive")


def test_edit_by_patch(kubectl: Kubectl) -> None:
    kubectl.run("label", "resourceclaim", "claim-1", "team=a")
    kubectl.run("annotate", "deviceclass", "gpu.example.com", "note=x")
    kubectl.run(
        "patch", "resourceclaim", "claim-1", "--type", "json", "-p", '[{"op":"remove","path":"/metadata/labels/team"}]'
    )
    kubectl.run("patch", "node", "node-1", "-p", '{"spec":{"unschedulable":true}}')
    kubectl.run("uncordon", "node-1")
    refused = kubectl.run("patch", "resourceclaim", "claim-1", "--type", "merge", "-p", '{"spec":null}', fails=True)
    assert "field is immutable" in refused


def test_edit_with_an_editor(kubectl: Kubectl, tmp_path: Path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/^  name: gpu.example.com/  labels:\\n    edited: yes-it-is\\n&/' \"$1\"\n")
    editor.chmod(0o755)
    kubectl.environment["KUBE_EDITOR"] = str(editor)
    kubectl.run("edit", "deviceclass", "gpu.example.com")
    assert kubectl.json("deviceclass", "gpu.example.com")["metadata"]["labels"]["edited"] == "yes-it-is"


def test_unknown_fields_are_refused(kubectl: Kubectl) -> None:
    bad = {**manifests.claim("bad"), "extra": 1}
    assert 'unknown field "extra"' in kubectl.run("create", "-f", "-", stdin=json.dumps(bad), fails=True)


def test_access_questions(kubectl: Kubectl) -> None:
    assert kubectl.run("auth", "can-i", "create", "resourceclaims").strip() == "yes"
    assert "no" in kubectl.run("auth", "can-i", "create", "resourceclaims", "--as", "alice", fails=True)
    whoami = kubectl.run("auth", "whoami")
    assert "kubernetes-admin" in whoami
    assert "authentication.kubernetes.io/credential-id  [X509SHA256=" in " ".join(whoami.split("Extra:")).replace(
        "   ", "  "
    )
    assert "selfsubjectreviews" in kubectl.run("auth", "can-i", "--list", "--as", "alice")


def test_wait_and_watch(kubectl: Kubectl) -> None:
    kubectl.run("wait", "--for=jsonpath={.status.phase}=Pending", "pod/pod-1", "--timeout=10s")
    out = kubectl.run("get", "pods", "--watch", "--request-timeout=1s", fails=False)
    assert "pod-1" in out


def test_commands_that_write_protobuf(kubectl: Kubectl) -> None:
    kubectl.run("create", "namespace", "made")
    kubectl.run("create", "serviceaccount", "robot", "-n", "made")
    kubectl.run("create", "configmap", "settings", "--from-literal=a=b", "-n", "made")
    kubectl.run("create", "secret", "generic", "password", "--from-literal=a=b", "-n", "made")
    kubectl.run("create", "role", "reader", "--verb=get", "--resource=pods", "-n", "made")
    kubectl.run("create", "rolebinding", "readers", "--role=reader", "--user=alice", "-n", "made")
    kubectl.run("create", "quota", "limits", "--hard=pods=2", "-n", "made")
    kubectl.run("create", "deployment", "web", "--image=web:1", "-n", "made")
    kubectl.run("scale", "deployment", "web", "--replicas=3", "-n", "made")
    assert kubectl.json("deployment", "web", "-n", "made")["spec"]["replicas"] == 3
    assert kubectl.json("secret", "password", "-n", "made")["data"] == {"a": "Yg=="}
    assert kubectl.run("create", "token", "robot", "-n", "made").count(".") == 2
    assert "yes" in kubectl.run("auth", "can-i", "get", "pods", "--as", "alice", "-n", "made")


def test_services_have_addresses(kubectl: Kubectl) -> None:
    assert "control plane is running at" in kubectl.run("cluster-info")
    kubectl.run("create", "service", "clusterip", "plain", "--tcp=80:8080")
    kubectl.run("create", "deployment", "exposed", "--image=web:1")
    kubectl.run("expose", "deployment", "exposed", "--port=80")
    assert kubectl.json("service", "plain")["spec"]["ports"] == [
        {"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}
    ]
    assert {"service/plain", "service/exposed"} <= set(kubectl.run("get", "all", "-o", "name").split())
    row = kubectl.run("get", "service", "exposed", "-o", "wide", "--no-headers").split()
    assert row[1:2] + row[3:5] + row[6:] == ["ClusterIP", "<none>", "80/TCP", "app=exposed"]
    assert row[2] == kubectl.json("service", "exposed")["spec"]["clusterIP"]
    assert "TargetPort:" in kubectl.run("describe", "service", "exposed")
    kubectl.run("delete", "service", "plain", "exposed")


def test_delete_cascade(kubectl: Kubectl) -> None:
    kubectl.run("create", "-f", "-", stdin=json.dumps(manifests.claim("doomed")))
    kubectl.run("delete", "resourceclaim", "doomed", "--cascade=background")
    assert "NotFound" in kubectl.run("get", "resourceclaim", "doomed", fails=True)
    kubectl.run("create", "-f", "-", stdin=json.dumps(manifests.claim("held")))
    kubectl.run("delete", "resourceclaim", "held", "--cascade=foreground", "--wait=false")
    assert kubectl.json("resourceclaim", "held")["metadata"]["finalizers"] == ["foregroundDeletion"]
    kubectl.run("patch", "resourceclaim", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl.run("create", "-f", "-", stdin=json.dumps(manifests.claim("orphaned")))
    kubectl.run("delete", "resourceclaim", "orphaned", "--cascade=orphan", "--wait=false")


def test_old_versions_are_served_with_a_warning(kubectl: Kubectl) -> None:
    out = kubectl.run("get", "resourceclaims.v1beta1.resource.k8s.io", "claim-1", "-o", "yaml")
    assert "deprecated in v1.35+" in out
    assert "apiVersion: resource.k8s.io/v1beta1" in out
