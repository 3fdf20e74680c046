"""What a node may write: its own slices, pods, leases, and nothing of others."""

import copy
from typing import Any

import pytest
from tests.apiserver.admission.world import ADMIN, DRA, N1, Document, World, admitted_pod
from tests.builders.manifests import a_slice


def node_slice(node: str | None = "n1") -> Document:
    return a_slice("s", node=node, driver="d", pool="p")


@pytest.mark.parametrize("node", ["n2", None, ""])
async def test_a_node_writes_only_its_own_slices(world: World, node: str | None) -> None:
    slices = f"{DRA}:resourceslices"
    await world.admit(slices, node_slice(), user=N1)
    await world.admit(slices, node_slice(), node_slice(), user=N1)
    await world.admit(slices, None, node_slice(), user=N1)
    error = await world.refused(slices, node_slice(node), user=N1)
    assert error.code == 403
    assert error.message.endswith("can only create ResourceSlice with the same NodeName as the requesting node")
    await world.refused(slices, node_slice(), node_slice(node), user=N1)
    await world.refused(slices, node_slice(node), node_slice(), user=N1)
    error = await world.refused(slices, None, node_slice(node), user=N1)
    assert "can only delete ResourceSlice" in error.message


def a_mirror(**changes: Any) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
    metadata = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return admitted_pod(metadata=metadata | changes.pop("metadata", {}), **{"nodeName": "n1", **changes})


async def test_a_node_creates_mirror_pods_only(world: World) -> None:
    await world.put("Node", "n1")
    await world.admit("pods", a_mirror(), user=N1)
    owner = a_mirror()["metadata"]["ownerReferences"][0]
    cases: list[tuple[Document, str]] = [
        (admitted_pod(nodeName="n1"), "can only create mirror pods"),
        (a_mirror(nodeName="n2"), "spec.nodeName set to itself"),
        (a_mirror(metadata={"ownerReferences": []}), "exactly one owner reference"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "name": "n2"}]}), "owner reference set to itself"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "uid": "other"}]}), "UID mismatch"),
        (a_mirror(metadata={"ownerReferences": [{**owner, "controller": False}]}), "controller owner reference"),
        (a_mirror(resourceClaims=[{"name": "c", "resourceClaimName": "x"}]), "can not create pods that reference resourceclaims"),
        (a_mirror(volumes=[{"name": "v", "configMap": {"name": "x"}}]), "can not create pods that reference configmaps"),
        (a_mirror(imagePullSecrets=[{"name": "x"}]), "can not create pods that reference secrets"),
    ]  # fmt: skip
    for pod, says in cases:
        error = await world.refused("pods", pod, user=N1)
        assert error.code == 403
        assert says in error.message


async def test_a_node_reports_only_what_is_its_to_report(world: World) -> None:
    old = admitted_pod(nodeName="n1", status={"phase": "Pending", "resourceClaimStatuses": [{"name": "a"}]})
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    await world.admit("pods/status", new, old, user=N1)
    changes: list[tuple[str, Any, str]] = [
        ("resourceClaimStatuses", [{"name": "a", "resourceClaimName": "stolen"}], "cannot update resource claim statues"),
        ("resourceClaimStatuses", None, "cannot update resource claim statues"),
        ("extendedResourceClaimStatus", {"resourceClaimName": "x"}, "cannot update extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", [{"resourceClaimName": "x"}], "cannot update node allocatable resource claim"),
    ]  # fmt: skip
    for field, value, says in changes:
        bad = copy.deepcopy(new)
        bad["status"][field] = value
        error = await world.refused("pods/status", bad, old, user=N1)
        assert f'node "n1" {says}' in error.message
        await world.admit("pods/status", bad, old, user=ADMIN)
    labelled = copy.deepcopy(new)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert "labels" in (await world.refused("pods/status", labelled, old, user=N1)).message
    foreign = admitted_pod(nodeName="n2")
    assert (await world.refused("pods/status", foreign, foreign, user=N1)).code == 403
    assert (await world.refused("pods", None, foreign, user=N1)).code == 403
    await world.admit("pods", None, old, user=N1)


async def test_a_node_changes_only_its_own_node_and_not_its_taints(world: World) -> None:
    def node(name: str = "n1", labels: Document | None = None, **spec: Any) -> Document:
        return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}

    await world.admit("nodes", node(labels={"kubernetes.io/hostname": "h", "team": "x"}), user=N1)
    assert "not allowed to modify node" in (await world.refused("nodes", node("n2"), user=N1)).message
    for resource in ("nodes", "nodes/status"):
        await world.admit(resource, node(labels={"kubernetes.io/hostname": "h"}), node(), user=N1)
        error = await world.refused(resource, node("n2"), node("n2"), user=N1)
        assert error.message == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    taint = [{"key": "k", "effect": "NoSchedule"}]
    assert "taints" in (await world.refused("nodes", node(), node(taints=taint), user=N1)).message
    for label in ("node-restriction.kubernetes.io/x", "node-role.kubernetes.io/control-plane", "foo.k8s.io/x"):
        error = await world.refused("nodes", node(labels={label: "y"}), node(), user=N1)
        assert label in error.message
    error = await world.refused("nodes", node(labels={"node-restriction.kubernetes.io/x": "y"}), user=N1)
    assert error.code == 403


