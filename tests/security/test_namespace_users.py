"""A user with the role `admin` in one namespace, who would like more."""

import json
import subprocess

import pytest
import yaml

from dray.apiserver.security.credentials import kubeconfig_text
from tests.builders.manifests import a_claim, a_request

TEAM = """
apiVersion: v1
kind: Namespace
metadata: {name: %s}
"""


@pytest.fixture(scope="module")
def alice(site, tmp_path_factory):
    """kubectl as alice, who is admin of team-a and nothing else."""
    for name in ("team-a", "team-b"):
        site.kubectl("create", "namespace", name)
    site.kubectl("create", "rolebinding", "alice", "--clusterrole=admin", "--user=alice", "-n", "team-a")
    theirs = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "theirs", "namespace": "team-b"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    apply(site.kubeconfig, theirs)
    pair = site.authority.issue_client("alice", ())
    path = tmp_path_factory.mktemp("alice") / "kubeconfig"
    host, port = site.address
    path.write_text(kubeconfig_text(f"https://{host}:{port}", site.authority.certificate_pem, "alice", pair=pair))
    return path


def apply(kubeconfig, document) -> tuple[int, str]:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(kubeconfig), "create", "-f", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def kubectl(kubeconfig, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_claims_of_their_own_are_theirs(alice):
    code, output = apply(alice, a_claim("", namespace="team-a", generateName="c-"))
    assert code == 0, output
    assert kubectl(alice, "get", "resourceclaims", "-n", "team-a")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "resourceclaims", "-n", "team-b"),
        ("get", "resourceclaims", "-A"),
        ("get", "resourceclaim", "theirs", "-n", "team-b", "-o", "yaml"),
        ("delete", "resourceclaim", "theirs", "-n", "team-b"),
        ("get", "secrets", "-n", "kube-system"),
        ("delete", "resourceslices", "--all"),
        ("create", "clusterrolebinding", "me", "--clusterrole=cluster-admin", "--user=alice"),
        ("create", "rolebinding", "me", "--clusterrole=cluster-admin", "--user=alice", "-n", "team-a"),
        ("create", "role", "more", "--verb=*", "--resource=resourceclaims.resource.k8s.io/status", "-n", "team-a"),
        ("create", "rolebinding", "me", "--clusterrole=admin", "--user=alice", "-n", "team-b"),
        ("get", "pods", "-n", "team-b", "--as", "system:admin"),
        ("get", "nodes", "--as", "system:kube-scheduler"),
        ("get", "secrets", "-A", "--as", "alice", "--as-group", "system:masters"),
        ("label", "namespace", "team-a", "resource.kubernetes.io/admin-access=true"),
        ("taint", "node", "worker", "key=value:NoExecute"),
        ("get", "nodes"),
        ("logs", "one-gpu", "-n", "default"),
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
def test_nothing_beyond(alice, arguments):
    code, output = kubectl(alice, *arguments)
    assert code != 0
    assert "orbidden" in output, output


def test_admin_access_needs_the_label_that_they_may_not_set(alice):
    code, output = apply(alice, a_claim("", a_request(adminAccess=True), namespace="team-a", generateName="c-"))
    assert code != 0
    assert "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label" in output


@pytest.mark.parametrize("verb", ["update", "patch"])
def test_an_allocation_is_not_theirs_to_write(alice, verb):
    code, output = kubectl(alice, "auth", "can-i", verb, "resourceclaims", "--subresource=binding", "-n", "team-a")
    assert code != 0
    assert "no" in output
    status = {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "worker", "device": "gpu-1"}]}
        }
    }
    apply(
        alice,
        a_claim("", namespace="team-a", generateName="c-")
        | {"metadata": {"name": f"wish-{verb}", "namespace": "team-a"}},
    )
    code, output = kubectl(
        alice,
        "patch",
        "resourceclaim",
        f"wish-{verb}",
        "-n",
        "team-a",
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": status}),
    )
    assert code != 0
    assert "orbidden" in output, output


def test_a_pod_cannot_use_a_claim_of_another_namespace(alice, site):
    """Names are looked up in the pod's own namespace: it waits for a claim that is not there."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief", "namespace": "team-a"},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": "c"}]}}],
            "resourceClaims": [{"name": "c", "resourceClaimName": "theirs"}],
        },
    }
    code, output = apply(alice, pod)
    assert code == 0, output
    theirs = yaml.safe_load(site.kubectl("get", "resourceclaim", "theirs", "-n", "team-b", "-o", "yaml"))
    assert not (theirs.get("status") or {}).get("reservedFor")