async def test_leases_and_tokens_of_other_nodes(world: World) -> None:
    leases = "coordination.k8s.io:leases"
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    await world.admit(leases, lease, user=N1, namespace="kube-node-lease")
    await world.refused(leases, {"metadata": {"name": "n2"}}, user=N1, namespace="kube-node-lease")
    await world.refused(leases, lease, user=N1, namespace="ns")
    token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    await world.put("Pod", "mine", "ns", spec={"nodeName": "n1", "volumes": [token]})
    await world.put("Pod", "theirs", "ns", spec={"nodeName": "n2", "volumes": [token]})

    def request(pod: str, uid: str | None = None) -> Document:
        reference = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": f"uid-{pod}" if uid is None else uid}
        return {"metadata": {"name": "default"}, "spec": {"boundObjectRef": reference}}

    await world.admit("serviceaccounts/token", request("mine"), user=N1)
    assert "different node" in (await world.refused("serviceaccounts/token", request("theirs"), user=N1)).message
    assert "without a uid" in (await world.refused("serviceaccounts/token", request("mine", ""), user=N1)).message
    assert (await world.refused("serviceaccounts/token", request("mine", "old"), user=N1)).code == 409
    unbound = {"metadata": {"name": "default"}, "spec": {}}
    assert "not bound to a pod" in (await world.refused("serviceaccounts/token", unbound, user=N1)).message


async def test_evictions_by_a_node(world: World) -> None:
    await world.put("Pod", "theirs", "ns", spec={"nodeName": "n2"})
    eviction = {"metadata": {"name": "theirs"}}
    assert "can only evict pods" in (await world.refused("pods/eviction", eviction, user=N1)).message


CERTIFICATES = [{"name": "v", "projected": {"sources": [{"podCertificate": {"signerName": "example.com/s"}}]}}]


def a_certificate_request(**changes: str) -> Document:
    spec = {
        "signerName": "example.com/s",
        "podName": "p",
        "podUID": "uid-p",
        "serviceAccountName": "robot",
        "serviceAccountUID": "uid-robot",
        "nodeName": "n1",
        "nodeUID": "uid-n1",
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"name": "r", "namespace": "ns"},
        "spec": spec | changes,
    }


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"nodeName": "n2"}, 'PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"'),
        ({"podName": "far"}, 'pod "ns/far" is not running on node "n1" named in the PodCertificateRequest'),
        ({"podUID": "other"}, 'PodCertificateRequest for pod "ns/p" names another podUID'),
        ({"nodeUID": "other"}, 'PodCertificateRequest for pod "ns/p" names another nodeUID'),
        ({"serviceAccountUID": "other"}, 'PodCertificateRequest for pod "ns/p" names another serviceAccountUID'),
        ({"serviceAccountName": "default"}, 'that differs from running pod ("robot")'),
        (
            {"signerName": "example.com/t"},
            'does not mount a podCertificate projected volume for signer "example.com/t"',
        ),
    ],
)
async def test_a_node_asks_for_certificates_of_its_pods_only(world: World, changes: Document, refusal: str) -> None:
    await world.put("Node", "n1")
    await world.put("ServiceAccount", "robot", "ns")
    spec = {"nodeName": "n1", "serviceAccountName": "robot", "containers": [], "volumes": CERTIFICATES}
    await world.put("Pod", "p", "ns", spec=spec)
    await world.put("Pod", "far", "ns", spec=spec | {"nodeName": "n2"})
    requests = "certificates.k8s.io:podcertificaterequests"
    await world.admit(requests, a_certificate_request(), user=N1)
    error = await world.refused(requests, a_certificate_request(**changes), user=N1)
    assert error.message.endswith(refusal)


async def test_a_node_reports_the_capacity_of_volume_claims_and_nothing_else(world: World) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns"}}
    old = claim | {"status": {"phase": "Bound"}}
    grown = claim | {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    await world.admit("persistentvolumeclaims/status", grown, old, user=N1)
    lost = claim | {"status": {"phase": "Lost"}}
    error = await world.refused("persistentvolumeclaims/status", lost, old, user=N1)
    assert "not allowed to update fields other than status.quantity" in error.message


async def test_a_pod_has_the_zone_and_the_region_of_its_node(world: World) -> None:
    where = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    await world.put("Node", "n1", metadata={"labels": {**where, "kubernetes.io/arch": "amd64"}})
    await world.put("Node", "n2")
    binding = {"metadata": {"name": "p", "labels": {"a": "b"}}, "target": {"kind": "Node", "name": "n1"}}
    bound = await world.admit("pods/binding", binding)
    assert bound is not None
    assert bound["metadata"]["labels"] == {"a": "b", **where}
    for target in ({"kind": "Node", "name": "n2"}, {"kind": "Node", "name": "ghost"}, {"name": "n1"}):
        bound = await world.admit("pods/binding", {**binding, "target": target})
        assert bound is not None
        assert bound["metadata"]["labels"] == {"a": "b"}
    pod = await world.admit(
        "pods", admitted_pod(nodeName="n1", metadata={"labels": {"topology.kubernetes.io/zone": "x"}})
    )
    assert pod is not None
    assert pod["metadata"]["labels"] == where
